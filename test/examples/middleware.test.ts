// examples/middleware: each program, started as its first lines describe, with the built Tollgate.

import { readdirSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { addressOf, type Program, run } from '../support/processes.ts';
import { startMsMax, startTollgate, type Tollgate } from './tollgate.ts';

const programs = readdirSync('examples/middleware');

let tollgate: Tollgate;
let apiId: string;
beforeAll(async () => {
  tollgate = await startTollgate();
  apiId = (await tollgate.ok('apis.createApi', { name: 'examples' })).apiId;
}, startMsMax);
afterAll(() => tollgate?.stop());

test('there are four of them', () => {
  expect(programs.sort()).toEqual(['express.mjs', 'fastify.mjs', 'fetch.mjs', 'hono.mjs']);
});

describe.each(programs)('%s', (name) => {
  let program: Program;
  let address: string;

  async function start(more: Record<string, string> = {}) {
    const env = { TOLLGATE_URL: tollgate.url, TOLLGATE_ROOT_KEY: tollgate.rootKey, PORT: '0', PATH: process.env.PATH };
    const started = run(process.execPath, [`examples/middleware/${name}`], { env: { ...env, ...more } });
    return { started, at: await addressOf(started) };
  }
  beforeAll(async () => {
    ({ started: program, at: address } = await start());
  });
  afterAll(() => program.stop());

  const ask = async (authorization?: string, at = address) => {
    const response = await fetch(`${at}/api/hello`, { headers: authorization ? { authorization } : {} });
    const { status, headers } = response;
    return {
      status,
      text: await response.text(),
      challenge: headers.get('www-authenticate'),
      retryAfter: headers.get('retry-after'),
    };
  };
  const newKey = async (more: object) => (await tollgate.ok('keys.createKey', { apiId, ...more })).key;

  test('a valid key passes, and the program gets its owner', async () => {
    const key = await newKey({ externalId: 'ada' });
    expect(await ask(`Bearer ${key}`)).toMatchObject({ status: 200, text: '{"hello":"ada"}', retryAfter: null });
  });

  test.each([undefined, 'Bearer made_up', 'Basic YTpi', 'Bearer'])(
    '401 with a challenge: %s',
    async (authorization) => {
      expect(await ask(authorization)).toMatchObject({ status: 401, challenge: 'Bearer' });
    },
  );

  test('403 for a key that is disabled', async () => {
    expect(await ask(`Bearer ${await newKey({ enabled: false })}`)).toMatchObject({ status: 403, challenge: null });
  });

  test('429 with Retry-After if the limit is exceeded, and without it if the credits are used up', async () => {
    const key = await newKey({ ratelimits: [{ name: 'requests', limit: 1, duration: 3_600_000, autoApply: true }] });
    expect((await ask(`Bearer ${key}`)).status).toBe(200);
    const limited = await ask(`Bearer ${key}`);
    expect(limited.status).toBe(429);
    expect(Number(limited.retryAfter)).toBeGreaterThan(3_500);
    expect(Number(limited.retryAfter)).toBeLessThanOrEqual(3_601);
    expect(await ask(`Bearer ${await newKey({ credits: { remaining: 0 } })}`)).toMatchObject({
      status: 429,
      retryAfter: null,
    });
  });

  test.each(['TOLLGATE_URL', 'TOLLGATE_ROOT_KEY'])(
    'does not start without %s, nor with an empty one',
    async (setting) => {
      const set: Record<string, string> = {
        TOLLGATE_URL: tollgate.url,
        TOLLGATE_ROOT_KEY: tollgate.rootKey,
        PORT: '0',
      };
      const { [setting]: _, ...unset } = set;
      for (const env of [unset, { ...set, [setting]: '' }]) {
        const started = run(process.execPath, [`examples/middleware/${name}`], { env });
        onTestFinished(async () => void (await started.stop()));
        // A program that listens is stopped, so that the test fails at once if it starts.
        started.child.stdout!.once('data', () => void started.stop());
        expect(await started.ended).toBe(1);
        expect(started.err).toMatch(new RegExp(`^Set .*${setting}.*\n$`));
        expect(started.out).toBe('');
      }
    },
  );

  test('failOpen: without Tollgate every request passes unchecked; with a refused root key none does', async () => {
    const key = await newKey({});
    const startOpen = async (more: Record<string, string>) => {
      const { started, at } = await start({ FAIL_OPEN: 'true', ...more });
      onTestFinished(async () => void (await started.stop()));
      return at;
    };
    const away = await startOpen({ TOLLGATE_URL: 'http://127.0.0.1:9' });
    expect(await ask(`Bearer ${key}`, away)).toMatchObject({ status: 200, text: '{"hello":"unchecked"}' });
    expect(await ask('Bearer made_up', away)).toMatchObject({ status: 200, text: '{"hello":"unchecked"}' });
    const misconfigured = await startOpen({ TOLLGATE_ROOT_KEY: `${tollgate.rootKey}x` });
    expect((await ask(`Bearer ${key}`, misconfigured)).status).toBe(503);
    const well = await startOpen({});
    expect((await ask('Bearer made_up', well)).status).toBe(401);
    expect((await ask(`Bearer ${'k'.repeat(7_000)}`, well)).status).not.toBe(200);
    expect((await ask(`Bearer ${key}`, well)).status).toBe(200);
  });

  test('503 without Tollgate or with a refused root key, and the key is not printed', async () => {
    const key = await newKey({});
    const wrong: Record<string, string>[] = [
      { TOLLGATE_URL: 'http://127.0.0.1:9' },
      { TOLLGATE_ROOT_KEY: `${tollgate.rootKey}x` },
    ];
    for (const env of wrong) {
      const { started, at } = await start(env);
      onTestFinished(async () => void (await started.stop()));
      expect(await ask(`Bearer ${key}`, at)).toMatchObject({ status: 503, retryAfter: '1' });
      await started.stop();
      expect(started.printed()).toMatch(/^Tollgate: /m);
      for (const secret of [key, tollgate.rootKey]) expect(started.printed()).not.toContain(secret);
    }
  });
});

describe('without Redis', () => {
  test.each([503, 200])('%i from each program, closed or open, within about a second', async (status) => {
    const { key } = await tollgate.ok('keys.createKey', { apiId });
    const env = { TOLLGATE_URL: tollgate.url, TOLLGATE_ROOT_KEY: tollgate.rootKey, PORT: '0', PATH: process.env.PATH };
    const failOpen = status === 200 ? { FAIL_OPEN: 'true' } : {};
    const started = programs.map((name) =>
      run(process.execPath, [`examples/middleware/${name}`], { env: { ...env, ...failOpen } }),
    );
    for (const program of started) onTestFinished(async () => void (await program.stop()));
    const addresses = await Promise.all(started.map(addressOf));
    onTestFinished(() => void tollgate.redis.child.kill('SIGCONT'));
    tollgate.redis.child.kill('SIGSTOP');
    const answers = await Promise.all(
      addresses.map((at) => fetch(`${at}/api/hello`, { headers: { authorization: `Bearer ${key}` } })),
    );
    expect(answers.map((answer) => answer.status)).toEqual([status, status, status, status]);
    const retryAfter = status === 503 ? '1' : null;
    expect(answers.map(({ headers }) => headers.get('retry-after'))).toEqual(Array(4).fill(retryAfter));
    tollgate.redis.child.kill('SIGCONT');
    await vi.waitFor(() => tollgate.ok('apis.getApi', { apiId }), { timeout: 5_000, interval: 50 });
  });
});
