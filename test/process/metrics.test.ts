// The metrics of real servers on a Redis that this file starts: the figures match the calls, they are added up over
// processes, and no caller can create a label.

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { versionSuffix } from '../../bin/prepare.mjs';
import { createKeyString, createRootKeyString, digestOf } from '../../src/domain/keyString.ts';
import { outcomes } from '../../src/domain/verification.ts';
import { errorCatalogue } from '../../src/errors.ts';
import { operations } from '../../src/operations/index.ts';
import { cliActor } from '../../src/records/rootKeys.ts';
import { refusals } from '../../src/redis/refusedWrites.ts';
import { dataVersion } from '../../src/scripts/layout.ts';
import { readLua, scriptNames } from '../../src/scripts/library.ts';
import { openStore } from '../../src/store.ts';
import { testSettings } from '../support/harness.ts';
import { readMetrics, type Series } from '../support/metrics.ts';
import { build, openRedisProcess, type Server, startServer } from '../support/processes.ts';
import { thorough, thoroughTest } from '../support/testIf.ts';

const waiting = { timeout: 30_000, interval: 20 };
const timeoutMs = 1000;
const buildVersion = JSON.parse(readFileSync('package.json', 'utf8')).version + versionSuffix();

let redis: Awaited<ReturnType<typeof openRedisProcess>>;
let rootKey: string;
let workspaceId: string;
/** An unlimited key, one with one credit, and an unknown one. */
const keys = { plain: '', oneCredit: '', unknown: createKeyString({ byteLength: 16 }).key };
const servers: Server[] = [];

// Each test starts processes, which takes long on a busy machine.
beforeAll(build, 120_000);
beforeAll(async () => {
  redis = await openRedisProcess();
  const store = await openStore({ ...testSettings, url: redis.url });
  ({ workspaceId } = await store.workspaces.create('metrics'));
  const root = createRootKeyString(workspaceId);
  rootKey = root.key;
  const record = { digest: digestOf(rootKey), start: root.start, permissions: ['*' as const] };
  await store.rootKeys.create(workspaceId, record, cliActor);
  const apiId = await store.apis.create(workspaceId, 'metrics', cliActor);
  for (const [name, more] of [
    ['plain', {}],
    ['oneCredit', { remaining: 1 }],
  ] as const) {
    const created = createKeyString({ byteLength: 16 });
    keys[name] = created.key;
    const newKeys = [{ digest: digestOf(created.key), start: created.start, ...more }];
    await store.keys.create(workspaceId, { apiId, keys: newKeys, mayCreatePermissions: false }, cliActor);
  }
  await store.close();
});
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.stop('SIGKILL')));
});
afterAll(() => redis.close());

async function start(env: Record<string, string> = {}) {
  const settings = { REDIS_URL: redis.url, REDIS_TIMEOUT_MS: `${timeoutMs}`, LOG_LEVEL: 'silent', ...env };
  const server = await startServer(settings);
  servers.push(server);
  return server;
}

async function send({ url }: Server, path: string, body: unknown, request: RequestInit = {}) {
  const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
  const response = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body), ...request });
  return { status: response.status, json: await response.json() };
}

const verify = (server: Server, key = keys.plain) => send(server, '/v2/keys.verifyKey', { key });

/** The time of a server's last scrape. Within a second it returns the same text. */
const scrapedAt = new WeakMap<Server, number>();

/** All metrics of a server, at the time of this call, with a function that returns one value. */
async function scrape(server: Server) {
  await delay((scrapedAt.get(server) ?? 0) + 1_001 - performance.now());
  const response = await fetch(server.metricsUrl ?? `${server.url}/metrics`);
  scrapedAt.set(server, performance.now());
  expect(response.status).toBe(200);
  expect(response.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
  const text = await response.text();
  const { series, types } = readMetrics(text);
  const matches = (name: string, labels: Series['labels']) => (each: Series) =>
    each.name === `tollgate_${name}` && Object.entries(labels).every(([label, value]) => each.labels[label] === value);
  return {
    text,
    series,
    types,
    /** The sum of the series with these labels; 0 without any. */
    of: (name: string, labels: Series['labels'] = {}) =>
      series.filter(matches(name, labels)).reduce((sum, { value }) => sum + value, 0),
  };
}

const limitOf = (identifier: string) => ({ namespace: 'metrics', identifier, limit: 1, duration: 60_000 });

test('the counts are the calls made, in requests, outcomes and every histogram', async () => {
  const server = await start({
    METRICS_PORT: '0',
    SWEEP_INTERVAL_MS: '3600000',
    IDENTIFIERS_MAX: '2',
    // All verifications are sent to Redis.
    LEASE_MS: '0',
    // So little memory for new objects that garbage collections, which have a histogram, are certain.
    NODE_OPTIONS: '--max-semi-space-size=1',
  });
  const admin = new Redis({ path: redis.socket });
  // The first look for root keys that end, of the one workspace, is over.
  const looks = async () => (await scrape(server)).of('redis_duration_seconds_count', { script: 'rootKeys/list' });
  await vi.waitFor(async () => expect(await looks()).toBe(1), waiting);
  await admin.config('RESETSTAT');
  await Promise.all(Array.from({ length: 20 }, () => verify(server)));
  await verify(server, keys.oneCredit);
  for (let call = 0; call < 3; call++) await verify(server, keys.oneCredit);
  for (let call = 0; call < 4; call++) await verify(server, keys.unknown);
  await send(server, '/v2/ratelimits.limit', limitOf('a'));
  await send(server, '/v2/ratelimit.limit', limitOf('a'));
  await send(server, '/v2/ratelimits.multiLimit', [limitOf('b'), limitOf('c')]);
  expect((await verify(server, '')).status).toBe(400);
  await send(server, '/v2/keys.verifyKey', { key: 'a' }, { headers: { 'content-type': 'application/json' } });
  await send(server, '/v2/keys.verifyKey', undefined, { method: 'PUT' });
  await send(server, '/v2/apis.getApi', { apiId: 'api_none1234' });
  await fetch(`${server.url}/v2/liveness`);
  await fetch(`${server.url}/nothing`);

  const { of, series, types } = await scrape(server);
  const requests = series.filter(({ name, value }) => name === 'tollgate_requests_total' && value > 0);
  expect(requests.map(({ labels, value }) => [labels.operation, labels.status, value])).toEqual(
    expect.arrayContaining([
      ['keys.verifyKey', '200', 28],
      ['keys.verifyKey', '400', 1],
      ['keys.verifyKey', '401', 1],
      ['keys.verifyKey', '405', 1],
      ['ratelimits.limit', '200', 2],
      ['ratelimits.multiLimit', '200', 1],
      ['apis.getApi', '404', 1],
      ['page', '200', 1],
      ['unknown', '404', 1],
    ]),
  );
  expect(requests).toHaveLength(9);

  const outcomeCounts = Object.fromEntries(
    outcomes.map((outcome) => [outcome, of('verifications_total', { outcome })]),
  );
  const none = Object.fromEntries(outcomes.map((outcome) => [outcome, 0]));
  expect(outcomeCounts).toEqual({ ...none, VALID: 21, USAGE_EXCEEDED: 3, NOT_FOUND: 4 });
  expect([of('limit_checks_total', { result: 'passed' }), of('limit_checks_total', { result: 'blocked' })]).toEqual([
    2, 1,
  ]);

  // The third identifier is counted for the namespace only.
  const uncounted = ['identifier', 'tag'].map((by) => of('usage_uncounted_total', { by }));
  expect(uncounted).toEqual([1, 0]);

  for (const { name } of operations) {
    const labels = { operation: name };
    expect(of('request_duration_seconds_count', labels), name).toBe(of('requests_total', labels));
  }
  // Sent to Redis: 28 verifications and 3 limit checks, in batches, each a round trip.
  expect(of('batch_size_sum')).toBe(31);
  expect(of('batch_size_count')).toBe(of('redis_duration_seconds_count', { script: 'decide' }));
  expect(of('batch_size_count')).toBeLessThan(31);
  // ioredis sends a script's text the first time on a connection, and then its digest. decide.lua is a function.
  const runs = [...(await admin.info('commandstats')).matchAll(/cmdstat_(?:eval|evalsha|fcall):calls=(\d+)/g)];
  const scriptRuns = runs.reduce((sum, [, count]) => sum + Number(count), 0);
  // The server registered once before RESETSTAT, and looked once.
  expect(of('redis_duration_seconds_count') - 2).toBe(scriptRuns);
  admin.disconnect();
  expect(of('request_duration_seconds_sum', { operation: 'keys.verifyKey' })).toBeGreaterThan(
    of('redis_duration_seconds_sum', { script: 'decide' }) / 31,
  );
  expect(of('redis_failures_total')).toBe(0);
  expect(of('requests_in_flight')).toBe(0);

  // Every histogram is valid: its buckets increase, and the last one is its count.
  for (const name of [...types].filter(([, type]) => type === 'histogram').map(([each]) => each)) {
    const counts = series.filter((each) => each.name === `${name}_count`);
    expect(counts.length, name).toBeGreaterThan(0);
    for (const { labels, value } of counts) {
      const buckets = series.filter(
        (each) =>
          each.name === `${name}_bucket` &&
          Object.entries(labels).every(([label, text]) => each.labels[label] === text),
      );
      const bounds = buckets.map((each) => Number(each.labels.le!.replace('+Inf', 'Infinity')));
      expect(bounds).toEqual([...bounds].sort((a, b) => a - b));
      expect(buckets.map((each) => each.value)).toEqual(buckets.map((each) => each.value).sort((a, b) => a - b));
      expect([bounds.at(-1), buckets.at(-1)!.value]).toEqual([Number.POSITIVE_INFINITY, value]);
    }
  }

  // With a port of their own, metrics are on that port only, and nothing else is.
  expect((await fetch(`${server.url}/metrics`)).status).toBe(404);
  expect((await fetch(new URL('/health/live', server.metricsUrl))).status).toBe(404);
  expect((await fetch(server.metricsUrl!, { method: 'POST' })).status).toBe(404);
  const { port } = new URL(server.metricsUrl!);
  await expect(start({ METRICS_PORT: port })).rejects.toThrow(`METRICS_PORT: Cannot listen on 127.0.0.1 port ${port}`);
});

test('no request adds a label, and no secret is in the metrics', async () => {
  // Without sweeps, whose scripts would add series of their own.
  const server = await start({ SWEEP_INTERVAL_MS: '3600000' });
  const weird = [
    '/x%22%7D%0Aevil 1',
    '/v2/keys.verifyKey/',
    '/v2/toString',
    '/__proto__',
    '/metrics/',
    `/${'a'.repeat(2000)}`,
  ];
  await Promise.all(weird.map((path) => fetch(server.url + path)));
  for (const method of ['BREW', 'x-evil', 'DELETE', 'OPTIONS']) {
    for (const path of ['/v2/keys.verifyKey', '/health/ready', '/metrics']) {
      await send(server, path, undefined, { method, body: null });
    }
  }
  for (let made = 0; made < 50; made++) {
    await send(
      server,
      `/v2/keys.weird${made}`,
      {},
      { headers: { authorization: `Bearer weird${made}`, accept: `weird/${made}` } },
    );
    await send(server, '/v2/ratelimits.limit', limitOf(`weird${made}`));
    await verify(server, `weird${made}`);
  }
  const { series, text } = await scrape(server);

  const allowed: Record<string, readonly string[]> = {
    operation: [...operations.map(({ name }) => name), 'gateway.check', 'introspect', 'me', 'page', 'unknown'],
    status: ['200', ...errorCatalogue.map(({ status }) => `${status}`)],
    outcome: outcomes,
    result: ['passed', 'blocked'],
    script: scriptNames(readLua()),
    queue: ['holds', 'refill', 'purge', 'usage'],
    by: ['identifier', 'tag'],
    reason: refusals,
    used_by: ['gateway', 'callers', 'jobs'],
    version: [buildVersion],
    node: [process.versions.node],
    data_version: [`${dataVersion}`],
  };
  for (const { name, labels } of series.filter((each) => each.name.startsWith('tollgate_'))) {
    for (const [label, value] of Object.entries(labels)) {
      if (label === 'le') expect(value).toMatch(/^([\d.]+|\+Inf)$/);
      else expect(allowed[label] ?? `${name} may not have the label ${label}`).toContain(value);
    }
  }
  const ours = series.filter((each) => each.name.startsWith('tollgate_'));
  expect(ours.filter(({ labels }) => labels.operation === 'unknown' && labels.status === '404')).toEqual([
    expect.objectContaining({ value: weird.length + 50 }),
  ]);
  expect(text).not.toContain('weird');
  for (const secret of [rootKey, keys.plain, workspaceId]) expect(text).not.toContain(secret);
});

test('waiting, failing and refused requests are in the metrics', async () => {
  const server = await start({ METRICS_PORT: '0', REDIS_TIMEOUT_MS: '2000', IN_FLIGHT_MAX: '4' });
  expect((await verify(server)).status).toBe(200);
  redis.signal('SIGSTOP');
  const calls = Array.from({ length: 10 }, () => verify(server));
  // The result of an earlier check of Redis may still be cached.
  const stopped = vi.waitFor(async () => expect((await scrape(server)).of('redis_up')).toBe(0), waiting);
  const statuses = (await Promise.all(calls)).map(({ status }) => status);
  await stopped;
  redis.signal('SIGCONT');
  expect(statuses).toEqual(Array(10).fill(503));

  const { of } = await scrape(server);
  // Six were refused at once; four when they had waited for the timeout, in one batch.
  expect(of('overload_refusals_total')).toBe(6);
  expect(of('redis_failures_total')).toBeGreaterThanOrEqual(1);
  expect(of('redis_failures_total')).toBeLessThanOrEqual(4);
  expect(of('requests_total', { operation: 'keys.verifyKey', status: '503' })).toBe(10);
  await vi.waitFor(async () => expect((await scrape(server)).of('redis_up')).toBe(1), waiting);
});

thoroughTest('a killed Redis and its return are in the metrics; meanwhile the sweeper falls behind', async () => {
  const server = await start({ METRICS_PORT: '0', SWEEP_INTERVAL_MS: '20' });
  const age = async () => (await scrape(server)).of('sweeper_last_sweep_age_seconds');
  await vi.waitFor(async () => expect(await age()).toBeLessThan(0.5), waiting);
  expect((await scrape(server)).of('redis_up')).toBe(1);

  await redis.kill();
  await vi.waitFor(async () => expect((await scrape(server)).of('redis_up')).toBe(0), waiting);
  await vi.waitFor(async () => expect(await age()).toBeGreaterThan(1), waiting);
  expect((await scrape(server)).of('redis_reconnects_total')).toBe(0);

  await redis.start();
  await vi.waitFor(async () => expect((await scrape(server)).of('redis_up')).toBe(1), waiting);
  await vi.waitFor(async () => expect(await age()).toBeLessThan(0.5), waiting);
  expect((await scrape(server)).of('redis_reconnects_total')).toBe(1);
});

/** Verifies with a new connection each time, so that the kernel distributes them over the workers. */
function verifySpread(server: Server, calls: number) {
  const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json', connection: 'close' };
  const verifyAlone = () => send(server, '/v2/keys.verifyKey', { key: keys.plain }, { headers });
  return Promise.all(Array.from({ length: calls }, verifyAlone));
}

function workersOf({ child }: Server): number[] {
  const pids = execFileSync('pgrep', ['-P', `${child.pid}`, '-f', 'worker.js'], { encoding: 'utf8' }).trim();
  return pids.split('\n').map(Number);
}

test('several processes have one sum, and a killed one does not reduce it', async () => {
  const server = await start({ WORKERS: '2', LEASE_MS: '0' });
  await verifySpread(server, 60);
  const first = await scrape(server);
  expect(first.of('verifications_total', { outcome: 'VALID' })).toBe(60);
  expect(first.of('requests_total', { operation: 'keys.verifyKey' })).toBe(60);
  expect(first.of('request_duration_seconds_count', { operation: 'keys.verifyKey' })).toBe(60);
  expect(first.of('batch_size_sum')).toBe(60);
  expect([first.of('processes'), first.of('redis_up'), first.of('worker_restarts_total')]).toEqual([3, 1, 0]);
  const build = { version: buildVersion, node: process.versions.node, data_version: `${dataVersion}` };
  expect(first.series.filter(({ name }) => name === 'tollgate_build_info')).toMatchObject([
    { labels: build, value: 1 },
  ]);

  const [killed] = workersOf(server);
  process.kill(killed!, 'SIGKILL');
  await vi.waitFor(async () => {
    const { of } = await scrape(server);
    expect(of('verifications_total', { outcome: 'VALID' })).toBe(60);
    expect([of('processes'), of('worker_restarts_total')]).toEqual([3, 1]);
  }, waiting);
  await verifySpread(server, 30);
  expect((await scrape(server)).of('verifications_total', { outcome: 'VALID' })).toBe(90);
});

test('a worker that hangs delays no scrape, and its counts stay', async () => {
  const server = await start({ WORKERS: '2', METRICS_PORT: '0' });
  await verifySpread(server, 20);
  expect((await scrape(server)).of('verifications_total')).toBe(20);
  const [hanging] = workersOf(server);
  process.kill(hanging!, 'SIGSTOP');
  const { of } = await scrape(server);
  process.kill(hanging!, 'SIGCONT');
  expect([of('processes'), of('verifications_total')]).toEqual([2, 20]);

  for (let call = 0; call < 10; call++) expect((await verify(server)).status).toBe(200);
  expect((await scrape(server)).of('verifications_total')).toBe(30);
});

test.each(thorough(['1', '2'], ['2']))(
  'many concurrent scrapes compute the text once a second, WORKERS=%s',
  async (workers) => {
    const server = await start({ WORKERS: workers });
    const texts = new Set<string>();
    const startedAt = performance.now();
    let asked = 0;
    // Each has a connection of its own, so that every worker is asked. Each computed text differs, because it has the
    // CPU time.
    const scrapers = Array.from({ length: 4 }, async () => {
      while (performance.now() - startedAt < 2_500) {
        const response = await fetch(`${server.url}/metrics`, { headers: { connection: 'close' } });
        texts.add(await response.text());
        asked++;
        await delay(50);
      }
    });
    await Promise.all(scrapers);
    scrapedAt.set(server, performance.now());
    const seconds = (performance.now() - startedAt) / 1_000;
    expect(texts.size).toBeGreaterThanOrEqual(2);
    expect(asked).toBeGreaterThan(2 * texts.size);
    expect(texts.size).toBeLessThanOrEqual(seconds + 1);
    for (let call = 0; call < 10; call++) expect((await verify(server)).status).toBe(200);
    expect((await scrape(server)).of('verifications_total')).toBe(10);
  },
);

test('no metrics on a port that other machines may reach, and the start prints the reason', async () => {
  const server = await start({ HOST: '0.0.0.0' });
  const { port } = new URL(server.url);
  expect((await fetch(`http://127.0.0.1:${port}/metrics`)).status).toBe(404);
  await server.prints(/^Metrics: off, .* Set METRICS_PORT to serve them\.$/m);
});
