import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { call, ok, send } = harness();
let namespaces = 0;

/** A namespace with overrides for `alice` and for every identifier that begins with `a`. */
async function withOverrides() {
  const namespace = `deleted ${++namespaces}`;
  for (const [identifier, limit] of [
    ['alice', 1],
    ['a*', 2],
  ] as const) {
    await ok('ratelimits.setOverride', { namespace, identifier, limit, duration: 60_000 });
  }
  const { namespaceId } = await ok('ratelimits.getOverride', { namespace, identifier: 'alice' });
  const limitOf = async (identifier: string) =>
    (await ok('ratelimits.limit', { namespace, identifier, limit: 9, duration: 60_000, cost: 0 })).limit;
  return { namespace, namespaceId, limitOf };
}

test('ratelimits.deleteOverride: 200: applies from the next check on, and the override does not exist any more', async () => {
  const { namespace, limitOf } = await withOverrides();
  expect(await ok('ratelimits.deleteOverride', { namespace, identifier: 'alice' })).toEqual({});
  expect(await limitOf('alice')).toBe(2);
  expect((await call('ratelimits.getOverride', { namespace, identifier: 'alice' })).code).toBe('override_not_found');
  expect(await ok('ratelimits.deleteOverride', { namespace, identifier: 'a*' })).toEqual({});
  expect(await limitOf('alice')).toBe(9);
  expect(await ok('ratelimits.listOverrides', { namespace })).toEqual({ overrides: [] });
});

test('ratelimits.deleteOverride: deletes only the exact identifier, not a wildcard that matches it or an identifier that a wildcard matches', async () => {
  const { namespace, limitOf } = await withOverrides();
  await ok('ratelimits.deleteOverride', { namespace, identifier: 'a*' });
  expect(await limitOf('alice')).toBe(1);
  expect(await limitOf('anna')).toBe(9);
});

test('ratelimits.deleteOverride: other overrides of the namespace stay', async () => {
  const { namespace, limitOf } = await withOverrides();
  for (const [identifier, limit] of [
    ['bob', 3],
    ['b*', 4],
  ] as const) {
    await ok('ratelimits.setOverride', { namespace, identifier, limit, duration: 60_000 });
  }
  for (const identifier of ['bob', 'b*']) await ok('ratelimits.deleteOverride', { namespace, identifier });
  expect([await limitOf('alice'), await limitOf('anna'), await limitOf('bob')]).toEqual([1, 2, 9]);
});

test('ratelimits.deleteOverride: by the id of the namespace and by the singular path', async () => {
  const { namespaceId, limitOf } = await withOverrides();
  const body = JSON.stringify({ namespace: namespaceId, identifier: 'alice' });
  const { status, json } = await send('/v2/ratelimit.deleteOverride', { body });
  expect({ status, data: json.data }).toEqual({ status: 200, data: {} });
  expect(await limitOf('alice')).toBe(2);
});

test('ratelimits.deleteOverride: setting it again creates another override', async () => {
  const { namespace } = await withOverrides();
  const request = { namespace, identifier: 'alice' };
  const { overrideId } = await ok('ratelimits.getOverride', request);
  await ok('ratelimits.deleteOverride', request);
  expect((await ok('ratelimits.setOverride', { ...request, limit: 1, duration: 1000 })).overrideId).not.toBe(
    overrideId,
  );
});

describe('ratelimits.deleteOverride: 404', () => {
  test('a second time, or never set', async () => {
    const { namespace } = await withOverrides();
    const request = { namespace, identifier: 'alice' };
    await ok('ratelimits.deleteOverride', request);
    for (const identifier of ['alice', 'anna', '*', 'A*']) {
      const answer = await call('ratelimits.deleteOverride', { namespace, identifier });
      expect(answer).toMatchObject({ status: 404, code: 'override_not_found' });
    }
  });
});
