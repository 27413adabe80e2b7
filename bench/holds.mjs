// Measures what a hold and its settlement cost Redis, in verifications of the same key without a hold, over HTTP. The
// requests of the two are sent by the same client in turns, so that batches have the same size.
import { setTimeout as delay } from 'node:timers/promises';
import { numbersOf, readOptions } from './support/options.mjs';
import { costOf, run, startTollgate } from './support/processes.mjs';
import { median, number, progress, progressDone, report, table } from './support/results.mjs';
import { post } from './targets/index.mjs';
import { credits, limit, meta, name } from './targets/typicalKey.mjs';

const help = `npm run bench -- holds [options]
  --keys n       keys, 1000 by default
  --count n      requests of each kind in a round, 20000 by default
  --rounds n     rounds, 7 by default
  --quick        small numbers, to see that the bench works
  --json         print the result as JSON on standard output`;
const options = readOptions(help, {
  keys: { type: 'string' },
  count: { type: 'string' },
  rounds: { type: 'string' },
  quick: { type: 'boolean' },
  json: { type: 'boolean' },
});
const [keyCount] = numbersOf(options.keys, [options.quick ? 20 : 1000], help);
const [count] = numbersOf(options.count, [options.quick ? 100 : 20_000], help);
const [rounds] = numbersOf(options.rounds, [options.quick ? 1 : 7], help);
const ttl = 60_000;

const kinds = [
  { kind: 'credits', fields: { credits: { remaining: credits } } },
  { kind: 'credits and a limit', fields: { credits: { remaining: credits }, ratelimits: [limit] } },
];

async function measure() {
  const server = await startTollgate({ env: { LEASE_MS: '0' } });
  const ask = async (operation, input) => {
    const { status, data } = await post({ ...server, path: `/v2/${operation}` }, JSON.stringify(input));
    if (status !== 200) throw new Error(`${operation} responded with status ${status}`);
    return data;
  };
  await untilHolds(ask);
  const rows = [];
  const ratios = [];
  for (const { kind, fields } of kinds) {
    const keys = await createKeys(ask, fields);
    for (const connections of [1, 64]) {
      const measured = await compare(server, ask, keys, connections, (round) => progress(`${kind}: round ${round}`));
      ratios.push(measured.ratio);
      const { plain, held, ratio, serverRatio } = measured;
      rows.push([kind, connections, ...[plain, held, ratio, serverRatio].map(number)]);
    }
  }
  progressDone();
  const head = [
    'key',
    'connections',
    'verification, Redis CPU µs',
    'hold and settlement',
    'ratio',
    'CPU of the server',
  ];
  const note =
    `A verification with \`hold\`, and the settlement of what it held, to a verification of the same ${number(keyCount)} ` +
    `keys without a hold; medians of ${rounds} rounds of ${number(count)} of each. \`LEASE_MS=0\`.`;
  const kept = !options.quick;
  const reached = kept ? { holdCost: Math.max(...ratios) } : {};
  report(
    { bench: 'holds', title: 'Holds', markdown: `${table(head, rows)}\n\n${note}`, reached, raw: rows },
    { json: options.json, kept },
  );
}

/** The first start migrates the data version: holds are refused until then. */
async function untilHolds(ask) {
  const { apiId } = await ask('apis.createApi', { name: 'first' });
  const { key } = await ask('keys.createKey', { apiId });
  for (let tries = 0; ; tries++) {
    try {
      await ask('keys.verifyKey', { key, hold: { ttl } });
      return;
    } catch (error) {
      if (tries === 100) throw error;
      await delay(100);
    }
  }
}

async function createKeys(ask, fields) {
  const { apiId } = await ask('apis.createApi', { name: 'bench' });
  const keys = [];
  await inTurn(keyCount, 4, async () => {
    const { key, keyId } = await ask('keys.createKey', { apiId, name, meta, ...fields });
    keys.push({ key, keyId });
  });
  return keys;
}

async function compare(server, ask, keys, connections, onRound) {
  const keyOf = (index) => keys[index % keys.length];
  const verify = (index) => ask('keys.verifyKey', { key: keyOf(index).key });
  const holdAndSettle = async (index) => {
    const { hold } = await ask('keys.verifyKey', { key: keyOf(index).key, hold: { ttl } });
    await ask('keys.settleHold', { holdId: hold.id });
  };
  const requests = connections === 1 ? Math.ceil(count / 4) : count;
  const plain = [];
  const held = [];
  const ofServer = [];
  // The first round fills caches.
  for (let round = 0; round <= rounds; round++) {
    onRound(round);
    const costs = [];
    // The settlements are requests too: two verifications for each hold would have batches of the same size.
    for (const work of [verify, holdAndSettle])
      costs.push(await costOf(server, () => inTurn(requests, connections, work)));
    if (round === 0) continue;
    plain.push((costs[0].redisCpu / requests) * 1e6);
    held.push((costs[1].redisCpu / requests) * 1e6);
    ofServer.push(costs[1].serverCpu / costs[0].serverCpu);
  }
  const ratio = median(held.map((each, index) => each / plain[index]));
  return { plain: median(plain), held: median(held), ratio, serverRatio: median(ofServer) };
}

/** Calls `work` with 0, 1, … up to `total`, `atOnce` at the same time. */
async function inTurn(total, atOnce, work) {
  let next = 0;
  const each = async () => {
    while (next < total) await work(next++);
  };
  await Promise.all(Array.from({ length: atOnce }, each));
}

await run(measure);
