// Measures the bytes of Redis per key, by differences of its used_memory. They include all records and indexes, but no
// buffers of connections and of the append-only file. Also measures requests/s with few keys and with many, without and
// with leases. Does not measure the memory of the server.
import { setTimeout as delay } from 'node:timers/promises';
import { generator, generatorNote, openLoad } from './support/load.mjs';
import { numbersOf, readOptions } from './support/options.mjs';
import { costOf, run, startRedis, startTollgate, untilNoRewrite } from './support/processes.mjs';
import { median, number, progress, progressDone, report, table } from './support/results.mjs';
import { openSeed, verifyBodies } from './support/seed.mjs';
import { histories, historyBytes } from './support/usageHistory.mjs';
import { credits, limit, meta, name } from './targets/typicalKey.mjs';

const help = `npm run bench -- memory [options]
  --keys n       the large number of keys, 1000000 by default (takes some minutes and 2 GB)
  --rounds n     rounds of the load, 5 by default
  --seconds s    seconds of each run of the load, 5 by default
  --history      only the bytes of usage counts
  --quick        small numbers, to see that the bench works
  --json         print the result as JSON on standard output`;
const options = readOptions(help, {
  keys: { type: 'string' },
  rounds: { type: 'string' },
  seconds: { type: 'string' },
  history: { type: 'boolean' },
  quick: { type: 'boolean' },
  json: { type: 'boolean' },
});
const few = 1000;
const [many] = numbersOf(options.keys, [options.quick ? 5000 : 1_000_000], help);
const [rounds] = numbersOf(options.rounds, [options.quick ? 1 : 5], help);
const [seconds] = numbersOf(options.seconds, [options.quick ? 1 : 5], help);
/** The number of keys if only bytes are measured. With more keys the figure does not change. */
const enough = Math.min(many, 100_000);

const metaText = JSON.stringify(meta);
const typical = { name, meta: metaText, remaining: credits, ratelimits: [limit] };
const typicalOfOne = (index) => ({ ...typical, externalId: `user_${index}` });
const kinds = [
  { kind: 'bare: only a key string', counts: [few, enough], fieldsOf: () => ({}) },
  { kind: 'typical without an identity', counts: [few, enough], fieldsOf: () => typical },
  {
    kind: 'typical, ten keys per identity',
    counts: [few, enough],
    fieldsOf: (index) => ({ ...typical, externalId: `user_${Math.floor(index / 10)}` }),
    goal: 'bytesSharedIdentity',
  },
  // Last, as the load uses its keys.
  { kind: 'typical, one identity each', counts: [few, many], fieldsOf: typicalOfOne, goal: 'bytesOwnIdentity' },
];

async function measure() {
  if (options.history) {
    const markdown = await measureHistories();
    report({ bench: 'memory', title: 'Many keys', markdown, raw: markdown }, { json: options.json, kept: false });
    return;
  }
  const large = await startRedis();
  const rows = [];
  const bytes = {};
  let seed;
  for (const { kind, counts, fieldsOf, goal } of kinds) {
    for (const count of counts) {
      progress(`${kind}, ${number(count)} keys`);
      await large.client.flushall('SYNC');
      seed = await openSeed(large);
      const empty = await usedBytes(large);
      await seed.createApi({ count, fieldsOf });
      const created = ((await usedBytes(large)) - empty) / count;
      await verifyEach(seed, count);
      const verified = ((await usedBytes(large)) - empty) / count;
      await seed.close();
      rows.push([kind, number(count), number(created), number(verified)]);
      if (goal) bytes[goal] = verified;
    }
  }
  const speed = await compareSpeed(large, seed.rootKey);
  const usage = await measureHistories();
  progressDone();

  const markdown = [
    table(['key', 'keys', 'bytes per key, created', 'verified once'], rows),
    'A typical key has a name, 60 bytes of metadata, credits and one limit. Its window and its usage counts are stored in ' +
      'it from the first verification on.',
    usage,
    speed.markdown,
  ].join('\n\n');
  const kept = !options.quick && many === 1_000_000;
  const reached = kept ? { ...bytes, ...speed.reached } : {};
  report(
    { bench: 'memory', title: 'Many keys', markdown, reached, raw: { rows, speed } },
    { json: options.json, kept },
  );
}

/** The bytes of usage counts of a key. */
async function measureHistories() {
  const redis = await startRedis();
  const periods = options.quick ? [1, 3] : [30, 90];
  const count = options.quick ? 20 : 100;
  const rows = [];
  for (const history of histories) {
    const bytes = [];
    for (const days of periods) {
      progress(`usage: ${history.what}, ${days} days`);
      bytes.push(number(await historyBytes(redis, history, { count, days, usedBytes })));
    }
    rows.push([history.what, ...bytes]);
  }
  progressDone();
  const head = ['used in every hour', ...periods.map((days) => `bytes per key, ${days} days`)];
  const note =
    `Usage counts of a key with the default \`USAGE_HOURLY_DAYS\`, all indexes included; ${count} keys, verified by the real ` +
    'scripts under a clock that is set from hour to hour.';
  return `${table(head, rows)}\n\n${note}`;
}

async function verifyEach(seed, count) {
  for (let from = 0; from < count; from += 500) {
    await seed.verify(Array.from({ length: Math.min(500, count - from) }, (_, offset) => from + offset));
  }
}

/** The memory of Redis without its buffers, once it rewrites no file. */
async function usedBytes(redis) {
  const pauseMs = options.quick ? 100 : 500;
  await delay(pauseMs);
  const info = await untilNoRewrite(redis, pauseMs);
  return info('used_memory') - info('mem_clients_normal') - info('mem_aof_buffer');
}

async function compareSpeed(large, largeRootKey) {
  const small = await startRedis();
  const seed = await openSeed(small);
  await seed.createApi({ count: few, fieldsOf: typicalOfOne });
  await seed.close();

  const loads = await openLoads({ small, smallRootKey: seed.rootKey, large, largeRootKey });
  for (let round = 1; round <= rounds; round++) {
    for (const { what, server, load, runs } of loads) {
      progress(`round ${round} of ${rounds}, ${what}`);
      const result = await costOf(server, () => load({ connections: 64, seconds }));
      if (result.refused + result.broken > 0) throw new Error(`${result.refused + result.broken} requests failed`);
      const { requests, serverCpu, redisCpu } = result;
      runs.push({ perSecond: requests / result.seconds, server: serverCpu / requests, redis: redisCpu / requests });
    }
  }
  return speedOf(loads);
}

/** Each load runs without leases, and then with them. */
async function openLoads({ small, smallRootKey, large, largeRootKey }) {
  const settings = [{ LEASE_MS: '0' }, { LEASE_MS: '100', LEASE_CREDITS: '1' }];
  const serversOf = (redis) => Promise.all(settings.map((env) => startTollgate({ redis, env })));
  const onSmall = { servers: await serversOf(small), rootKey: smallRootKey };
  const onLarge = { servers: await serversOf(large), rootKey: largeRootKey };
  const kinds = [
    { what: `${number(few)} keys`, ...onSmall, count: few },
    { what: `${number(many)} keys`, ...onLarge, count: many },
    { what: `${number(few)} of ${number(many)} keys`, ...onLarge, count: few },
    { what: `${number(many)} keys, skewed`, ...onLarge, count: many, skewed: true },
  ];
  const loads = kinds.flatMap(({ servers, rootKey, count, skewed, what }) =>
    servers.map((server, index) => ({
      what,
      server,
      leaseMs: settings[index].LEASE_MS,
      load: openLoad({ url: server.url, path: '/v2/keys.verifyKey', rootKey, bodies: verifyBodies(count, skewed) }),
      runs: [],
    })),
  );
  for (const { load } of options.quick ? [] : loads) await load({ connections: 64, seconds: 2 });
  return loads;
}

/** The median of the rounds' ratios. */
const ratioOf = (load, base) => median(load.runs.map((each, round) => each.perSecond / base.runs[round].perSecond));

function speedOf(loads) {
  const plain = loads.filter(({ leaseMs }) => leaseMs === '0');
  const plainOf = ({ what }) => plain.find((each) => each.what === what);
  const rows = loads.map((each) => [
    each.what,
    each.leaseMs,
    number(median(each.runs.map(({ perSecond }) => perSecond))),
    number(median(each.runs.map(({ server }) => server * 1e6))),
    number(median(each.runs.map(({ redis }) => redis * 1e6))),
    number(ratioOf(each, each.leaseMs === '0' ? loads[0] : loads[1])),
    each.leaseMs === '0' ? '–' : number(ratioOf(each, plainOf(each))),
  ]);
  const head = [
    'requests for',
    'LEASE_MS',
    'requests/s',
    'server CPU µs',
    'Redis CPU µs',
    `relative to ${number(few)} keys`,
    '/ LEASE_MS=0',
  ];
  const note =
    `keys.verifyKey, 64 connections, medians of ${rounds} interleaved rounds of ${seconds} s. Every key is equally frequent; ` +
    'skewed: the n-th most frequent key has 1/n of the requests of the first. With leases also `LEASE_CREDITS=1`. ' +
    `Load: ${generator}${generatorNote}.`;
  const [, manyKeysAtRandom, manyKeysStored, manyKeysSkewed] = plain.map((each) => ratioOf(each, plain[0]));
  const leasesOfColdKeys = ratioOf(loads[3], loads[2]);
  return {
    reached: { manyKeysStored, manyKeysSkewed, manyKeysAtRandom, leasesOfColdKeys },
    rows,
    markdown: `${table(head, rows)}\n\n${note}`,
  };
}

await run(measure);
