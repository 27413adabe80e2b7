// examples/nginx/tollgate.conf in a real nginx, before a Tollgate as it is run: what the client sees, and the API behind.

import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { type Program, run } from '../support/processes.ts';
import { freePort } from '../support/redisNodes.ts';
import { startMsMax, startTollgate, type Tollgate } from './tollgate.ts';

const hasNginx = spawnSync('nginx', ['-v']).status === 0;

/** The connections to a port of this machine, those just closed with them, by the ports at both ends. */
function connectionsTo(port: number): string[] {
  const hex = `:${port.toString(16).toUpperCase().padStart(4, '0')}`;
  const lines = readFileSync('/proc/net/tcp', 'utf8').trim().split('\n').slice(1);
  return lines
    .map((line) => line.trim().split(/\s+/).slice(1, 3))
    .filter((ends) => ends.some((end) => end.endsWith(hex)) && !ends.some((end) => end.endsWith(':0000')))
    .map((ends) => ends.sort().join());
}

describe.skipIf(!hasNginx)('nginx', () => {
  let tollgate: Tollgate;
  let apiId: string;
  let api: Server;
  let nginx: Program;
  let dir: string;
  let site: string;
  /** What reached the API. */
  const reached: { method: string; url: string; headers: IncomingHttpHeaders; body: string }[] = [];

  beforeAll(async () => {
    tollgate = await startTollgate((rootKey) => ({
      GATEWAY_ROOT_KEY: rootKey,
      GATEWAY_META: 'plan',
      WORKERS: '2',
      LOG_LEVEL: 'trace',
    }));
    apiId = (await tollgate.ok('apis.createApi', { name: 'nginx' })).apiId;
    api = createServer(async (request, response) => {
      const { method, url, headers } = request;
      let body = '';
      for await (const chunk of request) body += chunk;
      reached.push({ method: method!, url: url!, headers, body });
      response.statusCode = url === '/broken' ? 500 : 200;
      response.end('from the API');
    }).listen(0, '127.0.0.1');
    await once(api, 'listening');

    dir = mkdtempSync(join(tmpdir(), 'tollgate-nginx-'));
    const port = await freePort();
    site = `http://127.0.0.1:${port}`;
    // The example as it stands, but for its three addresses.
    const replaced = [
      ['listen 80;', `listen 127.0.0.1:${port};`],
      ['server 127.0.0.1:8080;', `server ${new URL(tollgate.url).host};`],
      ['server 127.0.0.1:3000;', `server 127.0.0.1:${(api.address() as AddressInfo).port};`],
    ] as const;
    let example = readFileSync('examples/nginx/tollgate.conf', 'utf8');
    for (const [from, to] of replaced) {
      expect(example.split(from), from).toHaveLength(2);
      example = example.replace(from, to);
    }
    const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
      (name) => `${name}_temp_path ${dir}/${name};`,
    );
    const conf = `daemon off; worker_processes 1; pid ${dir}/pid; error_log ${dir}/error.log;
      events {}
      http { ${paths.join(' ')} access_log off;\n${example} }`;
    writeFileSync(join(dir, 'nginx.conf'), conf);
    nginx = run('nginx', ['-c', join(dir, 'nginx.conf'), '-p', dir, '-e', join(dir, 'error.log')]);
    await vi.waitFor(() => fetch(site), { timeout: 10_000, interval: 20 });
  }, startMsMax);
  beforeEach(() => {
    reached.length = 0;
  });
  afterAll(async () => {
    await nginx?.stop();
    api?.close();
    await tollgate?.stop();
    if (dir) rmSync(dir, { recursive: true });
  });

  const newKey = (more: object = {}) => tollgate.ok('keys.createKey', { apiId, ...more });

  async function ask(
    key: string | undefined,
    { path = '/', headers = {}, ...init }: RequestInit & { path?: string } = {},
  ) {
    const authorization: Record<string, string> = key === undefined ? {} : { authorization: `Bearer ${key}` };
    const response = await fetch(site + path, { ...init, headers: { ...authorization, ...(headers as object) } });
    const { status } = response;
    return { status, text: await response.text(), header: (name: string) => response.headers.get(name) };
  }

  test('a valid key reaches the API, which is told whose it is and is not shown the key', async () => {
    const { key, keyId } = await newKey({
      externalId: 'ada',
      meta: { plan: 'pro ✓' },
      ratelimits: [{ name: 'requests', limit: 5, duration: 60_000, autoApply: true }],
    });
    const answer = await ask(key, { path: '/orders?id=7', method: 'POST', body: '{"a":1}' });
    expect([answer.status, answer.text]).toEqual([200, 'from the API']);
    expect(answer.header('ratelimit')).toMatch(/^"requests";r=4;t=6[01]$/);
    expect(answer.header('ratelimit-policy')).toBe('"requests";q=5;w=60');
    expect(reached).toEqual([
      expect.objectContaining({
        method: 'POST',
        url: '/orders?id=7',
        body: '{"a":1}',
        headers: expect.objectContaining({
          'x-tollgate-key-id': keyId,
          'x-tollgate-external-id': 'ada',
          'x-tollgate-meta-plan': 'pro%20%E2%9C%93',
        }),
      }),
    ]);
    expect(reached[0]!.headers).not.toHaveProperty('authorization');
  });

  test('a key that is missing, unknown or disabled does not: 401 with a challenge, 403', async () => {
    const { key, keyId } = await newKey();
    await tollgate.ok('keys.updateKey', { keyId, enabled: false });
    const [missing, unknown, disabled] = [await ask(undefined), await ask('made_up'), await ask(key)];
    expect([missing.status, missing.header('www-authenticate')]).toEqual([401, 'Bearer']);
    expect([unknown.status, unknown.header('www-authenticate')]).toEqual([401, 'Bearer']);
    expect([disabled.status, disabled.header('www-authenticate')]).toEqual([403, null]);
    expect(reached).toEqual([]);
  });

  test('beyond its limit the client sees a 429, and how long to wait', async () => {
    const limits = [{ name: 'requests', limit: 2, duration: 60_000, autoApply: true }];
    const { key } = await newKey({ ratelimits: limits });
    expect([(await ask(key)).status, (await ask(key)).status]).toEqual([200, 200]);
    const limited = await ask(key);
    expect(limited.status).toBe(429);
    expect(Number(limited.header('retry-after'))).toBeGreaterThan(50);
    expect(Number(limited.header('retry-after'))).toBeLessThanOrEqual(61);
    expect(limited.header('ratelimit')).toBe(`"requests";r=0;t=${limited.header('retry-after')}`);
    expect(reached).toHaveLength(2);

    const { key: spent } = await newKey({ credits: { remaining: 0 } });
    const answer = await ask(spent);
    expect([answer.status, answer.header('retry-after')]).toEqual([429, null]);
  });

  test('what the client sends under Tollgate\u2019s names changes nothing', async () => {
    const { key, keyId } = await newKey({ credits: { remaining: 5 } });
    const forged = {
      'X-Tollgate-Cost': '0',
      'X-Tollgate-Root-Key': 'root_of_somebody_else',
      'X-Tollgate-Permissions': '(',
      'X-Tollgate-Key-Id': 'key_of_somebody_else',
      'X-Tollgate-External-Id': 'somebody else',
      'X-Tollgate-Meta-Plan': 'the best',
    };
    expect((await ask(key, { headers: forged })).status).toBe(200);
    expect((await tollgate.ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 4 });
    expect(reached[0]!.headers['x-tollgate-key-id']).toBe(keyId);
    expect(JSON.stringify(reached[0]!.headers)).not.toMatch(/somebody else|the best/);
  });

  test('large headers of the client do not reach the check, which would not take them', async () => {
    const { key } = await newKey();
    expect((await ask(key, { headers: { cookie: 'c'.repeat(6_000) } })).status).toBe(200);
  });

  test('a key with many limits is answered with all of them', async () => {
    const ratelimits = Array.from({ length: 50 }, (_, index) => ({
      name: `a limit with quite a long name, which is number ${index}`,
      limit: 5,
      duration: 60_000,
      autoApply: true,
    }));
    const { key } = await newKey({ ratelimits });
    const answer = await ask(key);
    expect(answer.status).toBe(200);
    expect(answer.header('ratelimit')!.split(', ')).toHaveLength(50);
  });

  test('an error of the API stays its own', async () => {
    const { key } = await newKey();
    expect(await ask(key, { path: '/broken' })).toMatchObject({ status: 500, text: 'from the API' });
  });

  test('connections to Tollgate are kept', async () => {
    const { key } = await newKey();
    await ask(key);
    const port = Number(new URL(tollgate.url).port);
    const before = new Set(connectionsTo(port));
    for (let request = 0; request < 20; request++) expect((await ask(key)).status).toBe(200);
    expect(connectionsTo(port).filter((connection) => !before.has(connection))).toEqual([]);
  });

  test('with Redis away the client sees a 503 in time, and nothing passes; back, it passes again', async () => {
    const { key } = await newKey();
    onTestFinished(() => void tollgate.redis.child.kill('SIGCONT'));
    tollgate.redis.child.kill('SIGSTOP');
    const started = performance.now();
    const away = await ask(key);
    const tookMs = performance.now() - started;
    expect([away.status, away.header('retry-after')]).toEqual([503, '1']);
    // REDIS_TIMEOUT_MS is 500.
    expect(tookMs).toBeLessThan(3_000);
    expect(reached).toEqual([]);
    tollgate.redis.child.kill('SIGCONT');
    await vi.waitFor(async () => expect((await ask(key)).status).toBe(200), { timeout: 10_000, interval: 50 });
  });

  test('with Tollgate away, too', async () => {
    const { key } = await newKey();
    await tollgate.server.stop();
    for (const secret of [tollgate.rootKey, key]) expect(tollgate.server.printed()).not.toContain(secret);
    expect((await ask(key)).status).toBe(503);
    expect(reached).toEqual([]);
  });
});
