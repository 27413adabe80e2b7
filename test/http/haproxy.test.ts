// A real HAProxy in front of the built server. An attacker and a victim share one connection to the server, as HAProxy
// reuses its connections. It passes trailers on unchanged, which uWebSockets.js parses as a request.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { startMsMax, startTollgate, type Tollgate } from '../examples/tollgate.ts';
import { blocksOf } from '../support/folder.ts';
import { type Program, run } from '../support/processes.ts';
import { freePort } from '../support/redisNodes.ts';
import { thoroughTest } from '../support/testIf.ts';

const hasHaproxy = spawnSync('haproxy', ['-v']).status === 0;

/**
 * Sends each part in a packet of its own. Returns what it received until the connection closed or was silent for 0.5 s.
 */
async function exchange(port: number, parts: readonly string[]): Promise<string> {
  const socket = connect(port, '127.0.0.1').setNoDelay();
  let text = '';
  socket.on('error', () => {}).on('data', (data) => (text += data.toString('latin1')));
  const closed = new Promise((resolve) => socket.once('close', resolve));
  for (const part of parts) {
    if (socket.destroyed) break;
    await new Promise((resolve) => socket.write(part, resolve));
    if (parts.length > 1) await delay(20);
  }
  socket.setTimeout(500, () => socket.destroy());
  await closed;
  return text;
}

describe.skipIf(!hasHaproxy)('HAProxy', () => {
  let tollgate: Tollgate;
  let haproxy: Program;
  let dir: string;
  let port: number;
  /** The attacker's key. It has credits, so that each request that is served for it is visible. */
  let own: { key: string; keyId: string };

  beforeAll(async () => {
    tollgate = await startTollgate(({ rootKey }) => ({ GATEWAY_ROOT_KEY: rootKey, LOG_LEVEL: 'warn' }));
    const { apiId } = await tollgate.ok('apis.createApi', { name: 'haproxy' });
    own = await tollgate.ok('keys.createKey', { apiId, credits: { remaining: 1_000_000 } });
    dir = mkdtempSync(join(tmpdir(), 'tollgate-haproxy-'));
    port = await freePort();
    const conf = `
      defaults
        mode http
        timeout connect 5s
        timeout client 30s
        timeout server 30s
        timeout queue 30s
      frontend all
        bind 127.0.0.1:${port}
        default_backend tollgate
      backend tollgate
        http-reuse always
        server only ${new URL(tollgate.url).host} maxconn 1
    `;
    writeFileSync(join(dir, 'haproxy.cfg'), `${conf.trim()}\n`);
    haproxy = run('haproxy', ['-db', '-f', join(dir, 'haproxy.cfg')]);
    await vi.waitFor(() => fetch(`http://127.0.0.1:${port}/v2/liveness`), { timeout: 10_000, interval: 20 });
  }, startMsMax);
  afterAll(async () => {
    await haproxy?.stop();
    await tollgate?.stop();
    if (dir) rmSync(dir, { recursive: true });
  });

  const creditsLeft = async () => (await tollgate.ok('keys.getKey', { keyId: own.keyId })).credits?.remaining;

  const chunked = (line: string, text: string, trailers: string) =>
    [
      `${line} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`,
      `${text.length.toString(16)}\r\n${text}\r\n`,
      `0\r\n${trailers}\r\n`,
    ] as const;

  /** A gateway check whose body is the beginning of the next request on the connection. */
  const check = (bodyBytes: number) =>
    `aax: /v2/gateway/check HTTP/1.1\r\nhost: t\r\nauthorization: Bearer ${own.key}\r\ncontent-length: ${bodyBytes}\r\n`;

  const lines = ['POST /v2/nothing', 'GET /v2/liveness', 'GET /v2/gateway/check', 'PUT /v2/keys.verifyKey'];
  const attacks = () =>
    lines.flatMap((line) =>
      [0, 200].flatMap((bodyBytes) => {
        const [head, body, end] = chunked(line, '{}', check(bodyBytes));
        return [[head + body + end], [head + body, end], [head, body, end.slice(0, 5), end.slice(5)]];
      }),
    );

  thoroughTest('a client gets the responses to its own requests, with an attacker on the same connection', async () => {
    let stopped = false;
    /**
     * Sends requests on one connection. Each response must be NOT_FOUND, or an error that contains the request's own
     * name.
     */
    const victim = (async () => {
      const answers: string[] = [];
      for (let call = 0; !stopped; call++) {
        const key = `made_up_by_nobody_${call}`;
        const response = await fetch(`http://127.0.0.1:${port}/v2/keys.verifyKey`, {
          method: 'POST',
          headers: { authorization: `Bearer ${tollgate.rootKey}`, 'content-type': 'application/json' },
          // An error repeats the name, which identifies the request.
          body: JSON.stringify(call % 2 === 0 ? { key } : { key, [key]: 1 }),
        });
        const text = await response.text();
        const isOwn = call % 2 === 0 ? text.includes('"code":"NOT_FOUND"') : text.includes(`${key}"`);
        answers.push(`${response.status} ${isOwn ? 'of its own' : text}`);
        // Many requests per attack, without using up the processor.
        await delay(3);
      }
      return answers;
    })();
    const before = await creditsLeft();
    const attacked: string[] = [];
    for (const parts of attacks()) attacked.push(await exchange(port, parts));
    stopped = true;
    const answers = await victim;
    expect(answers.length).toBeGreaterThan(50);
    expect([...new Set(answers)].sort()).toEqual(['200 of its own', '400 of its own']);
    expect(await creditsLeft()).toBe(before);
    for (const text of attacked) expect(text.match(/HTTP\/1\.1 (?!100)\d+ /g)).toHaveLength(1);
  });

  test('a chunked body without trailers gets a response, and so does the next request', async () => {
    const answers = await exchange(port, [
      chunked('GET /v2/liveness', '{}', '').join(''),
      'GET /v2/liveness HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n',
    ]);
    expect(answers.match(/HTTP\/1\.1 200 /g)).toHaveLength(2);
  });

  test('HAProxy refuses a header without a name, after which uWebSockets.js ignores all headers', async () => {
    const request = 'GET /v2/liveness HTTP/1.1\r\nHost: t\r\n: x\r\nContent-Length: 0\r\n\r\n';
    expect(await exchange(port, [request])).toMatch(/^HTTP\/1\.1 400 Bad request/);
  });

  test("operate.md's health check passes, and a plain one gets 505", async () => {
    const [lines] = blocksOf('docs/operate.md', 'haproxy');
    const { host } = new URL(tollgate.url);
    const documented = lines!.replaceAll(/10\.0\.0\.\d:8080/g, host).replace('inter 2s', 'inter 50ms');
    const statsPort = await freePort();
    const conf = `
defaults
  mode http
  timeout connect 5s
  timeout client 5s
  timeout server 5s
frontend stats
  bind 127.0.0.1:${statsPort}
  stats uri /stats
${documented.trim()}
backend plain
  option httpchk GET /health/ready
  server only ${host} check inter 50ms
`;
    writeFileSync(join(dir, 'health.cfg'), conf.trimStart());
    const checked = run('haproxy', ['-db', '-f', join(dir, 'health.cfg')]);
    try {
      await vi.waitFor(
        async () => {
          const csv = await (await fetch(`http://127.0.0.1:${statsPort}/stats;csv`)).text();
          const [headings, ...rows] = csv.trim().split('\n');
          const at = (name: string) => headings!.replace('# ', '').split(',').indexOf(name);
          const servers = rows.map((row) => row.split(',')).filter((row) => row[at('check_code')] !== '');
          const found = servers.map((row) => ['pxname', 'svname', 'status', 'check_code'].map((name) => row[at(name)]));
          expect(found).toEqual([
            ['tollgate', 'first', 'UP', '200'],
            ['tollgate', 'second', 'UP', '200'],
            ['plain', 'only', 'DOWN', '505'],
          ]);
        },
        { timeout: 20_000, interval: 50 },
      );
    } finally {
      await checked.stop();
    }
  });
});
