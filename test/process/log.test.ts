// The log of real servers: standard error that is not read or cannot be written to, and floods of requests that any
// caller can send.

import { spawnSync } from 'node:child_process';
import { closeSync, constants, openSync, readFileSync, readSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { versionSuffix } from '../../bin/prepare.mjs';
import { openStore } from '../../src/store.ts';
import { testSettings } from '../support/harness.ts';
import { dirOfFile } from '../support/ofFile.ts';
import { addressOf, build, mainFile, openRedisProcess, type Program, run, serverEnv } from '../support/processes.ts';
import { isThorough, thoroughTest } from '../support/testIf.ts';
import { withinMs } from '../support/unit.ts';

let redis: Awaited<ReturnType<typeof openRedisProcess>>;
let rootKey: string;
const dir = dirOfFile();
const servers: Program[] = [];

beforeAll(build, 120_000);
beforeAll(async () => {
  redis = await openRedisProcess();
  const store = await openStore({ ...testSettings, url: redis.url });
  rootKey = (await store.workspaces.createFirst('default'))!.rootKey;
  await store.close();
});
afterEach(async () => {
  redis.signal('SIGCONT');
  await Promise.all(servers.splice(0).map((server) => server.stop('SIGKILL')));
});
afterAll(() => redis.close());

/** A server with this file descriptor as standard error. */
function start(stderr: number | 'pipe', settings: Record<string, string> = {}) {
  const env = serverEnv({ REDIS_URL: redis.url, REDIS_TIMEOUT_MS: '10000', ...settings });
  const server = run(process.execPath, [mainFile], { env, stdio: ['ignore', 'pipe', stderr] });
  servers.push(server);
  return server;
}

/** Sends this many requests, 20 at a time. Returns the number of responses by status. */
async function flood(server: Program, calls: number, path: string, headers: Record<string, string>, body = '') {
  const url = await addressOf(server);
  const agent = new Agent({ keepAlive: true, maxSockets: 20 });
  const statuses: Record<number, number> = {};
  const call = () =>
    new Promise<void>((resolve, reject) => {
      const sent = request(url + path, { method: body === '' ? 'GET' : 'POST', headers, agent }, (response) => {
        statuses[response.statusCode!] = (statuses[response.statusCode!] ?? 0) + 1;
        response.resume().once('end', resolve);
      });
      sent.once('error', reject).end(body);
    });
  let left = calls;
  const caller = async () => {
    while (left-- > 0) await call();
  };
  await Promise.all(Array.from({ length: 20 }, caller));
  agent.destroy();
  return statuses;
}
const getApi = (server: Program, calls: number, key = rootKey) => {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  return flood(server, calls, '/v2/apis.getApi', headers, '{"apiId":"api_none1234"}');
};

const linesOf = (text: string) =>
  text
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line));
const rssOf = ({ child }: Program) =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))![1]) * 1024;

/** Both ends of a pipe, opened without waiting. */
function openPipe(name: string) {
  const path = join(dir, name);
  spawnSync('mkfifo', [path]);
  const readEnd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const writeEnd = openSync(path, constants.O_WRONLY);
  return { readEnd, writeEnd };
}

/** Everything that can be read without waiting. */
function readAll(fd: number): string {
  const buffer = Buffer.alloc(65_536);
  let text = '';
  for (;;) {
    try {
      const bytes = readSync(fd, buffer);
      if (bytes === 0) return text;
      text += buffer.toString('utf8', 0, bytes);
    } catch {
      return text;
    }
  }
}

/** More lines than the server keeps of a log that is not read: 1 MB, in lines of 200 bytes or more. */
const calls = 6_000;
/** More lines than the server writes at its end: 64 KB. */
const fewCalls = 1_000;

thoroughTest(
  'standard error is not read: requests are served, memory is bounded, dropped lines are counted, and a signal stops the server',
  async () => {
    const { readEnd, writeEnd } = openPipe('stopped');
    const server = start(writeEnd);
    closeSync(writeEnd);
    expect(await getApi(server, 1_000)).toEqual({ 404: 1_000 });
    const before = rssOf(server);
    expect(await getApi(server, calls)).toEqual({ 404: calls });
    expect(rssOf(server) - before).toBeLessThan(64 * 1024 ** 2);

    let text = '';
    await vi.waitFor(
      () => {
        text += readAll(readEnd);
        expect(text).toContain('Log lines were dropped');
      },
      { timeout: 30_000, interval: 20 },
    );
    await vi.waitFor(
      () => {
        text += readAll(readEnd);
        const lines = linesOf(text.slice(0, text.lastIndexOf('\n')));
        const dropped = lines.reduce((sum, line) => sum + (line.dropped ?? 0), 0);
        expect(lines.filter(({ status }) => status === 404).length + dropped).toBe(calls + 1_000);
      },
      { timeout: 30_000, interval: 20 },
    );
    expect(await getApi(server, fewCalls)).toEqual({ 404: fewCalls });
    const startedAt = performance.now();
    expect(await server.stop()).toBe(0);
    expect(performance.now() - startedAt).toBeLessThan(withinMs(10_000));
    closeSync(readEnd);
  },
);

test('the reader of standard error has ended: the server continues, and a signal stops it', async () => {
  const { readEnd, writeEnd } = openPipe('gone');
  const server = start(writeEnd);
  closeSync(writeEnd);
  await addressOf(server);
  closeSync(readEnd);
  expect(await getApi(server, fewCalls)).toEqual({ 404: fewCalls });
  expect(await server.stop()).toBe(0);
});

thoroughTest('standard error is on a full disk: the server continues, and a signal stops it', async () => {
  const full = openSync('/dev/full', 'w');
  const server = start(full);
  closeSync(full);
  expect(await getApi(server, fewCalls)).toEqual({ 404: fewCalls });
  expect(await server.stop()).toBe(0);
});

/** The number of log lines of a status, with the omitted ones. Checks that there was one a second. */
function countLines(server: Program, status: number, seconds: number) {
  const lines = linesOf(server.err).filter((line) => line.status === status);
  expect(lines.length).toBeGreaterThan(0);
  expect(lines.length).toBeLessThanOrEqual(seconds + 2);
  return lines.reduce((sum, { omitted = 0 }) => sum + 1 + omitted, 0);
}
async function timed<T>(work: () => Promise<T>): Promise<[result: T, seconds: number]> {
  const startedAt = performance.now();
  const result = await work();
  return [result, (performance.now() - startedAt) / 1000];
}
const waiting = { timeout: 10_000, interval: 20 };

test('requests without a good root key are one line a second, with their number; others have a line each', async () => {
  const server = start('pipe');
  const [statuses, seconds] = await timed(() => getApi(server, 300, 'made_up'));
  expect(statuses).toEqual({ 401: 300 });
  expect(await getApi(server, 100)).toEqual({ 404: 100 });
  await vi.waitFor(() => expect(countLines(server, 401, seconds)).toBe(300), waiting);
  const ofKnown = () => linesOf(server.err).filter((line) => line.status === 404 && line.rootKeyId);
  await vi.waitFor(() => expect(ofKnown()).toHaveLength(100), waiting);

  // Gateway checks without a root key are as well.
  const check = () => flood(server, 300, '/v2/gateway/check', { authorization: 'Bearer k' });
  const [checked, secondsOfChecks] = await timed(check);
  expect(checked).toEqual({ 500: 300 });
  await vi.waitFor(() => expect(countLines(server, 500, secondsOfChecks)).toBe(300), waiting);
});

test('while Redis is unavailable there is one line a second, of operations, of gateway checks and of /v2/me, with their number', async () => {
  const server = start('pipe', { GATEWAY_ROOT_KEY: rootKey, REDIS_TIMEOUT_MS: '1000' });
  expect(await getApi(server, 1)).toEqual({ 404: 1 });
  redis.signal('SIGSTOP');
  const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
  const [, seconds] = await timed(async () => {
    const bearer = { authorization: 'Bearer made_up' };
    expect(await getApi(server, 60)).toEqual({ 503: 60 });
    expect(await flood(server, 60, '/v2/keys.verifyKey', headers, '{"key":"k"}')).toEqual({ 503: 60 });
    expect(await flood(server, 60, '/v2/gateway/check', bearer)).toEqual({ 503: 60 });
    expect(await flood(server, 60, '/v2/me', bearer)).toEqual({ 503: 60 });
  });
  redis.signal('SIGCONT');
  await vi.waitFor(() => expect(countLines(server, 503, seconds)).toBe(240), waiting);
});

test('while Redis refuses writes, changes of known callers are one line a second too', async () => {
  const server = start('pipe');
  expect(await getApi(server, 1)).toEqual({ 404: 1 });
  spawnSync('redis-cli', ['-s', redis.socket, 'config', 'set', 'min-replicas-to-write', '1']);
  const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
  const [, seconds] = await timed(async () =>
    expect(await flood(server, 200, '/v2/apis.createApi', headers, '{"name":"refused"}')).toEqual({ 503: 200 }),
  );
  spawnSync('redis-cli', ['-s', redis.socket, 'config', 'set', 'min-replicas-to-write', '0']);
  await vi.waitFor(() => expect(countLines(server, 503, seconds)).toBe(200), waiting);
  expect(linesOf(server.err).find(({ status }) => status === 503)).toMatchObject({
    rootKeyId: expect.stringMatching(/^root_/),
  });
});

test('all lines are written when the server stops; they have the time in ISO 8601 and the name of the level, and report when it is ready, draining and stopped', async () => {
  const server = start('pipe');
  expect(await getApi(server, 50)).toEqual({ 404: 50 });
  expect(await server.stop()).toBe(0);
  const version = JSON.parse(readFileSync('package.json', 'utf8')).version + versionSuffix();
  const time = expect.stringMatching(/^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  const durationMs = expect.any(Number);
  const ofRequests = ({ status }: { status?: number }) => status === 404;
  // The last ones too.
  expect(linesOf(server.err).filter(ofRequests)).toHaveLength(50);
  expect(linesOf(server.err).filter((line) => !ofRequests(line))).toEqual([
    { level: 'info', time, msg: 'Ready.', version, durationMs },
    { level: 'info', time, msg: 'Draining.', signal: 'SIGTERM' },
    { level: 'info', time, msg: 'Stopped.', durationMs },
  ]);
});

/** A warning of Node every 100 ms, once the process has a log: before, Node prints its warnings. */
const warn = "setInterval(() => console.warn.name === 'forward' && process.emitWarning('made up'), 100).unref();";

// The first process of workers and each of them; by themselves they write the lines of one process.
test.each(isThorough ? ['1', '2'] : ['2'])(
  'every line is JSON: warnings of Node and of dependencies too, WORKERS=%s',
  async (workers) => {
    // ioredis warns about this account at each connection.
    spawnSync('redis-cli', ['-s', redis.socket, 'acl', 'setuser', 'default', '-info']);
    const file = join(dir, 'warn.mjs');
    writeFileSync(file, warn);
    const server = start('pipe', { NODE_OPTIONS: `--import=${file}`, WORKERS: workers });
    const url = await addressOf(server);
    const loggedWarnings = () =>
      linesOf(server.err).filter(({ level, msg }) => level === 'warn' && /made up/.test(msg));
    await vi.waitFor(() => expect(loggedWarnings().length).toBeGreaterThan(5), waiting);
    spawnSync('redis-cli', ['-s', redis.socket, 'client', 'kill', 'type', 'normal']);
    const metrics = async () => (await fetch(`${url}/metrics`)).text();
    await vi.waitFor(async () => expect(await metrics()).toMatch(/^tollgate_redis_reconnects_total [1-9]/m), waiting);
    await server.stop();
    spawnSync('redis-cli', ['-s', redis.socket, 'acl', 'setuser', 'default', '+info']);
    const lines = server.err.trimEnd().split('\n');
    for (const line of lines) expect(() => JSON.parse(line), line).not.toThrow();
    expect(server.err).not.toContain('ready check');
  },
);

thoroughTest('no free file descriptor is one line, and another when there is one again', async () => {
  const env = serverEnv({ REDIS_URL: redis.url });
  const server = run('sh', ['-c', `ulimit -n 300; exec "$0" ${mainFile}`, process.execPath], { env });
  servers.push(server);
  const { port } = new URL(await addressOf(server));
  const usedUp = () => linesOf(server.err).filter(({ msg }) => /^All file descriptors are in use/.test(msg));
  const sockets = Array.from({ length: 400 }, () => connect(Number(port), '127.0.0.1').on('error', () => {}));
  await vi.waitFor(() => expect(usedUp()).toMatchObject([{ level: 'error', limit: 300 }]), waiting);
  for (const socket of sockets) socket.destroy();
  await vi.waitFor(() => expect(server.err).toContain('There are free file descriptors again.'), waiting);
  expect(usedUp()).toHaveLength(1);
  expect(await server.stop()).toBe(0);
});
