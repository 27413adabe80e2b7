// Measures lists of the keys of a large API that expire: pages of keys.listKeys in order of expiry and
// keys.getAttention, the longest script of each, the memory of the index, and what a change of an expiry costs Redis.
// Calls the pipeline directly, without a socket.

import { pino } from 'pino';
import { cursorAfter } from '../dist/domain/cursor.js';
import { digestOf, unpackId } from '../dist/domain/keyString.js';
import { createPipeline } from '../dist/http/pipeline.js';
import { operations } from '../dist/operations/index.js';
import { listOf } from '../dist/operations/lists.js';
import { keyFixed } from '../dist/scripts/layout.js';
import { numbersOf, readOptions } from './support/options.mjs';
import { cpuSecondsOf, run, startRedis } from './support/processes.mjs';
import { number, progress, progressDone, report, table } from './support/results.mjs';
import { keyString, openSeed } from './support/seed.mjs';

const help = `npm run bench -- expiring [options]
  --keys n       keys of the API, 1000000 by default (takes some minutes and 1 GB)
  --rounds n     repetitions of each question, 100 by default
  --quick        small numbers, to see that the bench works
  --json         print the result as JSON on standard output`;
const options = readOptions(help, {
  keys: { type: 'string' },
  rounds: { type: 'string' },
  quick: { type: 'boolean' },
  json: { type: 'boolean' },
});
const [stored] = numbersOf(options.keys, [options.quick ? 10_000 : 1_000_000], help);
const [rounds] = numbersOf(options.rounds, [options.quick ? 5 : 100], help);
const changes = options.quick ? 200 : 5000;

const dayMs = 86_400_000;
const start = Date.now();
/** Spread over a year, so that the order of expiry is another than that of creation; one of ten at the same time. */
const expiresOf = (index) => start + (index % 100 < 10 ? 100 * dayMs : ((index * 7919) % 365) * dayMs + index);
const expiresBefore = start + 400 * dayMs;

async function measure() {
  const redis = await startRedis();
  const seed = await openSeed(redis, { dataVersion: { current: 5 } });
  const ask = asking(seed);
  progress('creating keys');
  const fieldsOf = (index) => (index % 10 === 0 ? { expires: expiresOf(index / 10) } : {});
  const apiId = await seed.createApi({ count: stored, fieldsOf });
  await redis.client.config('SET', 'slowlog-log-slower-than', '1000', 'slowlog-max-len', '1000');
  const rows = [];
  const memory = [];
  const reached = { expiringList: 0, expiringScript: 0 };
  for (const share of ['10 %', '100 %']) {
    if (share === '100 %') await expireAll(redis, seed.workspaceId, apiId);
    const index = `tg:{${seed.workspaceId}}:ke:${apiId.slice(-8)}`;
    const count = await redis.client.zcard(index);
    memory.push(`${number((await redis.client.call('MEMORY', 'USAGE', index, 'SAMPLES', '0')) / count)} (${share})`);
    for (const { what, operation, input, isListed } of await questions(redis, index, apiId, count)) {
      progress(`${share}: ${what}`);
      const { times, cpu, slowest } = await repeat(redis, () => ask(operation, input));
      const quantiles = [50, 95].map((part) => percentile(times, part));
      rows.push([share, what, ...[...quantiles, ...cpu, slowest].map(number)]);
      if (!isListed) continue;
      reached.expiringList = Math.max(reached.expiringList, percentile(times, 95));
      reached.expiringScript = Math.max(reached.expiringScript, slowest);
    }
  }
  progress('changing keys');
  const costs = await costOfChanges(redis, seed, apiId);
  await seed.close();
  progressDone();
  const markdown = [
    table(
      ['keys that expire', 'question', 'p50, ms', 'p95, ms', 'CPU ms, server', 'Redis', 'longest script, ms'],
      rows,
    ),
    table(['change', 'CPU µs of Redis, without an expiry', 'with an expiry'], costs),
    `An API of ${number(stored)} keys. The index takes ${memory.join(' and ')} bytes per key in it. “later” is in the ` +
      'middle of the list, among keys that expire at the same time. Scripts below 1 ms are 0.',
  ].join('\n\n');
  const kept = !options.quick && stored >= 1_000_000;
  report(
    { bench: 'expiring', title: 'Keys that expire', markdown, reached: kept ? reached : {}, raw: { rows, costs } },
    { json: options.json, kept },
  );
}

/** Calls of operations with the first root key, which must succeed. */
function asking({ store, rootKey }) {
  const respond = createPipeline(operations, { store, log: pino({ level: 'silent' }), metaBytesMax: 10_240 });
  return async (operation, input) => {
    const { status, body } = await respond({
      method: 'POST',
      path: `/v2/${operation}`,
      hasQuery: false,
      authorization: `Bearer ${rootKey}`,
      contentType: 'application/json',
      accept: '',
      requestId: 'req_bench',
      body: Buffer.from(JSON.stringify(input)),
    });
    if (status !== 200) throw new Error(`${operation}: ${status} ${body}`);
    return JSON.parse(body);
  };
}

/** Gives all keys of the API an expiry, in the states and in the index. */
async function expireAll({ client }, workspaceId, apiId) {
  progress('giving all keys an expiry');
  const workspace = `tg:{${workspaceId}}`;
  const api8 = apiId.slice(-8);
  const script = `
    local members = redis.call('ZRANGE', KEYS[1], ARGV[1], ARGV[1] + #ARGV - 2)
    for index, member in ipairs(members) do
      local record, expires = KEYS[3] .. string.sub(member, 13), tonumber(ARGV[index + 1])
      local packed = redis.call('HGET', record, 'state')
      local at = ${keyFixed.at.expires}
      redis.call('HSET', record, 'state', string.sub(packed, 1, at) .. struct.pack('>I6', expires) .. string.sub(packed, at + 7))
      redis.call('ZADD', KEYS[2], expires, string.sub(member, 1, 12))
    end`;
  const names = [`${workspace}:keys:${api8}`, `${workspace}:ke:${api8}`, `${workspace}:k:`];
  for (let from = 0; from < stored; from += 1000) {
    const expiries = Array.from({ length: Math.min(1000, stored - from) }, (_, offset) => expiresOf(from + offset));
    await client.eval(script, 3, ...names, from, ...expiries);
  }
}

async function questions({ client }, index, apiId, count) {
  // Among keys that expire at the same time, the one in the middle of these.
  const same = start + 100 * dayMs;
  const first = await client.zcount(index, '-inf', `(${same}`);
  const among = await client.zcount(index, same, same);
  const [member] = await client.zrangeBuffer(index, first + (among >> 1), first + (among >> 1));
  const filter = { apiId, expiresBefore };
  const cursor = cursorAfter(listOf('found', filter), `${same}_key_${unpackId(member)}${apiId.slice(-8)}`);
  const list = (what, input) => ({ what, operation: 'keys.listKeys', input: { limit: 100, ...input }, isListed: true });
  const attention = { creditsBelow: 100, unusedSince: start - 90 * dayMs, rerolledInUse: true };
  return [
    list('listKeys, first page', filter),
    list('listKeys, later', { ...filter, cursor }),
    list('listKeys, last to expire first', { ...filter, order: 'desc' }),
    list('listKeys, all APIs', { expiresBefore }),
    list('listKeys, by start as well', { ...filter, start: 'nothing' }),
    {
      ...list('listKeys, a text that no key has', { ...filter, search: 'no such text' }),
      isListed: false,
    },
    { what: 'getAttention, expiresBefore', operation: 'keys.getAttention', input: { expiresBefore }, isListed: true },
    {
      what: 'getAttention, all lists',
      operation: 'keys.getAttention',
      input: { expiresBefore, ...attention },
      isListed: true,
    },
    { what: 'getAttention, all but expiresBefore', operation: 'keys.getAttention', input: attention },
  ].map((question) => ({ ...question, count }));
}

async function repeat({ client, pid }, question) {
  await question();
  await client.call('SLOWLOG', 'RESET');
  const times = [];
  const used = () => [process.pid, pid].map((each) => cpuSecondsOf([each]));
  const before = used();
  for (let round = 0; round < rounds; round++) {
    const startedAt = performance.now();
    await question();
    times.push(performance.now() - startedAt);
  }
  const cpu = used().map((seconds, at) => ((seconds - before[at]) * 1000) / rounds);
  const slow = await client.call('SLOWLOG', 'GET', '-1');
  return { times, cpu, slowest: Math.max(0, ...slow.map(([, , micros]) => micros)) / 1000 };
}

const percentile = (times, share) =>
  times.toSorted((a, b) => a - b)[Math.min(times.length - 1, Math.floor((times.length * share) / 100))];

/** Redis's time of createKey and updateKey, each without and with an expiry. */
async function costOfChanges({ pid }, { store, workspaceId }, apiId) {
  const actor = { rootKeyId: 'bench', operation: 'bench', requestId: '' };
  let next = stored;
  const ids = [];
  const create = async (fields) => {
    const keys = [{ digest: digestOf(keyString(next++)), start: 'bench', byteLength: 16, ...fields }];
    const { created } = await store.keys.create(workspaceId, { apiId, keys, mayCreatePermissions: true }, actor);
    ids.push(created[0]);
  };
  const update = (at, fields) => store.keys.update(workspaceId, ids[at], fields, true, actor);
  const expires = (at) => start + ((at * 7919) % 365) * dayMs;
  const timed = async (change) => {
    const before = cpuSecondsOf([pid]);
    for (let at = 0; at < changes; at++) await change(at);
    return ((cpuSecondsOf([pid]) - before) * 1e6) / changes;
  };
  await timed(() => create({}));
  const created = [await timed(() => create({})), await timed((at) => create({ expires: expires(at) }))];
  const enabled = await timed((at) => update(at, { enabled: at % 2 === 0 }));
  const updated = await timed((at) => update(at, { expires: expires(at + 1) }));
  return [
    ['createKey', ...created.map(number)],
    ['updateKey (enabled, or expires)', number(enabled), number(updated)],
  ];
}

await run(measure);
