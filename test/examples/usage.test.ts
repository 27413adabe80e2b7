// The examples that make `/usage` of a gateway `/v2/me` of Tollgate (docs/customers.md), in the real gateways with the
// examples that they are for.

import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { type IncomingMessage, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { caddy, envoy, findCaddy, haproxy, nginx, type Start, traefik } from '../../bench/support/gateways.mjs';
import { run } from '../support/processes.ts';
import { freePort } from '../support/redisNodes.ts';
import { missingProgram } from './gateway.ts';
import { startMsMax, startTollgate, type Tollgate } from './tollgate.ts';

let tollgate: Tollgate;
let apiId: string;
const origin = 'https://app.example.com';
beforeAll(async () => {
  tollgate = await startTollgate(({ rootKey }) => ({ GATEWAY_ROOT_KEY: rootKey, GATEWAY_IP_HEADER: 'X-Real-IP' }));
  await tollgate.ok('workspace.updateSettings', { me: { origins: [origin] } });
  ({ apiId } = await tollgate.ok('apis.createApi', { name: 'usage' }));
}, startMsMax);
afterAll(() => tollgate?.stop());

/** The parts of an example that are added to another one, without the comments at the beginning of each. */
const partsOf = (file: string) =>
  readFileSync(`examples/usage/${file}`, 'utf8')
    .split(/^(?:#.*\n)+/m)
    .slice(1);

interface Gateway {
  file: string;
  missing: () => string | undefined;
  /** The example with these lines. */
  withUsage(text: string): string;
  start(dir: string, text: string, port: number): Start;
  host?: string;
  /** It passes the query on, which Tollgate refuses. */
  passesQuery?: true;
}

/** The text with lines before another, which occurs once. */
function before(text: string, line: string, lines: string): string {
  expect(text.split(line)).toHaveLength(2);
  return text.replace(line, () => lines + line);
}

const gateways: Record<string, Gateway> = {
  nginx: {
    file: 'nginx/tollgate.conf',
    missing: missingProgram('nginx', '-v'),
    withUsage: (text) => before(text, '    location / {\n', partsOf('nginx.conf')[0]!),
    start: (dir, text) => nginx(dir, text),
  },
  Caddy: {
    file: 'caddy/Caddyfile',
    missing: () => (findCaddy() ? undefined : 'there is no Caddy of version 2.7 or later here'),
    withUsage: (text) => before(text, '\t\t# The check: `forward_auth`', partsOf('Caddyfile')[0]!),
    start: (dir, text) => caddy(dir, text),
  },
  HAProxy: {
    file: 'haproxy/haproxy.cfg',
    missing: missingProgram('haproxy', '-v'),
    withUsage: (text) => {
      const [rules, backend] = partsOf('haproxy.cfg');
      return `${before(text, '    http-request lua.tollgate\n', rules!)}\n${backend}`;
    },
    start: (dir, text) => haproxy(dir, text, readFileSync('examples/haproxy/tollgate.lua', 'utf8')),
  },
  Traefik: {
    file: 'traefik/tollgate.yml',
    missing: missingProgram('traefik', 'version'),
    withUsage: (text) => {
      const [lines] = partsOf('traefik.yml');
      const partOf = (name: string) => new RegExp(`^  ${name}:\n((?:    .*\n|\n)*)`, 'm').exec(lines!)![1]!;
      return ['routers', 'middlewares', 'services'].reduce(
        (each, name) => each.replace(`\n  ${name}:\n`, () => `\n  ${name}:\n${partOf(name)}`),
        text,
      );
    },
    start: (dir, text, port) => traefik(dir, text, `127.0.0.1:${port}`),
    passesQuery: true,
  },
  Envoy: {
    file: 'envoy/envoy.yaml',
    missing: missingProgram('envoy', '--version'),
    withUsage: (text) => {
      const [line] = /^ +request_headers_to_remove: .*\n/m.exec(text)!;
      const moved = text.replace(line!, '').replace(/^( +)- name: api\n +domains: .*\n/m, (host, indent) => {
        return `${host}${indent}  ${line!.trim()}\n`;
      });
      return before(moved, '                    - name: api\n                      domains', partsOf('envoy.yaml')[0]!);
    },
    start: (dir, text) => envoy(dir, text),
    host: 'usage.example.com',
    passesQuery: true,
  },
};

describe.each(Object.entries(gateways))('%s', (name, gateway) => {
  const why = gateway.missing();
  if (why) console.warn(`${name}: the test of its /usage is SKIPPED: ${why}.`);

  test.skipIf(why !== undefined)('/usage is /v2/me, and the other paths are checked as before', async () => {
    const { hostname, port: tollgatePort } = new URL(tollgate.url);
    const dir = mkdtempSync(join(tmpdir(), 'tollgate-usage-'));
    const port = await freePort();
    const text = gateway
      .withUsage(readFileSync(`examples/${gateway.file}`, 'utf8'))
      .replaceAll('127.0.0.1:8080', `${hostname}:${tollgatePort}`)
      .replace('port_value: 8080', `port_value: ${tollgatePort}`)
      .replace('listen 80;', `listen 127.0.0.1:${port};`)
      .replace(/^:80 \{/m, `http://:${port} {`)
      .replace('bind :80', `bind 127.0.0.1:${port}`)
      .replace('address: 0.0.0.0, port_value: 80 ', `address: 127.0.0.1, port_value: ${port} `);
    const { command, args, env } = gateway.start(dir, text, port);
    const program = run(command, args, env && { env });
    onTestFinished(async () => {
      await program.stop();
      rmSync(dir, { recursive: true });
    });
    const ask = (path: string, headers: Record<string, string> = {}, method = 'GET') =>
      send(port, path, { ...(gateway.host && { host: gateway.host }), ...headers }, method);
    await vi.waitFor(
      async () => {
        if (program.hasEnded()) throw new Error(program.printed());
        expect((await ask('/usage')).status).toBe(401);
      },
      { timeout: 20_000, interval: 100 },
    );

    const limits = [{ name: 'requests', limit: 10, duration: 60_000, autoApply: true }];
    const { key, keyId } = await tollgate.ok('keys.createKey', {
      apiId,
      ratelimits: limits,
      allowedIps: ['127.0.0.1'],
    });
    const headers = { authorization: `Bearer ${key}`, origin, cookie: 'c'.repeat(5000), 'x-real-ip': '198.51.100.1' };
    const answer = await ask('/usage', headers);
    expect(answer.status, answer.text).toBe(200);
    expect(JSON.parse(answer.text).data).toMatchObject({ keyId, ratelimits: [{ used: 0, remaining: 10 }] });
    expect(answer.headers).toMatchObject({ 'cache-control': 'no-store', 'access-control-allow-origin': origin });
    const preflight = await ask('/usage', { origin, 'access-control-request-method': 'GET' }, 'OPTIONS');
    expect([preflight.status, preflight.headers['access-control-allow-headers']]).toEqual([200, 'Authorization']);
    const { key: other } = await tollgate.ok('keys.createKey', { apiId });
    const query = await ask(`/usage?key=${other}`, { authorization: `Bearer ${other}` });
    expect(query.status).toBe(gateway.passesQuery ? 400 : 200);
    expect(program.printed()).not.toContain(key);
    // The other paths need a valid key; there is no API behind this gateway.
    if (!gateway.host) expect((await ask('/orders', { authorization: 'Bearer made_up' })).status).toBe(401);
    expect((await tollgate.ok('keys.explainKey', { keyId })).rules.at(-2)!.ratelimits![0]!.used).toBe(0);
  });
});

/** With node:http, which can send any Host and Origin. */
async function send(port: number, path: string, headers: Record<string, string>, method: string) {
  const sent = request({ host: '127.0.0.1', port, path, headers, method, agent: false });
  sent.end();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  let text = '';
  for await (const part of response) text += part;
  return { status: response.statusCode!, headers: response.headers, text };
}
