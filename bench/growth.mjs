// Measures the processor time of Redis per verification while one number grows: keys of an API, keys of an identity,
// limits or permissions of a key, verifications in a call. Calls the store directly, without HTTP.

import { parsePermissionQuery } from '../dist/domain/permissionQuery.js';
import { numbersOf, readOptions } from './support/options.mjs';
import { costOf, run, startRedis } from './support/processes.mjs';
import { median, number, progress, progressDone, report, table } from './support/results.mjs';
import { openSeed } from './support/seed.mjs';
import { credits, limit, meta, name } from './targets/typicalKey.mjs';

const help = `npm run bench -- growth [options]
  --rounds n     number of interleaved rounds, 5 by default
  --seconds s    seconds of each figure in a round, 1 by default
  --quick        small numbers, to see that the bench works
  --json         print the result as JSON on standard output`;
const options = readOptions(help, {
  rounds: { type: 'string' },
  seconds: { type: 'string' },
  quick: { type: 'boolean' },
  json: { type: 'boolean' },
});
const [rounds] = numbersOf(options.rounds, [options.quick ? 1 : 5], help);
const [seconds] = numbersOf(options.seconds, [1], help);
const runSeconds = options.quick ? 0.1 : seconds;
const shrink = options.quick ? 100 : 1;

const typical = { name, meta: JSON.stringify(meta), remaining: credits, ratelimits: [limit] };
const manyOf = (count, make) => Array.from({ length: count }, (_, index) => make(index));
const limits = (count) => manyOf(count, (index) => ({ ...limit, name: `limit${index}` }));
const slugs = (count) => manyOf(count, (index) => `documents.${index}.read`);
const query = parsePermissionQuery('documents.1.read AND (documents.2.read OR admin)');
const user = (index) => `user_${index}`;

/**
 * Each point: the keys to create, and how they are verified. The default is the typical key, 32 verifications in a
 * call.
 */
const points = [
  ...[1000, 10_000, 100_000].map((count) => ({ of: 'keys of an API', value: count / shrink, count: count / shrink })),
  ...[1, 100, 10_000].map((each) => ({
    of: 'keys of an identity, which has a limit',
    value: each,
    count: 10_000 / shrink,
    identities: Math.max(1, 10_000 / shrink / each),
    fieldsOf: (index) => ({ ...typical, externalId: `${user(each)}_${Math.floor(index / each)}` }),
    identityOf: (index) => `${user(each)}_${index}`,
  })),
  ...[0, 1, 5, 20, 50].map((count) => ({
    of: 'limits of a key',
    value: count,
    fieldsOf: () => ({ ...typical, ratelimits: limits(count) }),
  })),
  ...[0, 10, 100, 1000].map((count) => ({
    of: count === 0 ? 'permissions of a key, no query' : 'permissions of a key, query of 3',
    value: count,
    fieldsOf: () => ({ ...typical, permissions: slugs(count) }),
    extras: count === 0 ? {} : { query },
  })),
  ...[1, 8, 32, 64].map((batch) => ({ of: 'verifications in a call', value: batch, batch })),
];

async function measure() {
  const redis = await startRedis();
  const seed = await openSeed(redis);
  let first = 0;
  for (const point of points) {
    progress(`making ${point.of}, ${point.value}`);
    Object.assign(point, { first, count: Math.ceil(point.count ?? 1000 / Math.min(shrink, 10)), runs: [] });
    first += point.count;
    for (let index = 0; index < (point.identities ?? 0); index++) {
      await seed.createIdentity(point.identityOf(index), [{ ...limit, name: 'shared' }]);
    }
    await seed.createApi({
      first: point.first,
      count: point.count,
      // Keys are numbered across all points; fieldsOf takes the number within the point.
      fieldsOf: (index) => point.fieldsOf?.(index - point.first) ?? typical,
    });
    // The first verification of a key sends its snapshot to the server.
    await verifyFor(seed, point, 0.1);
  }
  for (let round = 1; round <= rounds; round++) {
    for (const point of points) {
      progress(`round ${round} of ${rounds}, ${point.of}, ${point.value}`);
      const cost = await costOf({ pid: process.pid, redis }, () => verifyFor(seed, point, runSeconds));
      point.runs.push((cost.redisCpu / cost.verifications) * 1e6);
    }
  }
  await seed.close();
  progressDone();

  const rows = points.map(({ of, value, runs }) => [
    of,
    number(value),
    number(median(runs)),
    `${number(Math.min(...runs))} to ${number(Math.max(...runs))}`,
  ]);
  const markdown = [
    table(['number of', 'value', 'Redis CPU µs per verification', 'range'], rows),
    `Medians of ${rounds} interleaved rounds of ${runSeconds} s; random keys with credits and one limit, 32 in a call, ` +
      'unless the row has another value.',
  ].join('\n\n');
  report(
    { bench: 'growth', title: 'As things grow', markdown, raw: rows },
    { json: options.json, kept: !options.quick && rounds >= 3 },
  );
}

async function verifyFor(seed, { first, count, batch = 32, extras }, seconds) {
  const until = performance.now() + seconds * 1000;
  let verifications = 0;
  while (performance.now() < until) {
    await seed.verify(
      manyOf(batch, () => first + Math.floor(Math.random() * count)),
      extras,
    );
    verifications += batch;
  }
  return { verifications };
}

await run(measure);
