// examples/oathkeeper in a real Ory Oathkeeper, which introspects keys at a built Tollgate.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { type Program, run } from '../support/processes.ts';
import { freePort } from '../support/redisNodes.ts';
import { type Reached, startApi } from './api.ts';
import { missingProgram } from './gateway.ts';
import { startMsMax, startTollgate, type Tollgate } from './tollgate.ts';

const why = missingProgram('oathkeeper', 'version')();
if (why) console.warn(`Oathkeeper: the tests of examples/oathkeeper are SKIPPED: ${why}.`);

const read = (file: string) => readFileSync(`examples/oathkeeper/${file}`, 'utf8');

/** Replaces texts that the file must have. */
function changed(text: string, changes: readonly (readonly [from: string, to: string])[]): string {
  return changes.reduce((made, [from, to]) => {
    expect(made).toContain(from);
    return made.replaceAll(from, to);
  }, text);
}

describe.skipIf(why !== undefined)('Oathkeeper', () => {
  const reached: Reached[] = [];
  let tollgate: Tollgate;
  let api: Awaited<ReturnType<typeof startApi>>;
  let oathkeeper: Program;
  let dir: string;
  let url: string;
  let apiId: string;

  beforeAll(async () => {
    [tollgate, api] = await Promise.all([startTollgate(), startApi(reached)]);
    apiId = (await tollgate.ok('apis.createApi', { name: 'behind Oathkeeper' })).apiId;
    const permissions = [`api.${apiId}.verify_key`];
    const rootKey = (await tollgate.ok('rootKeys.createRootKey', { permissions })).key;
    dir = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
    const [proxyPort, apiPort] = [await freePort(), await freePort()];
    const upstream = ['http://127.0.0.1:3000', `http://127.0.0.1:${api.port}`] as const;
    writeFileSync(join(dir, 'rules.yml'), changed(read('rules.yml'), [upstream]));
    const config = changed(read('oathkeeper.yml'), [
      ['host: 0.0.0.0', 'host: 127.0.0.1'],
      ['port: 4455', `port: ${proxyPort}`],
      ['port: 4456', `port: ${apiPort}`],
      ['/etc/oathkeeper', dir],
      ['http://127.0.0.1:8080', tollgate.url],
      ['root_…', rootKey],
    ]);
    writeFileSync(join(dir, 'oathkeeper.yml'), config);
    oathkeeper = run('oathkeeper', ['serve', '-c', join(dir, 'oathkeeper.yml')], {
      env: { ...process.env, HOME: dir },
    });
    url = `http://127.0.0.1:${proxyPort}`;
    const ready = async () => expect((await fetch(`http://127.0.0.1:${apiPort}/health/ready`)).status).toBe(200);
    await vi.waitFor(ready, { timeout: 60_000, interval: 100 }).catch(() => {
      throw new Error(`Oathkeeper does not start: ${oathkeeper.printed()}`);
    });
  }, startMsMax);
  afterAll(async () => {
    await oathkeeper?.stop();
    api?.close();
    await tollgate?.stop();
    if (dir) rmSync(dir, { recursive: true });
  });
  beforeEach(() => {
    reached.length = 0;
  });

  const newKey = (more: object = {}) =>
    tollgate.ok('keys.createKey', { apiId, permissions: ['documents.read'], ...more });
  async function ask(path: string, key?: string, headers: Record<string, string> = {}) {
    const response = await fetch(url + path, {
      headers: { ...headers, ...(key && { authorization: `Bearer ${key}` }) },
    });
    await response.text();
    return response.status;
  }

  test('passes a key with its owner and its id, which a client cannot forge', async () => {
    const { key, keyId } = await newKey({ externalId: 'ada' });
    expect(await ask('/maps', key, { 'X-External-Id': 'eve', 'X-Key-Id': 'key_eve' })).toBe(200);
    expect(reached[0]!.headers).toMatchObject({ 'x-external-id': 'ada', 'x-key-id': keyId });
    expect(reached[0]!.headers.authorization ?? '').toBe('');
    const anonymous = await newKey();
    expect(await ask('/maps', anonymous.key, { 'X-External-Id': 'eve' })).toBe(200);
    expect(reached[1]!.headers['x-external-id'] ?? '').toBe('');
  });

  test('refuses what is no active key of the API, at once after a change', async () => {
    const { key, keyId } = await newKey();
    expect(await ask('/maps', key)).toBe(200);
    await tollgate.ok('keys.updateKey', { keyId, enabled: false });
    const other = (await tollgate.ok('apis.createApi', { name: 'other' })).apiId;
    const stranger = (await tollgate.ok('keys.createKey', { apiId: other, permissions: ['documents.read'] })).key;
    const restricted = (await newKey({ allowedIps: ['0.0.0.0/0'] })).key;
    reached.length = 0;
    for (const refused of [key, stranger, restricted, tollgate.rootKey, 'made_up', 'x'.repeat(10_000), undefined])
      expect(await ask('/maps', refused), refused?.slice(0, 20)).toBe(401);
    expect(reached).toEqual([]);
  });

  test('compares permissions as scopes', async () => {
    const of = async (permissions: string[]) => ask('/maps', (await newKey({ permissions })).key);
    expect(await Promise.all([['documents.read'], ['documents.*'], ['a.b', 'documents.read']].map(of))).toEqual([
      200, 200, 200,
    ]);
    expect(await Promise.all([[], ['documents.write'], ['documents'], ['documents.reader']].map(of))).toEqual([
      403, 403, 403, 403,
    ]);
  });

  test('charges nothing, and passes a key beyond its limit', async () => {
    const ratelimits = [{ name: 'requests', limit: 1, duration: 60_000, autoApply: true }];
    const { key, keyId } = await newKey({ ratelimits, credits: { remaining: 1 } });
    await tollgate.ok('keys.verifyKey', { key });
    for (let times = 0; times < 3; times++) expect(await ask('/maps', key)).toBe(200);
    expect((await tollgate.ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 0 });
  });

  test('lets nothing pass while Redis or Tollgate is away', async () => {
    const { key } = await newKey();
    tollgate.redis.child.kill('SIGSTOP');
    expect(await ask('/maps', key)).toBeGreaterThanOrEqual(500);
    tollgate.redis.child.kill('SIGCONT');
    await vi.waitFor(async () => expect(await ask('/maps', key)).toBe(200), { timeout: 20_000, interval: 200 });
    await tollgate.server.stop();
    reached.length = 0;
    expect(await ask('/maps', key)).toBeGreaterThanOrEqual(500);
    expect(reached).toEqual([]);
    expect(oathkeeper.printed()).not.toContain(key);
  });
});
