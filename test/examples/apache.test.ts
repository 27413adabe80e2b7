// examples/apache in a real Apache httpd with mod_oauth2, which introspects keys at a built Tollgate.

import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { type Program, run } from '../support/processes.ts';
import { freePort } from '../support/redisNodes.ts';
import { type Reached, startApi } from './api.ts';
import { startMsMax, startTollgate, type Tollgate } from './tollgate.ts';

const modules = '/usr/lib/apache2/modules';
const why = existsSync(`${modules}/mod_oauth2.so`) ? undefined : 'there is no Apache httpd with mod_oauth2 here';
if (why) console.warn(`Apache: the tests of examples/apache are SKIPPED: ${why}.`);

/** What Debian's apache2.conf and a2enmod do. */
const loaded = ['mpm_event', 'authn_core', 'authz_core', 'headers', 'proxy', 'proxy_http', 'oauth2'];
const configOf = (dir: string, port: number, example: string) => `ServerRoot ${dir}
ServerName localhost
PidFile ${dir}/pid
ErrorLog ${dir}/error.log
LogLevel warn
Listen 127.0.0.1:${port}
${process.getuid?.() === 0 ? 'User www-data\nGroup www-data' : ''}
${loaded.map((name) => `LoadModule ${name}_module ${modules}/mod_${name}.so`).join('\n')}
${example}`;

/** Replaces texts that the example must have. */
function changed(text: string, changes: readonly (readonly [from: string, to: string])[]): string {
  return changes.reduce((made, [from, to]) => {
    expect(made).toContain(from);
    return made.replaceAll(from, to);
  }, text);
}

describe.skipIf(why !== undefined)('Apache', () => {
  const reached: Reached[] = [];
  let tollgate: Tollgate;
  let api: Awaited<ReturnType<typeof startApi>>;
  let apache: Program;
  let dir: string;
  let url: string;
  let apiId: string;
  const log = () => readFileSync(join(dir, 'error.log'), 'utf8');

  beforeAll(async () => {
    [tollgate, api] = await Promise.all([startTollgate(), startApi(reached)]);
    apiId = (await tollgate.ok('apis.createApi', { name: 'behind Apache' })).apiId;
    const permissions = [`api.${apiId}.verify_key`];
    const rootKey = (await tollgate.ok('rootKeys.createRootKey', { permissions })).key;
    dir = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
    const port = await freePort();
    const example = changed(readFileSync('examples/apache/tollgate.conf', 'utf8'), [
      ['*:80', `127.0.0.1:${port}`],
      ['http://127.0.0.1:8080', tollgate.url],
      ['http://127.0.0.1:3000', `http://127.0.0.1:${api.port}`],
      ['root_…', rootKey],
    ]);
    writeFileSync(join(dir, 'httpd.conf'), configOf(dir, port, example));
    apache = run('apache2', ['-X', '-f', join(dir, 'httpd.conf')]);
    url = `http://127.0.0.1:${port}`;
    await vi
      .waitFor(() => fetch(url), { timeout: 30_000, interval: 100 })
      .catch(() => {
        throw new Error(`Apache does not start: ${apache.printed()}`);
      });
  }, startMsMax);
  afterAll(async () => {
    await apache?.stop();
    api?.close();
    await tollgate?.stop();
    if (dir) rmSync(dir, { recursive: true });
  });
  beforeEach(() => {
    reached.length = 0;
  });

  const newKey = (more: object = {}) => tollgate.ok('keys.createKey', { apiId, ...more });
  async function ask(key?: string, headers: Record<string, string> = {}) {
    const response = await fetch(`${url}/maps`, {
      headers: { ...headers, ...(key && { authorization: `Bearer ${key}` }) },
    });
    await response.text();
    return response.status;
  }

  test('passes a key with its id, owner and permissions, which a client cannot forge', async () => {
    const forged = { 'X-External-Id': 'eve', 'X-Key-Id': 'key_eve', 'X-Permissions': '*', 'OAUTH2-CLAIM-sub': 'eve' };
    const [owned, plain] = [await newKey({ externalId: 'ada', permissions: ['a.b', 'documents.*'] }), await newKey()];
    expect([await ask(owned.key, forged), await ask(plain.key, forged)]).toEqual([200, 200]);
    const [first, second] = reached.map(({ headers }) => headers);
    expect(first).toMatchObject({ 'x-external-id': 'ada', 'x-key-id': owned.keyId });
    expect(String(first!['x-permissions']).split(' ').sort()).toEqual(['a.b', 'documents.*']);
    expect(second).toMatchObject({ 'x-external-id': '', 'x-key-id': plain.keyId, 'x-permissions': '' });
    expect(first).not.toHaveProperty('authorization');
  });

  test('a client removes none of these headers by `Connection`, and sends none with `_`', async () => {
    const { key, keyId } = await newKey({ externalId: 'ada' });
    const ids = ['Key', 'External'].flatMap((name) => [`X_${name}_Id`, `X-${name}_Id`, `X_${name}-Id`]);
    const forged = [...ids, 'X_Permissions'].map((name) => `${name}: eve`);
    const sent = [`Authorization: Bearer ${key}`, 'Connection: X-External-Id, X-Key-Id, X-Permissions', ...forged];
    const head = ['GET /maps HTTP/1.1', 'Host: localhost', ...sent, '', ''].join('\r\n');
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.write(head);
    await once(socket, 'data');
    socket.destroy();
    expect(reached[0]!.headers).toMatchObject({ 'x-external-id': 'ada', 'x-key-id': keyId, 'x-permissions': '' });
    expect(JSON.stringify(reached)).not.toContain('eve');
  });

  test('refuses what is no active key of the API, a second after a change', async () => {
    const { key, keyId } = await newKey();
    expect(await ask(key)).toBe(200);
    await tollgate.ok('keys.updateKey', { keyId, enabled: false });
    const other = (await tollgate.ok('apis.createApi', { name: 'other' })).apiId;
    const stranger = await tollgate.ok('keys.createKey', { apiId: other });
    const restricted = (await newKey({ allowedIps: ['0.0.0.0/0'] })).key;
    await delay(2100);
    reached.length = 0;
    for (const refused of [key, stranger.key, restricted, tollgate.rootKey, 'made_up', 'x'.repeat(5000), undefined])
      expect([refused?.slice(0, 20), await ask(refused)]).toEqual([refused?.slice(0, 20), 401]);
    expect(reached).toEqual([]);
  });

  test('charges nothing, and passes a key beyond its limit', async () => {
    const ratelimits = [{ name: 'requests', limit: 1, duration: 60_000, autoApply: true }];
    const { key, keyId } = await newKey({ ratelimits, credits: { remaining: 1 } });
    await tollgate.ok('keys.verifyKey', { key });
    for (let times = 0; times < 3; times++) expect(await ask(key)).toBe(200);
    expect((await tollgate.ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 0 });
  });

  test('lets nothing pass while Redis or Tollgate is away', async () => {
    const { key } = await newKey();
    tollgate.redis.child.kill('SIGSTOP');
    expect(await ask(key)).toBeGreaterThanOrEqual(401);
    tollgate.redis.child.kill('SIGCONT');
    await vi.waitFor(async () => expect(await ask(key)).toBe(200), { timeout: 20_000, interval: 200 });
    await tollgate.server.stop();
    await delay(2100);
    reached.length = 0;
    expect(await ask(key)).toBeGreaterThanOrEqual(401);
    expect(reached).toEqual([]);
    expect(log()).toContain('127.0.0.1');
    expect(log()).not.toContain(key);
  });
});
