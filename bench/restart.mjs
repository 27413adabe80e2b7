// Measures what the append-only file costs: its bytes per verification, a rewrite and its fork, and how long Redis loads
// it when it starts, after a rewrite and with many verifications behind it.
import { setTimeout as delay } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { startEmbedded } from '../dist/redis/embedded.js';
import { generator, openLoad } from './support/load.mjs';
import { numbersOf, readOptions } from './support/options.mjs';
import { atEnd, run, startTollgate, temporaryDir } from './support/processes.mjs';
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
  const first = await open(dataDir);
  const seed = await openSeed(first);
  progress(`${number(keyCount)} keys`);
  await seed.createApi({ count: keyCount, fieldsOf });
  await seed.close();
  progress('rewriting');
  const rewrite = await rewriteFile(first);
  await first.stop();
  progress('loading');
  const second = await open(dataDir);

  const server = await startTollgate({ redis: second, env: { LEASE_MS: '0' } });
  // So that the file is not rewritten by itself.
  await second.client.config('SET', 'auto-aof-rewrite-percentage', 0);
  const bodies = verifyBodies(keyCount);
  const load = openLoad({ url: server.url, path: '/v2/keys.verifyKey', rootKey: seed.rootKey, bodies });
  progress(`${seconds} s of verifications`);
  const before = await sizeOf(second);
  const verified = await load({ connections: 64, seconds });
  await delay(2000);
  const after = await sizeOf(second);
  process.kill(server.pid, 'SIGTERM');
  await delay(1000);
  await second.stop();
  progress('loading');
  const third = await open(dataDir);
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
    `\`LEASE_MS=0\`, ${seconds} s. The file is rewritten only when it is said. Load: ${generator}.`;
  report(
    { bench: 'restart', title: 'Restart of Redis', markdown: `${table(['', ''], rows)}\n\n${note}`, raw: rows },
    { json: options.json, kept: !options.quick && keyCount === 1_000_000 },
  );
}

/** Starts Redis on a data directory. `startMs` is the time until it replied, which includes loading. */
async function open(dataDir) {
  const startedAt = performance.now();
  const embedded = await startEmbedded({ dataDir, onEvent: () => {} });
  const startMs = performance.now() - startedAt;
  const client = new Redis({ path: embedded.url.slice('unix:'.length) });
  client.on('error', () => {});
  const pid = Number(/process_id:(\d+)/.exec(await client.info('server'))[1]);
  let isStopped = false;
  const stop = async () => {
    if (isStopped) return;
    isStopped = true;
    client.disconnect();
    await embedded.stop();
  };
  atEnd(stop);
  return { url: embedded.url, client, pid, startMs, stop };
}

const fieldIn = (info, field) => Number(new RegExp(`^${field}:(\\d+)`, 'm').exec(info)?.[1] ?? Number.NaN);

const sizeOf = async ({ client }) => fieldIn(await client.info('persistence'), 'aof_current_size');

async function rewriteFile({ client }) {
  const isIdle = async () => {
    const info = await client.info('persistence');
    return fieldIn(info, 'aof_rewrite_in_progress') + fieldIn(info, 'aof_rewrite_scheduled') === 0;
  };
  while (!(await isIdle())) await delay(100);
  const startedAt = performance.now();
  await client.bgrewriteaof();
  do await delay(20);
  while (!(await isIdle()));
  const ms = performance.now() - startedAt;
  const forkMs = fieldIn(await client.info('stats'), 'latest_fork_usec') / 1000;
  return { ms, forkMs, bytes: await sizeOf({ client }) };
}

await run(measure);
