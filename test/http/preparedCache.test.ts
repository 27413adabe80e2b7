import { pino } from 'pino';
import Type from 'typebox';
import { beforeEach, describe, expect, test } from 'vitest';
import type { PresentedRootKey } from '../../src/domain/caller.ts';
import { presented } from '../../src/domain/keyString.ts';
import { createPipeline } from '../../src/http/pipeline.ts';
import { PreparedCache } from '../../src/http/preparedCache.ts';
import { decides } from '../../src/operation.ts';
import { Fields, Int } from '../../src/operations/schemas.ts';
import { harness, type RequestParts, requestTo } from '../support/harness.ts';

const one = presented('root_1111111111111111_one');
const two = presented('root_1111111111111111_two');
const body = Buffer.from('{"key":"k"}');
const accepted = () => true;

/** What the cache has for a request; undefined when it prepares it. */
const find = <Prepared>(cache: PreparedCache<Prepared | undefined>, rootKey: PresentedRootKey, of: Buffer) =>
  cache.get(rootKey, of, () => undefined);

function addTo<Prepared>(cache: PreparedCache<Prepared>, rootKey: PresentedRootKey, of: Buffer, prepared: Prepared) {
  for (let use = 1; use <= 2; use++) cache.get(rootKey, of, () => prepared);
}

describe('PreparedCache', () => {
  test('has what the second use gave, for the same root key and body, and nothing for others', () => {
    const cache = new PreparedCache<string | undefined>(accepted);
    expect(cache.get(one, body, () => 'first')).toBe('first');
    expect(cache.get(one, body, () => 'second')).toBe('second');
    expect(find(cache, presented('root_1111111111111111_one'), Buffer.from(body))).toBe('second');
    expect(find(cache, two, body)).toBeUndefined();
    expect(find(cache, one, Buffer.from('{"key":"l"}'))).toBeUndefined();
    expect(find(cache, one, Buffer.from('{"key":"k"} '))).toBeUndefined();
  });

  test('never returns what belongs to a body with the same short hash', () => {
    const count = 200_000;
    const bodies = Array.from({ length: count }, (_, index) => Buffer.from(`{"key":"${index}"}`));
    // By the random beginning of a cache's hash of 30 bits, 20 to 60 of these have that of another one, and more than
    // 100 in one of 40 caches.
    const kept = [1, 2, 3].map(() => {
      const cache = new PreparedCache<number | undefined>(accepted, count);
      for (const [index, each] of bodies.entries()) addTo(cache, one, each, index);
      const found = bodies.map((each) => find(cache, one, each));
      expect(found.filter((each, index) => each !== undefined && each !== index)).toEqual([]);
      return found.filter((each) => each !== undefined).length;
    });
    expect(Math.max(...kept)).toBeGreaterThan(count - 100);
  });

  test('has at most two generations, and keeps what is used', () => {
    const cache = new PreparedCache<number | undefined>(accepted, 100);
    addTo(cache, one, body, -1);
    for (let index = 0; index < 1000; index++) {
      addTo(cache, two, Buffer.from(`{"key":"${index}"}`), index);
      expect(find(cache, one, body)).toBe(-1);
    }
    const found = Array.from({ length: 1000 }, (_, index) => find(cache, two, Buffer.from(`{"key":"${index}"}`)));
    expect(found.filter((each) => each !== undefined).length).toBeLessThanOrEqual(200);
  });

  test('adds only a part of bodies in turns that are many more than it has place for', () => {
    const cache = new PreparedCache<number | undefined>(accepted);
    const bodies = Array.from({ length: 100_000 }, (_, index) => Buffer.from(`{"key":"${index}"}`));
    for (const each of [...bodies, ...bodies]) cache.get(one, each, () => 1);
    expect(bodies.filter((each) => find(cache, one, each) !== undefined).length).toBeLessThan(1000);
  });

  test('does not cache long bodies', () => {
    const cache = new PreparedCache<number | undefined>(accepted);
    for (const length of [512, 513]) addTo(cache, one, Buffer.alloc(length, ' '), length);
    expect([512, 513].map((length) => find(cache, one, Buffer.alloc(length, ' ')))).toEqual([512, undefined]);
  });
});

describe('the pipeline', () => {
  const tollgate = harness();
  let prepared = 0;

  /** Decides input without Redis, unless `at` is redis. */
  const operationOf = (name: string) =>
    decides({
      name,
      summary: 'For this test.',
      input: Fields({ n: Int([0, 5]), at: Type.Optional(Type.String()) }),
      output: Type.Integer(),
      needs: {},
      prepare({ n, at }) {
        prepared++;
        return { decide: () => (at === 'redis' ? Promise.resolve(`${n}`) : `${n}`) };
      },
    });
  let answer: ReturnType<typeof createPipeline>;
  /** Root keys that Redis has accepted. */
  let known: Record<string, string>;
  beforeEach(async () => {
    const [root_1, root_2] = [await tollgate.createRootKey(['*']), await tollgate.createRootKey(['*'])];
    known = { root_1, root_2 };
    for (const rootKey of [root_1, root_2]) await tollgate.call('rootKeys.whoami', {}, rootKey);
    prepared = 0;
    answer = createPipeline(['test.decides', 'test.again'].map(operationOf), {
      store: tollgate.store,
      log: pino({ level: 'silent' }),
      metaBytesMax: 0,
    });
  });

  async function send(parts: RequestParts = {}, rootKey = 'root_1') {
    const request = requestTo(parts.path ?? '/v2/test.decides', known[rootKey] ?? rootKey, {
      body: '{"n":1}',
      ...parts,
    });
    const { status, body } = await answer(request);
    return status === 200 ? (JSON.parse(body).data as number) : status;
  }

  test.each(['{"n":1}', '{"n":1,"at":"redis"}'])('prepares a repeated request twice: %s', async (body) => {
    const sent = [body, body, '{"n":2}', body, body].map((body) => send({ body }));
    expect(await Promise.all(sent)).toEqual([1, 1, 2, 1, 1]);
    expect(prepared).toBe(3);
  });

  test('prepares it for each root key and operation', async () => {
    for (let use = 1; use <= 3; use++) for (const rootKey of ['root_1', 'root_2']) await send({}, rootKey);
    expect(prepared).toBe(4);
    for (let use = 1; use <= 3; use++) await send({ path: '/v2/test.again' });
    expect(prepared).toBe(6);
  });

  test('checks the rest of a prepared request each time', async () => {
    for (let use = 1; use <= 2; use++) await send();
    const refused = await Promise.all([
      send({ method: 'GET' }),
      send({ contentType: 'text/plain' }),
      send({ authorization: 'Basic root_1' }),
      send({ hasQuery: true }),
      send({ path: '/v2/test.other' }),
    ]);
    expect(refused).toEqual([405, 415, 401, 400, 404]);
    expect([await send(), prepared]).toEqual([1, 2]);
  });

  test('keeps nothing of a caller whose root key was not accepted', async () => {
    for (let use = 1; use <= 4; use++) await send({}, 'root_1111111111111111_unknown');
    expect(prepared).toBe(4);
  });

  test('prepares no request whose input is not valid', async () => {
    for (const body of ['{"n":6}', '{"n":6}', '{"n":1', '{"n":1', '{"n":1,"n":6}', '{"n":1,"n":6}']) {
      expect(await send({ body })).toBe(400);
    }
    expect(prepared).toBe(0);
  });
});
