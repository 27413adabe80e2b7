// Readiness and liveness, of real servers whose Redis is killed, is stopped and loses its scripts, and that get
// signals.

import { spawnSync } from 'node:child_process';
import { connect } from 'node:net';
import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { openStore } from '../../src/store.ts';
import { makeCertificates } from '../support/certificates.ts';
import { testSettings } from '../support/harness.ts';
import { dirOfTest } from '../support/ofFile.ts';
import { build, openRedisProcess, type Server, startServer } from '../support/processes.ts';
import { isThorough, thorough } from '../support/testIf.ts';
import { withinMs } from '../support/unit.ts';

const waiting = { timeout: 30_000, interval: 10 };
const timeoutMs = 500;
/** Tolerance for the time of a response beyond Redis's timeout, for other load of the machine. */
const slackMs = 1500;

let redis: Awaited<ReturnType<typeof openRedisProcess>>;
let admin: Redis;
const servers: Server[] = [];

// Each test starts processes, which takes long on a busy machine.
beforeAll(build, 120_000);
beforeAll(async () => {
  redis = await openRedisProcess();
  admin = new Redis({ path: redis.socket, retryStrategy: () => 20 });
  admin.on('error', () => {});
  // Without a workspace a server creates one when it starts, and ends if it cannot.
  const store = await openStore({ ...testSettings, url: redis.url });
  await store.workspaces.create('health');
  await store.close();
});
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.stop('SIGKILL')));
});
afterAll(async () => {
  admin.disconnect();
  await redis.close();
});

async function start(env: Record<string, string> = {}) {
  const settings = { REDIS_URL: redis.url, REDIS_TIMEOUT_MS: `${timeoutMs}`, LOG_LEVEL: 'silent', ...env };
  const server = await startServer(settings);
  servers.push(server);
  return server;
}

async function ask({ url }: Server, path: string, method = 'GET') {
  const startedAt = performance.now();
  const response = await fetch(url + path, { method, headers: { connection: 'close' } });
  const json = (await response.json()) as { data?: object; error?: { detail: string; type: string } };
  return { status: response.status, headers: response.headers, ...json, tookMs: performance.now() - startedAt };
}

const untilReady = (server: Server) =>
  vi.waitFor(async () => expect(await ask(server, '/health/ready')).toMatchObject({ status: 200 }), waiting);

/** The response is 503 in the envelope, in time, with this reason. */
async function expectNotReady(server: Server, detail: string, code = 'store_unavailable') {
  const answer = await ask(server, '/health/ready');
  expect(answer).toMatchObject({ status: 503, error: { detail, type: `/errors/${code}` } });
  expect(answer.headers.get('retry-after')).toBe('1');
  expect(answer.tookMs).toBeLessThan(timeoutMs + withinMs(slackMs));
}

const functionCalls = async () =>
  Object.fromEntries(
    [...(await admin.info('commandstats')).matchAll(/cmdstat_function\|(\w+):calls=(\d+)/g)].map(([, name, calls]) => [
      name!,
      Number(calls),
    ]),
  );

test('/health/ready has the reason in time, with any fault of Redis, and recovers by itself; /health/live always passes', async () => {
  const server = await start();
  const alive = { status: 200, data: { alive: true } };
  expect(await ask(server, '/health/live')).toMatchObject(alive);
  expect(await ask(server, '/health/ready')).toMatchObject({
    status: 200,
    data: { ready: true, redis: 'answers', scripts: 'loaded' },
  });
  expect(await ask(server, '/health/ready', 'POST')).toMatchObject({ status: 405 });

  redis.signal('SIGSTOP');
  await vi.waitFor(() => expectNotReady(server, `Redis did not reply within ${timeoutMs} ms.`), waiting);
  expect(await ask(server, '/health/live')).toMatchObject(alive);
  redis.signal('SIGCONT');
  await untilReady(server);

  await redis.kill();
  await vi.waitFor(() => expectNotReady(server, 'Redis cannot be reached.'), waiting);
  expect(await ask(server, '/health/live')).toMatchObject(alive);
  await redis.start();
  await untilReady(server);

  await admin.call('ACL', 'SETUSER', 'default', '-function');
  await vi.waitFor(() => expectNotReady(server, 'Redis replies with an error: NOPERM.'), waiting);
  await admin.call('ACL', 'SETUSER', 'default', '+function');
  await untilReady(server);
});

test('scripts that Redis has lost are loaded again before /health/ready passes', async () => {
  const server = await start();
  const held = async () => Number(/number_of_functions:(\d+)/.exec(await admin.info('memory'))![1]);
  await untilReady(server);
  const all = await held();
  expect(all).toBeGreaterThan(15);
  await admin.function('FLUSH');
  expect(await held()).toBe(0);
  // The result of a check is cached for a moment. After that, Redis is asked again.
  await vi.waitFor(async () => {
    await untilReady(server);
    expect(await held()).toBe(all);
  }, waiting);
});

test('thousands of health requests send Redis a few commands', async () => {
  const server = await start();
  await admin.config('RESETSTAT');
  const startedAt = performance.now();
  const asked = 40;
  await Promise.all(
    Array.from({ length: asked }, async () => {
      for (let call = 0; call < 25; call++) expect((await fetch(`${server.url}/health/ready`)).status).toBe(200);
    }),
  );
  const tookMs = performance.now() - startedAt;
  const { list, load = 0 } = await functionCalls();
  expect(list).toBeGreaterThan(0);
  expect(list).toBeLessThanOrEqual(tookMs / 100 + 1);
  expect(load).toBe(0);
});

test('the health check of the image passes while the server is alive, with TLS and without Redis too', async () => {
  const dir = dirOfTest();
  const { certFile: TLS_CERT_FILE, keyFile: TLS_KEY_FILE } = makeCertificates(dir);
  const check = (env: Record<string, string>) =>
    spawnSync(process.execPath, ['dist/health.js'], { env, encoding: 'utf8' });
  const healthy = { status: 0, stdout: 'status 200\n', stderr: '' };
  for (const [settings, HOST] of [
    [{}, '0.0.0.0'],
    [{ TLS_CERT_FILE, TLS_KEY_FILE }, '127.0.0.1'],
  ] as const) {
    const server = await start({ ...settings, HOST });
    const env = { ...settings, HOST, PORT: String(server.port) };
    expect(check(env)).toMatchObject(healthy);
    redis.signal('SIGSTOP');
    expect(check(env)).toMatchObject(healthy);
    redis.signal('SIGCONT');
    await server.stop('SIGKILL');
    expect(check(env)).toMatchObject({ status: 1, stderr: expect.stringContaining('ECONNREFUSED') });
  }
});

/** The time until a server ends after a signal, in ms. */
async function endAfter(server: Server, signal: NodeJS.Signals): Promise<number> {
  const startedAt = performance.now();
  expect(await server.stop(signal)).toBe(0);
  return performance.now() - startedAt;
}

test.each(thorough(['1', '2'], ['2']))(
  'SIGTERM with DRAIN_MS, WORKERS=%s: first not ready, still serving, then it ends',
  async (workers) => {
    const drainMs = 3000;
    const server = await start({ WORKERS: workers, DRAIN_MS: `${drainMs}` });
    await untilReady(server);
    // A connection that a client opened before the signal and keeps open.
    const kept = connect(Number(new URL(server.url).port), '127.0.0.1');
    let answers = '';
    kept.on('data', (bytes) => (answers += bytes));
    kept.write('GET /v2/liveness HTTP/1.1\r\nHost: a\r\n\r\n');
    await vi.waitFor(() => expect(answers).toMatch(/^HTTP\/1\.1 200 /), waiting);
    expect(answers).not.toMatch(/^Connection: close/im);

    const ended = endAfter(server, 'SIGTERM');
    await vi.waitFor(() => expectNotReady(server, 'The server is shutting down.', 'shutting_down'), waiting);
    // Further requests are served, and their responses close the connection.
    expect(await ask(server, '/v2/liveness')).toMatchObject({ status: 200 });
    answers = '';
    kept.write('GET /v2/liveness HTTP/1.1\r\nHost: a\r\n\r\n');
    await vi.waitFor(() => expect(answers).toMatch(/^HTTP\/1\.1 200 [\s\S]*^Connection: close/im), waiting);
    expect(await ended).toBeGreaterThanOrEqual(drainMs - 5);
    await expect(ask(server, '/v2/liveness')).rejects.toThrow();
  },
);

test.each(isThorough ? ['1', '2'] : ['1'])('Ctrl-C does not wait for load balancers, WORKERS=%s', async (workers) => {
  const server = await start({ WORKERS: workers, DRAIN_MS: '60000' });
  expect(await endAfter(server, 'SIGINT')).toBeLessThan(10_000);
});
