// Measures what the append-only file costs: its bytes per verification, a rewrite and its fork, and how long Redis loads
// it when it starts, after a rewrite and with many verifications behind it.
import { setTimeout as delay } from 'node:timers/promises';
import { generator, openLoad } from './support/load.mjs';
import { numbersOf, readOptions } from './support/options.mjs';
import { infoOf, run, startRedis, startTollgate, temporaryDir, untilNoRewrite } from './support/processes.mjs';
import { number, progress, progressDone, report, table } from './support/results.mjs';
import { openSeed, verifyBodies } from './support/seed.mjs';
import { credits, limit, meta, name } from './targets/typicalKey.mjs';

const help = `npm run bench -- restart [options]
  --keys n       keys, 1000000 by default (takes some minutes and 2 GB)
  --seconds s    seconds of load before the last start, 60 by default
  --quick        small numbers, to see that the bench works
  --json         print the result as JSON on standard output`;
const options = readOptions(help, {
  keys: { type: 'string' },
  seconds: { type: 'string' },
  quick: { type: 'boolean' },
  json: { type: 'boolean' },
});
const [keyCount] = numbersOf(options.keys, [options.quick ? 2000 : 1_000_000], help);
const [seconds] = numbersOf(options.seconds, [options.quick ? 1 : 60], help);
const megabyte = 1024 * 1024;

const fieldsOf = (index) => ({
  name,
  meta: JSON.stringify(meta),
  remaining: credits,
  ratelimits: [limit],
  externalId: `user_${Math.floor(index / 3)}`,
});

async function measure() {
  const dataDir = temporaryDir();
  const first = await startRedis(dataDir);
  const seed = await openSeed(first);
  progress(`${number(keyCount)} keys`);
  await seed.createApi({ count: keyCount, fieldsOf });
  await seed.close();
  progress('rewriting');
  const rewrite = await rewriteFile(first);
  await first.stop();
  progress('loading');
  const second = await startRedis(dataDir);

  const server = await startTollgate({ redis: second, env: { LEASE_MS: '0' } });
  // Redis does not rewrite the file by itself.
  await second.client.config('SET', 'auto-aof-rewrite-percentage', 0);
  const bodies = verifyBodies(keyCount);
  const load = openLoad({ url: server.url, path: '/v2/keys.verifyKey', rootKey: seed.rootKey, bodies });
  progress(`${seconds} s of verifications`);
  const before = await sizeOf(second);
  const verified = await load({ connections: 64, seconds });
  await delay(2000);
  const after = await sizeOf(second);
  await server.stop();
  await second.stop();
  progress('loading');
  const third = await startRedis(dataDir);
  const calls = verified.requests / 1e6;
  progressDone();

  const rows = [
    ['file after a rewrite, MB', number(rewrite.bytes / megabyte)],
    ['rewrite, s', number(rewrite.ms / 1000)],
    ['its fork, in which Redis stops, ms', number(rewrite.forkMs)],
    ['start of Redis after it, s', number(second.startMs / 1000)],
    ['bytes of the file per verification', number((after - before) / verified.requests)],
    [`start of Redis, ${number(calls)} million verifications later, s`, number(third.startMs / 1000)],
    ['seconds per million verifications', number((third.startMs - second.startMs) / 1000 / calls)],
  ];
  const note =
    `${number(keyCount)} typical keys, three of each identity; keys.verifyKey of all of them, uniform, 64 connections, ` +
    `\`LEASE_MS=0\`, ${seconds} s. The file is rewritten only before the first of these starts. Load: ${generator}.`;
  report(
    { bench: 'restart', title: 'Restart of Redis', markdown: `${table(['', ''], rows)}\n\n${note}`, raw: rows },
    { json: options.json, kept: !options.quick && keyCount === 1_000_000 },
  );
}

const sizeOf = async (redis) => (await infoOf(redis))('aof_current_size');

async function rewriteFile(redis) {
  await untilNoRewrite(redis, 100);
  const startedAt = performance.now();
  await redis.client.bgrewriteaof();
  const info = await untilNoRewrite(redis, 20);
  const ms = performance.now() - startedAt;
  return { ms, forkMs: info('latest_fork_usec') / 1000, bytes: info('aof_current_size') };
}

await run(measure);
