import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { call, ok, clock } = harness();

test('apis.getApi: 200: its id, name, time of creation and number of keys without deleted ones, as in the list', async () => {
  const createdAt = clock.now;
  const { apiId } = await ok('apis.createApi', { name: 'payments' });
  await ok('keys.createKey', { apiId });
  const { keyId } = await ok('keys.createKey', { apiId });
  clock.advance(1000);
  await ok('keys.deleteKey', { keyId });
  const api = { id: apiId, name: 'payments', createdAt, keyCount: 1 };
  expect(await ok('apis.getApi', { apiId })).toEqual(api);
  expect(await ok('apis.listApis', { search: apiId })).toEqual([api]);
});

describe('apis.getApi: 404', () => {
  test.each(['api_1111111111111111', 'api', '123', '*'.repeat(3).replaceAll('*', 'x'), 'a'.repeat(255)])(
    'the id %s',
    async (apiId) => {
      expect(await call('apis.getApi', { apiId })).toMatchObject({ status: 404, code: 'api_not_found' });
    },
  );

  test('the error names the id', async () => {
    const { error } = await call('apis.getApi', { apiId: 'api_1111111111111111' });
    expect(error.detail).toBe('There is no API "api_1111111111111111".');
  });

  test.each([undefined, 'api', 'pay'])(
    'the error does not name a key sent as an id, with the prefix %s',
    async (prefix) => {
      const { apiId } = await ok('apis.createApi', { name: 'payments' });
      const { key } = await ok('keys.createKey', { apiId, prefix });
      const { error } = await call('apis.getApi', { apiId: key });
      expect(error.detail).toBe('There is no such API. The id of an API is api_….');
    },
  );

  test('an id that ends like an existing API\u2019s', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'payments' });
    for (const id of [`x${apiId}`, apiId.slice(4), `api_11111111${apiId.slice(-8)}`, apiId.slice(-8)]) {
      expect(await call('apis.getApi', { apiId: id })).toMatchObject({ status: 404, code: 'api_not_found' });
    }
  });
});

describe('apis.getApi: 400', () => {
  test.each(['', 'ab', 'a'.repeat(256), 'api-1', 'api 1', 'api_1\n', 'äpi'])('the id %j', async (apiId) => {
    const { status, error } = await call('apis.getApi', { apiId });
    expect(status).toBe(400);
    expect(error.errors.map(({ location }) => location)).toEqual(
      // An id that is too short and has other characters fails twice.
      expect.arrayContaining(['body.apiId']),
    );
  });
});
