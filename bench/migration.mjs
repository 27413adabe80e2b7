// Measures the migration of stored data by a server that serves: seconds, the longest script, and the latency of
// verifications before and meanwhile, at a constant rate.

import { Agent, request } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { keyFixed } from '../dist/scripts/layout.js';
import { numbersOf, readOptions } from './support/options.mjs';
import { run, startRedis, startTollgate } from './support/processes.mjs';
import { number, progress, progressDone, report, table } from './support/results.mjs';
import { keyString, openSeed } from './support/seed.mjs';

const help = `npm run bench -- migration [options]
  --keys n       stored keys, 1000000 by default (takes some minutes and 1 GB)
  --rate n       verifications a second, 1000 by default
  --quick        small numbers, to see that the bench works
  --json         print the result as JSON on standard output`;
const options = readOptions(help, {
  keys: { type: 'string' },
  rate: { type: 'string' },
  quick: { type: 'boolean' },
  json: { type: 'boolean' },
});
const [stored] = numbersOf(options.keys, [options.quick ? 20_000 : 1_000_000], help);
const [rate] = numbersOf(options.rate, [1000], help);
const usedKeys = 1000;
const dayMs = 86_400_000;

async function measure() {
  const redis = await startRedis();
  await redis.client.client('SETNAME', 'bench');
  const seed = await openSeed(redis);
  progress('creating keys');
  const fieldsOf = (index) => (index % 2 === 0 ? { expires: Date.now() + (1 + (index % 365)) * dayMs } : {});
  const apiId = await seed.createApi({ count: stored, fieldsOf });
  const { workspaceId, rootKey } = seed;
  await seed.close();
  await asVersion4(redis.client, workspaceId, apiId);
  const expiring = Math.ceil(stored / 2);

  await redis.client.config('SET', 'slowlog-log-slower-than', '1000', 'slowlog-max-len', '100000');
  const server = await startTollgate({ redis, env: { LEASE_MS: '0' } });
  const load = startLoad(server.url, rootKey);
  progress('verifying before the migration');
  while (!(await redis.client.hexists('tg:data', 'checked'))) {
    if (load.tooks.length > 60 * rate) throw new Error('The migration does not begin.');
    await delay(20);
  }
  const before = load.tooks.splice(0).slice(rate);
  await redis.client.call('SLOWLOG', 'RESET');
  const startedAt = performance.now();
  progress('migrating');
  // The steps to the versions after 5 follow within milliseconds.
  while (Number(await redis.client.hget('tg:data', 'version')) < 5) await delay(20);
  const seconds = (performance.now() - startedAt) / 1000;
  const during = load.tooks.splice(0);
  const scripts = await redis.client.call('SLOWLOG', 'GET', '-1');
  await load.stop();
  progressDone();
  const indexed = await redis.client.zcard(`tg:{${workspaceId}}:ke:${apiId.slice(-8)}`);
  if (indexed !== expiring) throw new Error(`${indexed} keys are in the index, and ${expiring} expire.`);

  const steps = scripts.filter(isStep).map(([, , micros]) => micros / 1000);
  const longest = Math.max(0, ...steps);
  const above = [2, 5, 30].map((ms) => `${steps.filter((took) => took > ms).length} above ${ms} ms`);
  const [p50, p99] = [50, 99].map((part) => [percentile(before, part), percentile(during, part)]);
  const rows = [
    ['p50 of verifications, ms', ...p50.map(number)],
    ['p99 of verifications, ms', ...p99.map(number)],
  ];
  const markdown = [
    table(['', 'before', 'during the migration'], rows),
    `${number(stored)} keys, of which half expire, from data version 4 to 5: ${number(seconds)} s, the longest script ` +
      `${number(longest)} ms (${above.join(', ')}), ${rate} verifications a second, LEASE_MS=0.`,
  ].join('\n\n');
  const kept = !options.quick && stored >= 1_000_000;
  const reached = kept ? { migrationSeconds: seconds, migrationScript: longest, migrationP99: p99[1] / p99[0] } : {};
  report(
    { bench: 'migration', title: 'Migration of stored data', markdown, reached, raw: { seconds, longest, p50, p99 } },
    { json: options.json, kept },
  );
}

/** The keys as servers of version 4 and of earlier commits left them: without the index, a tenth with an old field. */
async function asVersion4(client, workspaceId, apiId) {
  progress('making them version 4');
  const workspace = `tg:{${workspaceId}}`;
  const script = `
    for index, member in ipairs(redis.call('ZRANGE', KEYS[1], ARGV[1], ARGV[1] + 999)) do
      if index % 10 == 0 then redis.call('HSET', KEYS[2] .. string.sub(member, 13), 'leases', string.rep('x', ${keyFixed.bytes})) end
    end`;
  const names = [`${workspace}:keys:${apiId.slice(-8)}`, `${workspace}:k:`];
  for (let from = 0; from < stored; from += 1000) await client.eval(script, 2, ...names, from);
  await client.unlink(`${workspace}:ke:${apiId.slice(-8)}`, `${workspace}:data`, 'tg:data');
  await client.set('tg:form', '4');
}

/** Scripts of the migration. */
const isStep = ([, , , words]) => /^tollgate_migrations_/.test(words[1]);

const percentile = (values, part) => values.toSorted((a, b) => a - b)[Math.floor((values.length * part) / 100)] ?? 0;

/** Verifications at a constant rate, without waiting for earlier ones. */
function startLoad(url, rootKey) {
  const agent = new Agent({ keepAlive: true, maxSockets: 16 });
  const tooks = [];
  let isOver = false;
  let failed = 0;
  const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
  const send = (index) => {
    const startedAt = performance.now();
    const sent = request(`${url}/v2/keys.verifyKey`, { agent, method: 'POST', headers });
    sent.on('error', () => failed++);
    sent.on('response', (response) => {
      if (response.statusCode !== 200) failed++;
      response.resume().on('end', () => tooks.push(performance.now() - startedAt));
    });
    sent.end(JSON.stringify({ key: keyString((index * 7919) % usedKeys) }));
  };
  const running = (async () => {
    const startedAt = performance.now();
    for (let index = 0; !isOver; await delay(1)) {
      while (index < ((performance.now() - startedAt) * rate) / 1000) send(index++);
    }
  })();
  return {
    tooks,
    async stop() {
      isOver = true;
      await running;
      agent.destroy();
      if (failed > 0) throw new Error(`${failed} verifications failed.`);
    },
  };
}

run(measure);
