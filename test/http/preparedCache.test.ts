import { pino } from 'pino';
import Type from 'typebox';
import { beforeEach, describe, expect, test } from 'vitest';
import { createPipeline } from '../../src/http/pipeline.ts';
import { PreparedCache } from '../../src/http/preparedCache.ts';
import { presented } from '../../src/http/rootKey.ts';
import { decides } from '../../src/operation.ts';
import { Fields, Int } from '../../src/operations/schemas.ts';
import { harness, type RequestParts, requestTo } from '../support/harness.ts';

const one = presented('root_1111111111111111_one');
const two = presented('root_1111111111111111_two');
const body = Buffer.from('{"key":"k"}');

describe('PreparedCache', () => {
  test('finds what was added for the same root key and body, and nothing for others', () => {
    const cache = new PreparedCache<string>();
    expect(cache.find(one, body)).toBeUndefined();
    cache.add(one, body, 'prepared');
    expect(cache.find(presented('root_1111111111111111_one'), Buffer.from(body))).toBe('prepared');
    expect(cache.find(two, body)).toBeUndefined();
    expect(cache.find(one, Buffer.from('{"key":"l"}'))).toBeUndefined();
    expect(cache.find(one, Buffer.from('{"key":"k"} '))).toBeUndefined();
  });

  test('never returns what belongs to a body with the same short hash', () => {
    const count = 200_000;
    const cache = new PreparedCache<number>(count);
    // About 18 pairs of these have the same hash of 30 bits.
    const bodies = Array.from({ length: count }, (_, index) => Buffer.from(`{"key":"${index}"}`));
    for (const [index, each] of bodies.entries()) cache.add(one, each, index);
    const wrong = bodies.flatMap((each, index) => {
      const found = cache.find(one, each);
      return found === index || found === undefined ? [] : [index];
    });
    expect(wrong).toEqual([]);
  });

  test('has at most two generations, and keeps what is used', () => {
    const cache = new PreparedCache<number>(100);
    cache.add(one, body, -1);
    for (let index = 0; index < 1000; index++) {
      cache.add(two, Buffer.from(`{"key":"${index}"}`), index);
      expect(cache.find(one, body)).toBe(-1);
    }
    const found = Array.from({ length: 1000 }, (_, index) => cache.find(two, Buffer.from(`{"key":"${index}"}`)));
    expect(found.filter((each) => each !== undefined).length).toBeLessThanOrEqual(200);
  });

  test('does not cache long bodies', () => {
    const cache = new PreparedCache<number>();
    for (const length of [512, 513]) cache.add(one, Buffer.alloc(length, ' '), length);
    expect([512, 513].map((length) => cache.find(one, Buffer.alloc(length, ' ')))).toEqual([512, undefined]);
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
      input: Fields({ n: Int({ minimum: 0, maximum: 5 }), at: Type.Optional(Type.String()) }),
      output: Type.Integer(),
      needs: {},
      prepare({ n, at }) {
        prepared++;
        return () => (at === 'redis' ? Promise.resolve(`${n}`) : `${n}`);
      },
    });
  let answer: ReturnType<typeof createPipeline>;
  beforeEach(() => {
    prepared = 0;
    answer = createPipeline(['test.decides', 'test.again'].map(operationOf), {
      store: tollgate.store,
      log: pino({ level: 'silent' }),
      metaBytesMax: 0,
    });
  });

  async function send(parts: RequestParts = {}, rootKey = 'root_1') {
    const request = requestTo(parts.path ?? '/v2/test.decides', rootKey, { body: '{"n":1}', ...parts });
    const { status, body } = await answer(request);
    return status === 200 ? (JSON.parse(body).data as number) : status;
  }

  test('prepares a request once that is decided without Redis', async () => {
    expect([await send(), await send(), await send({ body: '{"n":2}' }), await send()]).toEqual([1, 1, 2, 1]);
    expect(prepared).toBe(2);
  });

  test('prepares a request each time that Redis decides', async () => {
    const body = '{"n":1,"at":"redis"}';
    expect([await send({ body }), await send({ body })]).toEqual([1, 1]);
    expect(prepared).toBe(2);
  });

  test('prepares it for each root key and operation', async () => {
    for (const rootKey of ['root_1', 'root_2', 'root_1', 'root_2']) await send({}, rootKey);
    expect(prepared).toBe(2);
    await send({ path: '/v2/test.again' });
    expect(prepared).toBe(3);
  });

  test('checks the rest of a prepared request each time', async () => {
    await send();
    const refused = await Promise.all([
      send({ method: 'GET' }),
      send({ contentType: 'text/plain' }),
      send({ authorization: 'Basic root_1' }),
      send({ hasQuery: true }),
      send({ path: '/v2/test.other' }),
    ]);
    expect(refused).toEqual([405, 415, 401, 400, 404]);
    expect([await send(), prepared]).toEqual([1, 1]);
  });

  test('prepares no request whose input is not valid', async () => {
    for (const body of ['{"n":6}', '{"n":6}', '{"n":1', '{"n":1', '{"n":1,"n":6}', '{"n":1,"n":6}']) {
      expect(await send({ body })).toBe(400);
    }
    expect(prepared).toBe(0);
  });
});
