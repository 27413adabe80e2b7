// Takes the pictures of the console for the documents: a workspace with some weeks of made-up traffic, in Chromium. It
// measures nothing.
import { pino } from 'pino';
import { loadConfig, storeSettings } from '../dist/config.js';
import { parseGrant } from '../dist/domain/grants.js';
import { createId, createRootKeyString, digestOf } from '../dist/domain/keyString.js';
import { createPipeline } from '../dist/http/pipeline.js';
import { operations } from '../dist/operations/index.js';
import { cliActor } from '../dist/records/rootKeys.js';
import { openStore } from '../dist/store.js';
import { startBrowser } from './support/browser.mjs';
import { readOptions } from './support/options.mjs';
import { atEnd, run, startRedis, startTollgate } from './support/processes.mjs';
import { progress, progressDone } from './support/results.mjs';

const help = `npm run bench -- pictures [options]
  --into dir     docs/console by default
  --days n       days of traffic, 40 by default`;
const options = readOptions(help, { into: { type: 'string' }, days: { type: 'string' } });
const into = options.into ?? 'docs/console';
const days = Number(options.days ?? 40);
const [hourMs, dayMs] = [3_600_000, 86_400_000];

const apis = ['payments', 'maps', 'documents'];
/** API, name, customer, verifications of a busy hour, fields of the key. */
const keys = [
  ['payments', 'Globex checkout', 'globex', 60, { limit: 25, roles: ['cashier'], meta: { plan: 'enterprise' } }],
  ['payments', 'Globex back office', 'globex', 8, {}],
  ['payments', 'Initech billing', 'initech', 22, {}],
  ['payments', 'Hooli storefront', 'hooli', 28, {}],
  ['maps', 'Umbrella fleet', 'umbrella', 48, { remaining: 1_000_000 }],
  ['maps', 'Umbrella trial', 'umbrella', 6, { remaining: 400 }],
  ['maps', 'Vandelay mobile app', 'vandelay', 40, { limit: 20 }],
  ['maps', 'Vandelay routes', 'vandelay', 15, { remaining: 250_000 }],
  ['documents', 'Wonka archive', 'wonka', 14, { expires: 5 * dayMs }],
  ['documents', 'Stark reports', 'stark', 11, { expires: 20 * dayMs }],
  ['documents', 'Stark intern', 'stark', 3, { expires: 40 * dayMs }],
];

/** The same numbers in each run. */
function randomOf(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Calls operations as if it were the time of `clock`. */
async function openPast(redis, clock) {
  const settings = storeSettings(loadConfig({ LEASE_MS: '0' }));
  const store = await openStore({ ...settings, url: redis.url, nowMs: () => clock.now });
  atEnd(() => store.close());
  const answer = createPipeline(operations, { store, log: pino({ level: 'silent' }), metaBytesMax: 10_240 });
  const { workspaceId } = await store.workspaces.create('Acme production');
  const { key: rootKey, start } = createRootKeyString(workspaceId);
  const owner = { digest: digestOf(rootKey), start, name: 'Ada, laptop', permissions: [parseGrant('*')] };
  await store.rootKeys.create(workspaceId, owner, cliActor);
  async function call(operation, input) {
    const { status, body } = await answer({
      method: 'POST',
      path: `/v2/${operation}`,
      hasQuery: false,
      authorization: `Bearer ${rootKey}`,
      contentType: 'application/json',
      accept: '',
      requestId: createId('req', 0),
      body: Buffer.from(JSON.stringify(input)),
    });
    if (status !== 200) throw new Error(`${operation}: ${body}`);
    return JSON.parse(body).data;
  }
  return { store, workspaceId, rootKey, call };
}

async function makeRecords(call, clock) {
  for (const name of ['payments.read', 'payments.create'])
    await call('permissions.createPermission', { name, slug: name });
  await call('permissions.createRole', { name: 'cashier' });
  const apiIds = {};
  for (const name of apis) apiIds[name] = (await call('apis.createApi', { name })).apiId;
  for (const externalId of new Set(keys.map(([, , owner]) => owner))) {
    const daily = { name: 'daily', limit: 20_000, duration: dayMs, autoApply: true };
    await call('identities.createIdentity', { externalId, ...(externalId === 'globex' && { ratelimits: [daily] }) });
  }
  const made = [];
  for (const [api, name, externalId, busy, { limit, remaining, expires, roles, meta }] of keys) {
    const requests = limit && { name: 'requests', limit, duration: 60_000, autoApply: true };
    const { key, keyId } = await call('keys.createKey', {
      apiId: apiIds[api],
      name,
      externalId,
      prefix: api.slice(0, 3),
      meta,
      roles,
      ...(requests && { ratelimits: [requests] }),
      ...(remaining && { credits: { remaining } }),
      ...(expires && { expires: clock.now + days * dayMs + expires }),
      ...(roles && { permissions: ['payments.read', 'payments.create'] }),
    });
    made.push({ key, keyId, name, busy, limit });
  }
  return made;
}

/** Verifications of an hour: more by day than at night, and at times a burst within a minute. */
async function useHour(call, clock, made, random, end) {
  const begunAt = clock.now;
  const ofDay = 0.35 + 0.65 * Math.sin((Math.PI * (new Date(begunAt).getUTCHours() + 1)) / 25) ** 2;
  for (const { key, busy, limit } of made) {
    const count = Math.round(busy * ofDay * (0.7 + 0.6 * random()));
    const isBurst = limit !== undefined && random() < 0.12;
    for (let index = 0; index < count; index++) {
      const share = isBurst ? index / (60 * count) : index / count;
      clock.now = Math.min(begunAt + Math.floor(share * hourMs), end);
      await call('keys.verifyKey', { key });
    }
  }
  clock.now = Math.min(begunAt + hourMs, end);
}

async function makeTraffic({ call, store, workspaceId }, clock, made, end) {
  const random = randomOf(7);
  while (clock.now < end) {
    const before = clock.now;
    await useHour(call, clock, made, random, end);
    if (Math.floor(before / dayMs) === Math.floor(clock.now / dayMs)) continue;
    progress(`${Math.ceil((end - clock.now) / dayMs)} days left`);
    while (await store.sweep.rollUp(workspaceId));
  }
  const busiest = made[0];
  for (let index = 0; index < busiest.limit + 5; index++) await call('keys.verifyKey', { key: busiest.key });
  const until = end + 2 * dayMs;
  const more = { name: 'daily', limit: 40_000, duration: dayMs, autoApply: true, until };
  await call('identities.updateIdentity', { identity: 'globex', ratelimits: [more] });
}

/** So that there is a latency to display. */
async function verifyNow(server, rootKey, { key }) {
  const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
  for (let times = 0; times < 300; times++)
    await fetch(`${server.url}/v2/keys.verifyKey`, { method: 'POST', headers, body: JSON.stringify({ key }) });
}

async function take(server, rootKey, made) {
  const browser = await startBrowser();
  const page = await browser.newPage({ viewport: { width: 1280, height: 860 } });
  await page.goto(`${server.url}/console/`);
  const field = page.getByLabel('Root key');
  await field.fill(rootKey);
  await page.keyboard.press('Enter');
  await field.waitFor({ state: 'detached' });
  const [{ keyId }] = made;
  const pictures = [
    ['overview', '/', 'light'],
    ['overview-dark', '/', 'dark'],
    ['key', `/keys/${keyId}?period=7d`, 'light'],
    ['why', `/why/${keyId}`, 'light'],
    ['keys', '/keys', 'light'],
    ['bill', '/bill', 'light'],
    ['attention', '/attention', 'light'],
    ['system', '/system', 'light'],
  ];
  for (const [name, path, colorScheme] of pictures) {
    progress(name);
    await page.emulateMedia({ colorScheme });
    await page.goto(`${server.url}/console${path}`);
    await page.locator('h1').waitFor();
    await page.waitForLoadState('networkidle').catch(() => {});
    await page.waitForFunction(() => !document.querySelector('main .waiting'));
    const height = await page.evaluate(() => document.querySelector('main').scrollHeight);
    await page.setViewportSize({ width: 1280, height: Math.min(1500, Math.max(860, height)) });
    await page.waitForTimeout(500);
    await page.screenshot({ path: `${into}/${name}.png` });
    await page.setViewportSize({ width: 1280, height: 860 });
  }
  progressDone();
}

await run(async () => {
  const redis = await startRedis();
  const end = Date.now();
  const clock = { now: Math.floor((end - days * dayMs) / dayMs) * dayMs };
  const past = await openPast(redis, clock);
  const made = await makeRecords(past.call, clock);
  await makeTraffic(past, clock, made, end);
  await past.store.close();
  const server = await startTollgate({ redis });
  await verifyNow(server, past.rootKey, made[2]);
  await take(server, past.rootKey, made);
});
