// Many concurrent requests, through real sockets and on Redis's own clock: the sums of admissions and charges are
// exact, with one server and with two.

import { pino } from 'pino';
import Type from 'typebox';
import { afterAll, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { createId } from '../../src/domain/keyString.ts';
import { createPipeline } from '../../src/http/pipeline.ts';
import { listen, type Server } from '../../src/http/server.ts';
import { manages } from '../../src/operation.ts';
import { type OperationName, operations } from '../../src/operations/index.ts';
import { Fields } from '../../src/operations/schemas.ts';
import { openStore, type Store } from '../../src/store.ts';
import { harness, hourMs, type InputOf, requestTo, testSettings } from '../support/harness.ts';
import { testRedisUrl } from '../support/redis.ts';

const tollgate = harness();

interface Running {
  store: Store;
  server: Server;
}
const running: Running[] = [];

async function start(): Promise<Running> {
  const store = await openStore({ ...testSettings, url: testRedisUrl() });
  const answer = createPipeline(operations, { store, log: pino({ level: 'silent' }), metaBytesMax: 10_240 });
  const newRequestId = () => createId('req', Date.now());
  const server = await listen({ host: '127.0.0.1', port: 0, handler: answer, bodyBytesMax: 1_000_000, newRequestId });
  return { store, server };
}

beforeAll(async () => {
  running.push(await start(), await start());
});
afterAll(async () => {
  for (const { store, server } of running) {
    await server.close();
    await store.close();
  }
});

async function post<Name extends OperationName>(port: number, name: Name, input: InputOf<Name>) {
  const response = await fetch(`http://127.0.0.1:${port}/v2/${name}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${tollgate.rootKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(input),
  });
  const json = (await response.json()) as { meta: { requestId: string }; data: Record<string, unknown> };
  expect(response.status, JSON.stringify(json)).toBe(200);
  expect(response.headers.get('x-request-id')).toBe(json.meta.requestId);
  return { requestId: json.meta.requestId, data: json.data };
}

/** Sends the same request this many times at once, to the servers in turn. */
const together = <Name extends OperationName>(servers: Running[], count: number, name: Name, input: InputOf<Name>) =>
  Promise.all(
    Array.from({ length: count }, (_, index) => post(servers[index % servers.length]!.server.port, name, input)),
  );

let first: number;
beforeEach(() => {
  first = running[0]!.server.port;
});

test.each([
  { servers: 'one server', count: 1 },
  { servers: 'two servers on one Redis', count: 2 },
])('$servers: of 500 verifications a limit of 60 admits 60, and 100 credits become 40', async ({ count }) => {
  const api = (await post(first, 'apis.createApi', { name: 'busy' })).data as { apiId: string };
  const ratelimits = [{ name: 'requests', limit: 60, duration: hourMs, autoApply: true }];
  const created = await post(first, 'keys.createKey', { ...api, credits: { remaining: 100 }, ratelimits });
  const { keyId, key } = created.data as { keyId: string; key: string };

  const answers = await together(running.slice(0, count), 500, 'keys.verifyKey', { key });

  const valid = answers.filter(({ data }) => data.code === 'VALID').map(({ data }) => data);
  expect(valid).toHaveLength(60);
  expect(answers.filter(({ data }) => data.code === 'RATE_LIMITED')).toHaveLength(440);
  // Each response has a different balance, so each credit was charged once.
  expect(valid.map(({ credits }) => credits).sort((a, b) => Number(b) - Number(a))).toEqual(
    Array.from({ length: 60 }, (_, index) => 99 - index),
  );
  expect((await post(first, 'keys.getKey', { keyId })).data).toMatchObject({ credits: { remaining: 40 } });
  expect(new Set(answers.map(({ requestId }) => requestId)).size).toBe(500);
});

test.each([1, 2])('%d server(s): of 300 verifications 100 credits pay for 100', async (count) => {
  const api = (await post(first, 'apis.createApi', { name: 'metered' })).data as { apiId: string };
  const ratelimits = [{ name: 'requests', limit: 1000, duration: hourMs, autoApply: true }];
  const created = await post(first, 'keys.createKey', { ...api, credits: { remaining: 100 }, ratelimits });
  const { key } = created.data as { key: string };

  const answers = await together(running.slice(0, count), 300, 'keys.verifyKey', { key });

  expect(answers.filter(({ data }) => data.code === 'VALID')).toHaveLength(100);
  expect(answers.filter(({ data }) => data.code === 'USAGE_EXCEEDED')).toHaveLength(200);
  // Verifications that the credits refused did not charge the limit.
  const look = { key, credits: { cost: 0 }, ratelimits: [{ name: 'requests', cost: 0 }] };
  expect((await post(first, 'keys.verifyKey', look)).data).toMatchObject({
    credits: 0,
    ratelimits: [{ name: 'requests', remaining: 900 }],
  });
});

test.each([1, 2])('%d server(s): keys of one identity share its limit', async (count) => {
  const api = (await post(first, 'apis.createApi', { name: 'shared' })).data as { apiId: string };
  const externalId = `shared_${count}`;
  const ratelimits = [{ name: 'requests', limit: 50, duration: hourMs, autoApply: true }];
  await post(first, 'identities.createIdentity', { externalId, ratelimits });
  const keys: string[] = [];
  for (let index = 0; index < 4; index++) {
    keys.push((await post(first, 'keys.createKey', { ...api, externalId })).data.key as string);
  }
  const rounds = await Promise.all(keys.map((key) => together(running.slice(0, count), 50, 'keys.verifyKey', { key })));
  expect(rounds.flat().filter(({ data }) => data.valid)).toHaveLength(50);
});

test('two servers: of 300 limit checks the limit is admitted', async () => {
  const request = { namespace: 'concurrency', identifier: 'alice', limit: 70, duration: hourMs };
  const answers = await together(running, 300, 'ratelimits.limit', request);
  expect(answers.filter(({ data }) => data.success)).toHaveLength(70);
});

test('two servers: a change by one applies immediately on the other, which has the key cached', async () => {
  const [one, two] = running.map(({ server }) => server.port) as [number, number];
  const api = (await post(one, 'apis.createApi', { name: 'seen' })).data as { apiId: string };
  const { keyId, key } = (await post(one, 'keys.createKey', { ...api, name: 'before' })).data as {
    keyId: string;
    key: string;
  };
  const verify = async () => (await post(two, 'keys.verifyKey', { key })).data;
  expect(await verify()).toMatchObject({ code: 'VALID', name: 'before' });
  await post(one, 'keys.updateKey', { keyId, name: 'after', meta: { plan: 'pro' } });
  expect(await verify()).toMatchObject({ code: 'VALID', name: 'after', meta: { plan: 'pro' } });
  await post(one, 'keys.updateKey', { keyId, enabled: false });
  expect(await verify()).toMatchObject({ code: 'DISABLED' });
  await post(one, 'keys.deleteKey', { keyId });
  expect(await verify()).toEqual({ valid: false, code: 'NOT_FOUND' });
});

test('the balance is never below 0 while many charge and change it concurrently', async () => {
  const api = (await post(first, 'apis.createApi', { name: 'last' })).data as { apiId: string };
  const created = await post(first, 'keys.createKey', { ...api, credits: { remaining: 20 } });
  const { keyId, key } = created.data as { keyId: string; key: string };
  const [verified] = await Promise.all([
    together(running, 100, 'keys.verifyKey', { key }),
    together(running, 30, 'keys.updateCredits', { keyId, operation: 'increment', value: 1 }),
  ]);
  const spent = verified.filter(({ data }) => data.valid).length;
  const { credits } = (await post(first, 'keys.getKey', { keyId })).data as { credits: { remaining: number } };
  expect(credits.remaining).toBe(20 + 30 - spent);
});

test.each([
  { kind: 'with large bodies', large: 'x'.repeat(32_768), readsMuch: false },
  { kind: 'that may read much', large: 'much', readsMuch: true },
])('of management requests $kind two of a workspace run at a time, besides its other requests', async (of) => {
  const ends: (() => void)[] = [];
  let working = 0;
  const slowOrSmall = (name: 'test.slow' | 'test.small') => ({
    name,
    summary: '',
    input: Fields({ text: Type.String() }),
    output: Type.Object({}),
    needs: {},
    scope: () => undefined,
    async handle({ text }: { text: string }) {
      if (text === 'small') return {};
      working++;
      await new Promise<void>((resolve) => ends.push(resolve));
      working--;
      return {};
    },
  });
  const slow = manages({ ...slowOrSmall('test.slow'), ...(of.readsMuch && { readsMuch: true as const }) });
  const small = manages(slowOrSmall('test.small'));
  const { store } = running[0]!;
  const answer = createPipeline([slow, small], { store, log: pino({ level: 'silent' }), metaBytesMax: 0 });
  const { rootKey: otherRootKey } = await tollgate.createWorkspace();
  const ask = (text: string, rootKey = tollgate.rootKey) =>
    answer(requestTo(`/v2/test.${text === 'small' ? 'small' : 'slow'}`, rootKey, { body: JSON.stringify({ text }) }));

  const large = Array.from({ length: 5 }, () => ask(of.large));
  await vi.waitFor(() => expect(working).toBe(2));
  expect((await ask('small')).status).toBe(200);
  const others = ask(of.large, otherRootKey);
  await vi.waitFor(() => expect(working).toBe(3));
  for (let ended = 0; ended < 6; ended++) {
    await vi.waitFor(() => expect(ends.length).toBeGreaterThan(ended));
    expect(working).toBeLessThanOrEqual(3);
    ends[ended]!();
  }
  expect((await Promise.all([...large, others])).map(({ status }) => status)).toEqual(Array(6).fill(200));
});
