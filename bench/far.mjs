// Measures `tollgate-far`: two servers, one beside Redis and one behind a proxy that makes its round trips longer. Which
// part of the decisions the far one makes by itself, and how long changes wait, also for a server that no longer
// answers. Requests come at a fixed rate, as those of users do, whatever the responses take.
import { Agent, request } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { farAway } from './support/distance.mjs';
import { numbersOf, readOptions } from './support/options.mjs';
import { run, startRedis, startTollgate } from './support/processes.mjs';
import { median, number, progress, progressDone, report, table } from './support/results.mjs';
import { openSeed } from './support/seed.mjs';
import { limit, meta, name } from './targets/typicalKey.mjs';

const help = `npm run bench -- far [options]
  --distances a,b  milliseconds that are added to a round trip to Redis, 1,20,80 by default
  --rate n         requests a second for the hot key, 300 by default
  --warm n         keys that get five requests a second each, 200 by default
  --seconds s      seconds of a run, 10 by default
  --changes n      changes at each server, 20 by default
  --quick          a short run, to see that the bench works
  --json           print the result as JSON on standard output`;
const options = readOptions(help, {
  distances: { type: 'string' },
  rate: { type: 'string' },
  warm: { type: 'string' },
  seconds: { type: 'string' },
  changes: { type: 'string' },
  quick: { type: 'boolean' },
  json: { type: 'boolean' },
});
const distances = numbersOf(options.distances, options.quick ? [20] : [1, 20, 80], help);
const [rate] = numbersOf(options.rate, [300], help);
const [warmCount] = numbersOf(options.warm, [options.quick ? 20 : 200], help);
const [seconds] = numbersOf(options.seconds, [options.quick ? 2 : 10], help);
const [changeCount] = numbersOf(options.changes, [options.quick ? 3 : 20], help);
const warmRate = 5;

const agent = new Agent({ keepAlive: true, maxSockets: 512 });

/** Sends a request; returns its data, and how long it took in milliseconds. */
function send({ url, rootKey }, operation, input) {
  const startedAt = performance.now();
  const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
  return new Promise((resolve, reject) => {
    const sent = request(`${url}/v2/${operation}`, { method: 'POST', headers, agent }, (response) => {
      let text = '';
      response.on('data', (chunk) => (text += chunk));
      response.on('end', () => {
        if (response.statusCode !== 200) return reject(new Error(`${operation}: ${response.statusCode} ${text}`));
        resolve({ data: JSON.parse(text).data, ms: performance.now() - startedAt });
      });
    });
    sent.on('error', reject);
    sent.end(JSON.stringify(input));
  });
}

async function localDecisions({ url }) {
  const text = await (await fetch(`${url}/metrics`)).text();
  const counts = [...text.matchAll(/^tollgate_local_decisions_total\S* (\d+)/gm)].map(([, count]) => Number(count));
  return counts.reduce((sum, count) => sum + count, 0);
}

/** Verifies `keys` in turn at a rate. Returns the part that was decided locally, and the median of the latencies. */
async function load(server, keys, perSecond, duration) {
  const before = await localDecisions(server);
  const startedAt = performance.now();
  const sent = [];
  const total = Math.round(perSecond * duration);
  while (sent.length < total) {
    const due = Math.min(total, Math.floor(((performance.now() - startedAt) / 1000) * perSecond) + 1);
    while (sent.length < due) {
      // Not in order, as no user waits for another one.
      const key = keys[keys.length === 1 ? 0 : Math.floor(Math.random() * keys.length)];
      sent.push(send(server, 'keys.verifyKey', { key }));
    }
    await delay(1);
  }
  const answers = await Promise.all(sent);
  const refused = answers.find(({ data }) => data.code !== 'VALID');
  if (refused) throw new Error(`a verification was ${refused.data.code}`);
  const local = (await localDecisions(server)) - before;
  return { share: local / total, p50: median(answers.map(({ ms }) => ms)) };
}

/** How long changes took at `changer`, while both servers hold leases. */
async function changes(changer, servers, { key, keyId }) {
  const took = [];
  for (let number = 0; number < changeCount; number++) {
    await Promise.all(servers.map((server) => load(server, [key], rate, 0.5)));
    took.push((await send(changer, 'keys.updateKey', { keyId, name: `${name} ${number}` })).ms);
  }
  return { p50: median(took), most: Math.max(...took) };
}

/** How long a change at the near server takes after the far one, which holds leases, got this signal. */
async function changeAfter(signal, near, far, { key, keyId }) {
  await load(far, [key], rate, 1.5);
  process.kill(far.pid, signal);
  const { ms } = await send(near, 'keys.updateKey', { keyId, name: signal });
  const next = await send(near, 'keys.updateKey', { keyId, name: `after ${signal}` });
  if (signal === 'SIGSTOP') process.kill(far.pid, 'SIGCONT');
  return { first: ms, next: next.ms };
}

async function measureAt(distance) {
  const redis = await startRedis();
  const { rootKey, close } = await openSeed(redis);
  await close();
  const near = { ...(await startTollgate({ redis })), rootKey };
  const far = { ...(await startTollgate({ redis: await farAway(redis, distance) })), rootKey };
  const { apiId } = (await send(near, 'apis.createApi', { name: 'bench' })).data;
  const create = async (fields) => (await send(near, 'keys.createKey', { apiId, name, meta, ...fields })).data;
  const limited = await create({ ratelimits: [limit] });
  const metered = await create({ ratelimits: [{ ...limit, duration: undefined, period: 'month' }] });
  const unlimited = await create({});
  const warm = [];
  for (let count = 0; count < warmCount; count++) warm.push((await create({})).key);
  // Data gets its version some seconds after the first start, and a distance is known after some calls.
  progress(`${distance} ms: warming up`);
  await load(far, [unlimited.key], rate, options.quick ? 2 : 8);
  progress(`${distance} ms: hot`);
  const hot = await load(far, [limited.key], rate, seconds);
  const quota = await load(far, [metered.key], rate, seconds);
  const free = await load(far, [unlimited.key], rate, seconds);
  progress(`${distance} ms: warm`);
  await load(far, warm, warmRate * warmCount, 3);
  const warmed = await load(far, warm, warmRate * warmCount, seconds);
  progress(`${distance} ms: changes`);
  const atNear = await changes(near, [near, far], unlimited);
  const atFar = await changes(far, [near, far], unlimited);
  const stopped = await changeAfter('SIGSTOP', near, far, unlimited);
  await delay(1000);
  const killed = await changeAfter('SIGKILL', near, far, unlimited);
  return { distance, hot, quota, free, warmed, atNear, atFar, stopped, killed };
}

async function measure() {
  const measured = [];
  for (const distance of distances) measured.push(await measureAt(distance));
  progressDone();
  const percent = (share) => `${number(100 * share)} %`;
  const decided = table(
    [
      'Redis away, ms',
      'hot, one limit',
      'p50, ms',
      'hot, a monthly quota',
      'p50, ms',
      'hot, no limit',
      'p50, ms',
      `${warmRate}/s each, no limit`,
      'p50, ms',
    ],
    measured.map(({ distance, hot, quota, free, warmed }) => [
      distance,
      ...[hot, quota, free, warmed].flatMap(({ share, p50 }) => [percent(share), number(p50)]),
    ]),
  );
  const waits = table(
    [
      'Redis away, ms',
      'change at the near server, p50',
      'longest',
      'at the far one, p50',
      'longest',
      'far one stopped',
      'far one killed',
      'the next change',
    ],
    measured.map(({ distance, atNear, atFar, stopped, killed }) => [
      distance,
      ...[atNear.p50, atNear.most, atFar.p50, atFar.most, stopped.first, killed.first, killed.next].map(number),
    ]),
  );
  const note =
    `Decided by the far server itself: one key with ${rate} requests/s, and ${number(warmCount)} keys with ` +
    `${number(warmRate * warmCount)} in all, for ${seconds} s each; default settings. Below, how long a change took in ` +
    `ms (${changeCount} each) while both servers hold leases, and the first one at the near server after the far one ` +
    'got SIGSTOP or SIGKILL.';
  const at = (wanted) => measured.find(({ distance }) => distance === wanted);
  const reached = {
    farHot: at(80)?.hot.share,
    farHotAt20: at(20)?.hot.share,
    farWarm: at(80)?.warmed.share,
    farKilled: at(80)?.killed.first,
  };
  const kept = !options.quick;
  report(
    {
      bench: 'far',
      title: 'Far servers',
      markdown: [decided, waits, note].join('\n\n'),
      reached: kept ? Object.fromEntries(Object.entries(reached).filter(([, value]) => value !== undefined)) : {},
      raw: measured,
    },
    { json: options.json, kept },
  );
}

await run(measure);
