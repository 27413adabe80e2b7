// A soak test: mixed load on the built server with its own Redis. Prints its memory, file descriptors and Redis keys at
// the start and at the end.
//
//   node test/faults/soak.mjs --minutes 30 [--connections 32]
//
// The amount of data is constant: a key is deleted for each that is created, and identifiers and tags are from a fixed
// set. So any growth is a leak, except for the usage of deleted keys, which is kept and counted separately. The exit
// code is 1 after an unexpected response.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { run, startTollgate } from '../../bench/support/processes.mjs';
import { build } from '../../bin/prepare.mjs';

const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '30' }, connections: { type: 'string', default: '32' } },
});
const minutes = Number(values.minutes);
const connections = Number(values.connections);
if (!(minutes > 0) || !(connections > 0)) throw new Error('--minutes and --connections take numbers above 0');

const population = 1_000;
const identifiers = 2_000;
/** The first tenth of the time fills caches, pools and the audit stream. Growth is measured from its end. */
const warmUp = minutes / 10;

build();
await run(soak);

async function soak() {
  const settings = { AUDIT_EVENTS_MAX: '10000', KEY_RETENTION_DAYS: '0', TAGS_MAX: '100' };
  const server = await startTollgate({ env: settings });
  const answers = new Map();
  const unexpected = new Map();
  const count = (counts, what) => counts.set(what, (counts.get(what) ?? 0) + 1);

  function caller() {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    return (name, body, rootKey = server.rootKey) =>
      new Promise((resolve, reject) => {
        const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
        const sent = request(`${server.url}/v2/${name}`, { agent, method: 'POST', headers }, (response) => {
          let text = '';
          response.on('data', (bytes) => (text += bytes));
          response.on('end', () => resolve({ status: response.statusCode, ...JSON.parse(text) }));
        });
        sent.on('error', reject);
        sent.end(JSON.stringify(body));
      });
  }

  const ask = caller();
  const { apiId } = (await ask('apis.createApi', { name: 'soak' })).data;
  await ask('permissions.createRole', { name: 'reader', permissions: ['documents.read', 'documents.write'] });
  const ratelimits = [{ name: 'requests', limit: 100, duration: 1_000, autoApply: true }];
  const create = async (call, n) => {
    const { data } = await call('keys.createKey', {
      apiId,
      name: `key ${n}`,
      externalId: `user-${n % 200}`,
      meta: { plan: 'free', n },
      credits: { remaining: 1_000_000 },
      roles: ['reader'],
      ratelimits,
    });
    return data;
  };
  const keys = [];
  for (let n = 0; n < population; n++) keys.push(await create(ask, n));

  const any = (list) => list[Math.floor(Math.random() * list.length)];
  let created = population;

  /**
   * Kinds of requests: weight, name, and a function that sends one and returns the response and the expected status.
   */
  const mix = [
    [60, 'verify', async (call) => [await call('keys.verifyKey', { key: any(keys).key }), 200]],
    [
      10,
      'verify with everything',
      async (call) => {
        const tags = [`path=/${Math.floor(Math.random() * 50)}`];
        const asked = { key: any(keys).key, permissions: 'documents.read AND documents.write', tags };
        return [
          await call('keys.verifyKey', { ...asked, ratelimits: [{ name: 'burst', limit: 50, duration: 1_000 }] }),
          200,
        ];
      },
    ],
    [
      15,
      'limit',
      async (call) => {
        const identifier = `caller-${Math.floor(Math.random() * identifiers)}`;
        return [await call('ratelimits.limit', { namespace: 'soak', identifier, limit: 10, duration: 10_000 }), 200];
      },
    ],
    [5, 'wrong key', async (call) => [await call('keys.verifyKey', { key: `wrong_${Math.random()}` }), 200]],
    [
      2,
      'wrong root key',
      async (call) => [await call('keys.verifyKey', { key: any(keys).key }, `root_${Math.random()}`), 401],
    ],
    [1, 'wrong input', async (call) => [await call('keys.verifyKey', { key: 5 }), 400]],
    [
      2,
      'update',
      async (call) => [
        await call('keys.updateCredits', { keyId: any(keys).keyId, operation: 'increment', value: 5 }),
        200,
      ],
    ],
    [2, 'read', async (call) => [await call('keys.getKey', { keyId: any(keys).keyId }), 200]],
    [1, 'list', async (call) => [await call('apis.listKeys', { apiId, limit: 20 }), 200]],
    [
      2,
      'replace',
      async (call) => {
        // Removed from the list first, so that no other caller uses a deleted key.
        const [gone] = keys.splice(Math.floor(Math.random() * keys.length), 1);
        await delay(50);
        const answer = await call('keys.deleteKey', { keyId: gone.keyId });
        keys.push(await create(call, created++));
        return [answer, 200];
      },
    ],
  ];
  const weights = mix.reduce((sum, [weight]) => sum + weight, 0);
  const pick = () => {
    let at = Math.random() * weights;
    return mix.find(([weight]) => {
      at -= weight;
      return at < 0;
    });
  };

  const rows = [];
  async function measure(label) {
    const info = await server.redis.client.info('memory');
    const usage = await countNames('tg:*:uk:*');
    const redisMemory = Number(/used_memory:(\d+)/.exec(info)[1]);
    const row = {
      '': label,
      requests: [...answers.values()].reduce((sum, n) => sum + n, 0),
      'server MB': megabytes(residentBytes(server.pid)),
      'server fds': openFiles(server.pid),
      'Redis MB': megabytes(redisMemory),
      'Redis fds': openFiles(server.redis.pid),
      'Redis keys': (await server.redis.client.dbsize()) - usage,
      'and of usage': usage,
      keys: keys.length,
    };
    rows.push(row);
    console.log(
      Object.entries(row)
        .map(([name, value]) => `${name} ${value}`.trim())
        .join(', '),
    );
  }

  async function countNames(pattern) {
    let names = 0;
    for await (const found of server.redis.client.scanStream({ match: pattern, count: 1000 })) names += found.length;
    return names;
  }

  let stopped = false;
  await measure('at rest');
  const callers = Array.from({ length: connections }, async () => {
    const call = caller();
    while (!stopped) {
      const [, name, act] = pick();
      const [{ status, error }, expected] = await act(call).catch((cause) => [{ status: cause.code ?? cause.message }]);
      count(answers, name);
      if (status !== expected) count(unexpected, `${name}: ${status} ${error?.detail ?? ''}`);
    }
  });
  const endsAt = performance.now() + minutes * 60_000;
  await delay(warmUp * 60_000);
  await measure('start');
  for (let minute = 1; performance.now() < endsAt; minute++) {
    await delay(Math.min(60_000, endsAt - performance.now()));
    if (performance.now() < endsAt) await measure(`minute ${minute}`);
  }
  stopped = true;
  await Promise.all(callers);
  await measure('end');

  console.table(rows);
  console.table(Object.fromEntries(answers));
  if (unexpected.size === 0) return console.log('Every answer was as expected.');
  console.table(Object.fromEntries(unexpected));
  process.exitCode = 1;
}

function residentBytes(pid) {
  return 1024 * Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]);
}

function openFiles(pid) {
  return existsSync(`/proc/${pid}/fd`) ? readdirSync(`/proc/${pid}/fd`).length : undefined;
}

function megabytes(bytes) {
  return Math.round(bytes / 104_857.6) / 10;
}
