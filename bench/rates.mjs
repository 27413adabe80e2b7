// Measures from which rate of a key on its leases pay: the processor time of server and Redis per verification with
// leases and without, for keys that are each verified at a fixed rate, and the part that was decided by leases.
import { Agent, request } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { numbersOf, readOptions } from './support/options.mjs';
import { costOf, run, startRedis, startTollgate } from './support/processes.mjs';
import { median, number, progress, progressDone, report, table } from './support/results.mjs';
import { openSeed } from './support/seed.mjs';
import { limit, meta, name } from './targets/typicalKey.mjs';

const help = `npm run bench -- rates [options]
  --rates a,b    verifications a second of each key, 1 to 1000 by default
  --total n      verifications a second of all keys, 4000 by default
  --seconds s    seconds of each run, 4 by default
  --rounds n     alternating rounds of each rate, 3 by default
  --quick        a short run, to see that the bench works
  --json         print the result, with every run, as JSON on standard output`;
const options = readOptions(help, {
  rates: { type: 'string' },
  total: { type: 'string' },
  seconds: { type: 'string' },
  rounds: { type: 'string' },
  quick: { type: 'boolean' },
  json: { type: 'boolean' },
});
const rates = numbersOf(options.rates, options.quick ? [10, 1000] : [1, 2, 5, 10, 20, 40, 100, 300, 1000], help);
const [total] = numbersOf(options.total, [options.quick ? 1000 : 4000], help);
const [seconds] = numbersOf(options.seconds, [options.quick ? 1 : 4], help);
const [rounds] = numbersOf(options.rounds, [options.quick ? 1 : 3], help);

const agent = new Agent({ keepAlive: true, maxSockets: 64 });

function post({ url, rootKey }, operation, input) {
  const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
  return new Promise((resolve, reject) => {
    const sent = request(`${url}/v2/${operation}`, { method: 'POST', headers, agent }, (response) => {
      let text = '';
      response.on('data', (chunk) => (text += chunk));
      response.on('end', () =>
        response.statusCode === 200 ? resolve(JSON.parse(text).data) : reject(new Error(`${operation}: ${text}`)),
      );
    });
    sent.on('error', reject);
    sent.end(JSON.stringify(input));
  });
}

async function localDecisions({ url }) {
  const text = await (await fetch(`${url}/metrics`)).text();
  return [...text.matchAll(/^tollgate_local_decisions_total\S* (\d+)/gm)].reduce((sum, [, count]) => sum + +count, 0);
}

/** A server with keys that have a limit. */
async function open(env) {
  const redis = await startRedis();
  const { rootKey, close } = await openSeed(redis);
  await close();
  const server = { ...(await startTollgate({ redis, env })), rootKey, keys: [] };
  const { apiId } = await post(server, 'apis.createApi', { name: 'bench' });
  const most = Math.round(total / Math.min(...rates));
  while (server.keys.length < most) {
    const created = Array.from({ length: 50 }, () =>
      post(server, 'keys.createKey', { apiId, name, meta, ratelimits: [limit] }),
    );
    for (const { key } of await Promise.all(created)) server.keys.push(key);
  }
  return server;
}

/** Verifies `count` keys, each at random times, `total` times a second for all. */
async function load(server, count, duration) {
  const startedAt = performance.now();
  const wanted = Math.round(total * duration);
  let [sent, failed] = [0, 0];
  const waiting = new Set();
  while (sent < wanted) {
    const due = Math.min(wanted, Math.floor(((performance.now() - startedAt) / 1000) * total) + 1);
    for (; sent < due; sent++) {
      const key = server.keys[Math.floor(Math.random() * count)];
      const verified = post(server, 'keys.verifyKey', { key }).then(
        ({ valid }) => valid || failed++,
        () => failed++,
      );
      waiting.add(verified);
      verified.finally(() => waiting.delete(verified));
    }
    await delay(1);
  }
  await Promise.all(waiting);
  if (failed > 0) throw new Error(`${failed} verifications failed`);
  return { requests: wanted };
}

async function measureOne(server, count) {
  await load(server, count, Math.min(seconds, 2));
  const before = await localDecisions(server);
  const { requests, serverCpu, redisCpu, othersCores } = await costOf(server, () => load(server, count, seconds));
  const micros = (cpu) => (cpu / requests) * 1e6;
  const local = ((await localDecisions(server)) - before) / requests;
  return { server: micros(serverCpu), redis: micros(redisCpu), both: micros(serverCpu + redisCpu), local, othersCores };
}

async function measure() {
  const servers = { none: await open({ LEASE_MS: '0' }), leases: await open({}) };
  // Data gets its version some seconds after the first start; longer leases wait for it.
  await delay(options.quick ? 0 : 5000);
  const measured = [];
  for (const rate of rates) {
    const runs = { none: [], leases: [] };
    for (let round = 1; round <= rounds; round++) {
      progress(`${rate}/s each, round ${round} of ${rounds}`);
      const order = round % 2 === 0 ? ['leases', 'none'] : ['none', 'leases'];
      for (const of of order) runs[of].push(await measureOne(servers[of], Math.max(1, Math.round(total / rate))));
    }
    measured.push({ rate, runs });
  }
  progressDone();
  const of = (runs, figure) => median(runs.map((one) => one[figure]));
  const ratios = measured.map(({ runs }) => median(runs.leases.map(({ both }, round) => both / runs.none[round].both)));
  const rows = measured.map(({ rate, runs: { none, leases } }, index) => [
    number(rate),
    number(Math.max(1, Math.round(total / rate))),
    ...['server', 'redis'].flatMap((figure) => [number(of(none, figure)), number(of(leases, figure))]),
    number(ratios[index]),
    `${number(100 * of(leases, 'local'))} %`,
  ]);
  const head = ['verifications/s of a key', 'keys', 'server, LEASE_MS=0', 'with leases', 'Redis, LEASE_MS=0'];
  const markdown = [
    table([...head, 'with leases', 'both, with / without', 'decided by leases'], rows),
    `Processor time in µs per verification of keys with a limit, ${number(total)}/s for all keys; medians of ${rounds} alternating rounds of ${seconds} s.`,
  ].join('\n\n');
  const isKept = !options.quick && options.rates === undefined;
  report(
    {
      bench: 'rates',
      title: 'From which rate leases pay',
      markdown,
      reached: isKept ? { ratesCost: Math.max(...ratios) } : {},
      raw: measured,
    },
    { json: options.json, kept: isKept },
  );
}

await run(measure);
