// Measures the console in Chromium: the time from a click to the first data of each screen and to all of it, on a store
// with many keys of which some are used. With --live: what verifications cost with and without the console, and while
// Live is open in ten tabs.

import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { startBrowser } from './support/browser.mjs';
import { openLoad } from './support/load.mjs';
import { numbersOf, readOptions } from './support/options.mjs';
import { atEnd, costOf, run, startRedis, startTollgate } from './support/processes.mjs';
import { median, number, progress, progressDone, report, table } from './support/results.mjs';
import { openSeed, verifyBodies } from './support/seed.mjs';
import { fillStore } from './support/usedStore.mjs';

const help = `npm run bench -- console [options]
  --keys n       keys of the API, 1000000 by default (takes some minutes and 1.5 GB)
  --used n       keys that were used in every hour of 90 days, 20000 by default
  --rounds n     measurements of each screen, or of each kind of server with --live; 20 and 12 by default
  --live         verifications with and without the console, and with Live open in ten tabs
  --quick        small numbers, to see that the bench works
  --json         print the result as JSON on standard output`;
const options = readOptions(help, {
  keys: { type: 'string' },
  used: { type: 'string' },
  rounds: { type: 'string' },
  live: { type: 'boolean' },
  quick: { type: 'boolean' },
  json: { type: 'boolean' },
});
const [stored] = numbersOf(options.keys, [options.quick ? 10_000 : 1_000_000], help);
const [used] = numbersOf(options.used, [options.quick ? 1000 : 20_000], help);
const [rounds] = numbersOf(options.rounds, [options.quick ? 2 : options.live ? 12 : 20], help);
const days = 90;
const tabs = 10;

async function screens() {
  const redis = await startRedis();
  const seed = await openSeed(redis);
  await fillStore(redis, seed, { stored, used, days });
  await seed.close();
  const server = await startTollgate({ redis });
  await useNamespaces(server.url, seed.rootKey);
  const browser = await startBrowser();
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  await page.goto(`${server.url}/console/why`);
  await page.getByLabel('Root key').fill(seed.rootKey);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Explain' }).waitFor();

  const times = new Map(steps.map(({ name }) => [name, []]));
  // The first round compiles schemas and code, and is not counted.
  for (let round = 0; round <= rounds; round++) {
    for (const { name, from, click, waiting = 'main .waiting' } of steps) {
      progress(`${name}, ${round} of ${rounds}`);
      // A page that was just loaded has no data of an earlier visit.
      await page.goto(`${server.url}/console${from}`);
      await page.locator('h1').waitFor();
      await page.waitForFunction(() => !document.querySelector('main .waiting'));
      await page.waitForTimeout(100);
      const took = await page.evaluate(measureClick, { ...click, waiting });
      if (took === undefined) throw new Error(`${name} has no data after a minute`);
      if (round > 0) times.get(name).push(took);
    }
  }
  progressDone();
  const figures = steps.map(({ name }) => ({ name, times: times.get(name) }));
  const rows = figures.map(({ name, times }) => [
    name,
    ...['first', 'all'].flatMap((which) => [50, 95].map((part) => number(percentile(times, which, part)))),
  ]);
  const markdown = [
    table(['screen', 'first data p50, ms', 'p95', 'all data p50, ms', 'p95'], rows),
    `From the click to the frame with the first data, and with all of it, in Chromium on the machine of the server. ${number(stored)} keys, of ` +
      `which ${number(used)} were used in every hour of ${days} days. ${rounds} times each, on a page without data of an earlier visit.`,
  ].join('\n\n');
  const kept = !options.quick && stored >= 1_000_000 && used >= 20_000 && rounds >= 20;
  const slowest = Math.max(...figures.map(({ times }) => percentile(times, 'first', 95)).filter(Number.isFinite));
  report(
    {
      bench: 'console',
      title: 'Console',
      markdown,
      reached: kept ? { consoleScreen: slowest } : {},
      raw: { figures },
      packages: ['playwright-core'],
    },
    { json: options.json, kept },
  );
}

const screen = (name, from) => ({ name, from, click: { selector: 'nav a', text: name, heading: name } });
const steps = [
  ...['Overview', 'Live', 'Attention', 'APIs', 'Keys', 'New key'].map((name) => screen(name, '/why')),
  screen('Explain', '/system'),
  ...['Customers', 'Bill'].map((name) => screen(name, '/why')),
  // Its first rows are those of the days that have ended.
  { ...screen('Bill', '/why'), name: 'Bill, with today', waiting: 'main .waiting, main progress' },
  ...['Rate limits', 'Access', 'System'].map((name) => screen(name, '/why')),
  { name: 'A key', from: '/keys', click: { selector: 'tbody a[href*="/keys/key_"]' } },
  { name: 'A key that is used most', from: '/', click: { selector: 'tbody a[href*="/keys/key_"]' } },
  { name: 'A customer', from: '/customers', click: { selector: 'tbody a[href*="/customers/"]' } },
  { name: 'A namespace', from: '/rate-limits', click: { selector: 'tbody a[href*="/rate-limits/"]' } },
  { name: '90 days of all keys', from: '/', click: { selector: '.choice label', text: '90 days', stays: true } },
];

/**
 * Runs in the page. Resolves to the milliseconds from a click to the first frame with data, and to one without
 * what is displayed while data is `waiting`. On a screen that `stays` there was data before the click.
 */
function measureClick({ selector, text, heading, stays, waiting }) {
  const clicked = [...document.querySelectorAll(selector)].find((one) => !text || one.textContent.trim() === text);
  const before = document.querySelector('h1').textContent;
  const data = 'main tbody tr, main dl, main form, main .empty, main .chart canvas';
  const chart = document.querySelector('.chart canvas');
  return new Promise((resolve) => {
    const begunAt = performance.now();
    let first;
    clicked.click();
    const frame = () => {
      const now = performance.now() - begunAt;
      const title = document.querySelector('h1')?.textContent;
      const isThere = stays
        ? document.querySelector('.chart canvas') !== chart
        : heading
          ? title === heading
          : title !== undefined && title !== before;
      if (isThere && document.querySelector(data)) first ??= now;
      if (first !== undefined && !document.querySelector(waiting))
        resolve({ first: stays ? Number.NaN : first, all: now });
      else if (now > 60_000) resolve(undefined);
      else requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
}

function percentile(times, which, part) {
  const sorted = times.map((one) => one[which]).toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor((sorted.length * part) / 100))] ?? Number.NaN;
}

async function useNamespaces(url, rootKey) {
  for (let index = 0; index < 500; index++) {
    await call(url, rootKey, 'ratelimits.limit', {
      namespace: `namespace_${index % 20}`,
      identifier: `user_${index % 100}`,
      limit: 10,
      duration: 60_000,
    });
  }
}

const request = (url, rootKey, operation, input, init = {}) =>
  fetch(`${url}/v2/${operation}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(input),
    ...init,
  });

async function call(url, rootKey, operation, input) {
  const response = await request(url, rootKey, operation, input);
  if (!response.ok) throw new Error(`${operation}: ${await response.text()}`);
}

/** Verifications of each kind in turns, so that other work of the machine affects all of them. */
async function live() {
  const count = 1000;
  // A tail sends more at the start of a load, until it has found how many decisions there are in a second.
  const [seconds, connections] = options.quick ? [1, 16] : [3, 64];
  const openServer = async (console) => {
    const redis = await startRedis();
    const seed = await openSeed(redis);
    await seed.createApi({ count, fieldsOf: () => ({}) });
    await seed.close();
    const server = await startTollgate({ redis, env: { CONSOLE: console } });
    const { rootKey } = seed;
    const load = openLoad({ url: server.url, path: '/v2/keys.verifyKey', rootKey, bodies: verifyBodies(count) });
    return { server, rootKey, load, runs: [] };
  };
  const withIt = { name: 'with it', ...(await openServer('1')) };
  const kinds = [
    { name: 'without the console', ...(await openServer('0')) },
    withIt,
    // The same process, because two processes of the same server differ by some percent for as long as they run.
    { ...withIt, name: `with Live in ${tabs} tabs`, hasTabs: true, runs: [] },
  ];
  for (let round = 0; round <= rounds; round++) {
    const runs = new Map(kinds.map((kind) => [kind, []]));
    // Forwards and backwards, as what a run leaves to do to its Redis delays the next one.
    for (const kind of [...kinds, ...[...kinds].reverse()]) {
      progress(`${kind.name}, ${round} of ${rounds}`);
      const { hasTabs, server, rootKey, load } = kind;
      const close = hasTabs ? await openTabs(server.url, rootKey) : undefined;
      const cost = await costOf(server, () => load({ connections, seconds }));
      const events = close?.();
      if (cost.refused + cost.broken > 0)
        throw new Error(`${kind.name}: ${cost.refused} refused, ${cost.broken} broken`);
      if (hasTabs && !(events > 0)) throw new Error('the tabs have heard nothing');
      const perSecond = cost.requests / cost.seconds;
      const cpu = (1e6 * (cost.serverCpu + cost.redisCpu)) / cost.requests;
      runs.get(kind).push({ perSecond, cpu, events: (events ?? 0) / seconds / tabs });
    }
    for (const [kind, [one, other]] of round > 0 ? runs : []) {
      kind.runs.push(Object.fromEntries(Object.keys(one).map((name) => [name, (one[name] + other[name]) / 2])));
    }
  }
  progressDone();
  const [without] = kinds;
  const ratioOf = ({ runs, hasTabs }, of) => {
    const base = hasTabs ? withIt : without;
    return median(runs.map((one, round) => of(one) / of(base.runs[round])));
  };
  const rows = kinds.map((kind) => [
    kind.name,
    number(median(kind.runs.map(({ perSecond }) => perSecond))),
    ratioOf(kind, ({ perSecond }) => perSecond).toFixed(3),
    number(median(kind.runs.map(({ cpu }) => cpu))),
    ratioOf(kind, ({ cpu }) => 1 / cpu).toFixed(3),
    kind.hasTabs ? number(median(kind.runs.map(({ events }) => events))) : '',
  ]);
  const markdown = [
    table(
      [
        'server',
        'verifications/s',
        'ratio',
        'CPU µs each, server and Redis',
        'ratio of their inverses',
        'events/s of a tab',
      ],
      rows,
    ),
    `${number(count)} keys at random, ${connections} connections. ${rounds} rounds, each of two runs of ${seconds} s forwards and ` +
      'backwards; medians of the ratios of a round: with the console to without it, and with the tabs to the same process without them. A tab is a stream of `analytics.tail` without a filter, read by the bench: the browser would take the processor of the server.',
  ].join('\n\n');
  const kept = !options.quick && rounds >= 12;
  report(
    {
      bench: 'console-live',
      title: 'Verifications with the console',
      markdown,
      reached: kept ? { consoleLive: ratioOf(kinds[2], ({ perSecond }) => perSecond) } : {},
      raw: { kinds: kinds.map(({ name, runs }) => ({ name, runs })) },
    },
    { json: options.json, kept },
  );
}

/**
 * Opens streams as Live does. Returns a function that closes them and returns the number of their events. It reads them
 * with as little work as possible, which would be that of other machines.
 */
async function openTabs(url, rootKey) {
  let events = 0;
  const streams = await Promise.all(Array.from({ length: tabs }, () => openStream(url, rootKey)));
  for (const stream of streams) {
    stream.on('error', () => {});
    stream.on('data', (part) => {
      for (let at = part.indexOf('\ndata: '); at >= 0; at = part.indexOf('\ndata: ', at + 1)) events++;
    });
  }
  const close = () => {
    for (const stream of streams) stream.destroy();
  };
  atEnd(close);
  return () => {
    close();
    return events;
  };
}

async function openStream(url, rootKey) {
  const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
  const sent = httpRequest(`${url}/v2/analytics.tail`, { method: 'POST', headers }).end('{}');
  const [response] = await once(sent, 'response');
  if (response.statusCode !== 200) throw new Error(`analytics.tail: ${response.statusCode}`);
  return response;
}

await run(options.live ? live : screens);
