// Measures queries of usage on an API that holds many keys of which some were used: how long a response takes, how long
// the longest script blocks Redis, and what verifications of another workspace take meanwhile. Then the same while the
// sweeper rolls up a day of all used keys.
import { setTimeout as delay } from 'node:timers/promises';
import { dayMs } from '../dist/domain/time.js';
import { rollupQueueKey, workspaceKey } from '../dist/redis/names.js';
import { spentPlace } from '../dist/scripts/layout.js';
import { asking, neighbour, percentile, quantiles, slowestScript } from './support/neighbour.mjs';
import { numbersOf, readOptions } from './support/options.mjs';
import { costOf, run, startRedis, startTollgate } from './support/processes.mjs';
import { number, progress, progressDone, report, table } from './support/results.mjs';
import { openSeed } from './support/seed.mjs';
import { customerOf, fillStore, keysPerCustomer, perHour, today } from './support/usedStore.mjs';

const help = `npm run bench -- usage [options]
  --keys n       keys of the API, 1000000 by default (takes some minutes and 1.5 GB)
  --used n       keys that were used in every hour, 20000 by default
  --days n       days before today on which they were used, 90 by default
  --quick        small numbers, to see that the bench works
  --json         print the result as JSON on standard output`;
const options = readOptions(help, {
  keys: { type: 'string' },
  used: { type: 'string' },
  days: { type: 'string' },
  quick: { type: 'boolean' },
  json: { type: 'boolean' },
});
const [stored] = numbersOf(options.keys, [options.quick ? 10_000 : 1_000_000], help);
const [used] = numbersOf(options.used, [options.quick ? 1000 : 20_000], help);
const [days] = numbersOf(options.days, [90], help);

async function measure() {
  const redis = await startRedis();
  const seed = await openSeed(redis);
  const { apiId, ids } = await fillStore(redis, seed, { stored, used, days });
  const others = await seed.createWorkspace();
  await seed.close();
  const server = await startTollgate({ redis, env: { LEASE_MS: '0' } });
  const ask = asking(server.url, seed.rootKey);
  const other = neighbour(server.url, others.rootKey);

  await redis.client.config('SET', 'slowlog-log-slower-than', '1000', 'slowlog-max-len', '10000');
  await other(options.quick ? 0.5 : 2);
  const alone = await other(options.quick ? 1 : 10);
  const rows = [];
  const reached = { usageQuery: 0, usageScript: 0 };
  for (const { what, operation, inputs, check } of questions(apiId)) {
    progress(what);
    let asked = 0;
    const question = () => ask(operation, inputs[asked++ % inputs.length]);
    check(await question());
    const cost = await costAlone(server, question);
    const { times, slowest, meanwhile } = await repeat(redis, other, question);
    rows.push([what, cost, milliseconds(times), number(slowest), quantiles(meanwhile)]);
    reached.usageQuery = Math.max(reached.usageQuery, percentile(times, 50));
    reached.usageScript = Math.max(reached.usageScript, slowest);
  }
  progress('rolling up');
  const rolled = await rollUp(server, seed.workspaceId, apiId, ids, other);
  rows.push([
    `roll-up of a day of ${number(used)} keys`,
    rolled.cost,
    `${number(rolled.seconds)} s in all`,
    number(rolled.slowest),
    quantiles(rolled.meanwhile),
  ]);
  reached.usageScript = Math.max(reached.usageScript, rolled.slowest);
  progressDone();
  const markdown = [
    table(
      [
        'question',
        'CPU ms, server and Redis',
        'ms, median and longest',
        'longest script, ms',
        'verification of another workspace, ms',
      ],
      rows,
    ),
    `An API of ${number(stored)} keys, of which ${number(used)} were used in every hour of ${days} days, ` +
      `${keysPerCustomer} of a customer, and today. The last column has p50, p99 and the longest of 200 verifications a ` +
      `second meanwhile; alone they took ${quantiles(alone)}. Each question is asked again and again for some seconds.`,
  ].join('\n\n');
  const kept = !options.quick && stored >= 1_000_000 && used >= 20_000 && days >= 90;
  report(
    { bench: 'usage', title: 'Usage of many keys', markdown, reached: kept ? reached : {}, raw: { rows } },
    { json: options.json, kept },
  );
}

function questions(apiId) {
  const end = today * dayMs;
  const before = (count, until = end) => ({ start: until - count * dayMs, end: until });
  const best = Math.max(...Array.from({ length: used }, (_, index) => perHour(index)));
  const ranked = (count) => (top) => {
    if (top.top.length !== 10 || top.top[0].count !== 24 * count * best) throw new Error('a ranking is wrong');
  };
  const all = Array.from({ length: used }, (_, index) => perHour(index)).reduce((sum, each) => sum + each, 0);
  const billed = (count, groups) => (rows) => {
    const sum = rows.reduce((credits, row) => credits + row.spentCredits, 0);
    if (rows.length !== groups || sum !== 24 * count * all) throw new Error('a bill is wrong');
  };
  const bill = { apiId, granularity: 'total', groupBy: ['externalId'], orderBy: 'spentCredits' };
  return [
    // The bounds of a period do not help with that of a day earlier or later, so each reads all keys.
    ...[1, 7, 30, days].map((count) => ({
      what: `top 10 keys of ${number(count)} days, for the first time`,
      operation: 'analytics.getTop',
      inputs: [end, end - dayMs].map((until) => ({ of: 'keys', apiId, ...before(count, until) })),
      check: ranked(count),
    })),
    {
      what: `top 10 keys of ${number(days)} days, again`,
      operation: 'analytics.getTop',
      inputs: [{ of: 'keys', apiId, ...before(days) }],
      check: ranked(days),
    },
    {
      what: 'top 10 keys of today, again',
      operation: 'analytics.getTop',
      inputs: [{ of: 'keys', apiId, start: end }],
      check: ({ top }) => {
        if (top.length !== 10 || top.some(({ count }) => count < 1)) throw new Error('the ranking of today is wrong');
      },
    },
    {
      what: `top 10 customers of ${number(days)} days, by credits, again`,
      operation: 'analytics.getTop',
      inputs: [{ of: 'identities', by: 'spentCredits', apiId, ...before(days) }],
      check: ({ top }) => {
        if (top.length !== 10) throw new Error('a ranking is wrong');
      },
    },
    {
      what: 'bill of 30 days by customer',
      operation: 'analytics.getVerifications',
      inputs: [{ ...bill, ...before(30) }],
      check: billed(30, Math.ceil(used / keysPerCustomer)),
    },
    {
      what: 'a customer, 30 days by day',
      operation: 'analytics.getVerifications',
      inputs: [{ apiId, externalId: customerOf(0), granularity: 'day', groupBy: [], ...before(30) }],
      check: (rows) => {
        if (rows.length !== 30) throw new Error('the days of a customer are wrong');
      },
    },
  ];
}

/** The processor time of a question without the neighbour, the mean of three. */
async function costAlone(server, question) {
  const times = 3;
  const { serverCpu, redisCpu } = await costOf(server, async () => {
    for (let time = 0; time < times; time++) await question();
  });
  return `${number((serverCpu / times) * 1000)}, ${number((redisCpu / times) * 1000)}`;
}

/** Repeats a question for some seconds, beside the neighbour. */
async function repeat(redis, other, question) {
  await redis.client.slowlog('RESET');
  const times = [];
  let isOver = false;
  const running = other(60, () => isOver);
  const until = performance.now() + (options.quick ? 500 : 5000);
  while (performance.now() < until) {
    const at = performance.now();
    await question();
    times.push(performance.now() - at);
  }
  isOver = true;
  const meanwhile = await running;
  return { times, slowest: await slowestScript(redis), meanwhile };
}

/** Makes the logs of yesterday due, and waits until the server's sweeper has rolled them up. */
async function rollUp(server, workspaceId, apiId, ids, other) {
  const { redis } = server;
  const { client } = redis;
  const workspace = workspaceKey(workspaceId);
  const yesterday = today - 1;
  for (const [index, key24] of ids.entries()) {
    client.set(`${workspace}:uk:${key24}`, logOf(yesterday, perHour(index), customerOf(index))).catch(() => {});
    if (index % 500 === 499) await client.ping();
  }
  const member = `k${apiId.slice(-8)}:${yesterday}`;
  await client.slowlog('RESET');
  let isOver = false;
  const running = other(600, () => isOver);
  await client.hdel(`${workspace}:rolled`, member);
  await client.zadd(rollupQueueKey(workspace), 0, member);
  const begunAt = performance.now();
  const { serverCpu, redisCpu } = await costOf(server, async () => {
    while (Number(await client.hget(`${workspace}:rolled`, member)) < used) await delay(100);
  });
  const seconds = (performance.now() - begunAt) / 1000;
  isOver = true;
  const meanwhile = await running;
  if ((await client.exists(`${workspace}:uk:${ids[0]}`)) === 1) throw new Error('a log was not rolled up');
  const cost = `${number(serverCpu * 1000)}, ${number(redisCpu * 1000)}, with these verifications`;
  return { cost, seconds, slowest: await slowestScript(redis), meanwhile };
}

/** A log of the 24 hours of a day, as lua/include/usage.lua packs them. */
function logOf(day, each, externalId) {
  const external = Buffer.from(externalId);
  return Buffer.concat(
    Array.from({ length: 24 }, (_, hour) => {
      const entry = Buffer.alloc(4 + 1 + 4 + 7 + 1);
      entry.writeUInt32BE(24 * day + hour, 0);
      entry[4] = 1 + 2 ** spentPlace;
      entry.writeUInt32BE(each, 5);
      entry.writeUInt32BE(each, 12);
      entry[16] = external.length;
      return Buffer.concat([entry, external]);
    }),
  );
}

const milliseconds = (times) => `${number(percentile(times, 50))}, ${number(Math.max(...times))}`;
await run(measure);
