import { beforeAll, describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { call, ok, clock, send } = harness();
const override = { namespace: 'email', identifier: 'alice', limit: 5, duration: 60_000 };
let overrideId: string;
let namespaceId: string;

beforeAll(async () => {
  overrideId = (await ok('ratelimits.setOverride', override)).overrideId;
  await ok('ratelimits.setOverride', { ...override, identifier: 'a*' });
  namespaceId = (await ok('ratelimits.getOverride', { namespace: 'email', identifier: 'alice' })).namespaceId;
});

test('ratelimits.getOverride: 200: returns every field, by the name or the id of the namespace, on both paths', async () => {
  const createdAt = clock.now;
  clock.advance(1000);
  for (const namespace of ['email', namespaceId]) {
    for (const path of ['ratelimits', 'ratelimit']) {
      const body = JSON.stringify({ namespace, identifier: 'alice' });
      const { status, json } = await send(`/v2/${path}.getOverride`, { body });
      expect(status).toBe(200);
      // The name, also if the request has the id.
      expect(json.data).toEqual({ ...override, overrideId, namespaceId, createdAt });
      expect(namespaceId).toMatch(/^rlns_[1-9A-HJ-NP-Za-km-z]{16}$/);
    }
  }
});

test('ratelimits.getOverride: an identifier of any characters is returned as it was set', async () => {
  for (const identifier of ['a\u0000b', ' ', '\u{1f511}', ':60000:b', 'x'.repeat(512), '\u{1f511}'.repeat(512)]) {
    const request = { namespace: identifier, identifier };
    await ok('ratelimits.setOverride', { ...request, limit: 1, duration: 1000 });
    expect(await ok('ratelimits.getOverride', request)).toMatchObject(request);
  }
});

describe('ratelimits.getOverride: 404', () => {
  test.each(['al', 'alice2', 'Alice', 'alice ', '*', 'a', 'ab*'])(
    'for %j, which only a wildcard matches',
    async (identifier) => {
      const answer = await call('ratelimits.getOverride', { namespace: 'email', identifier });
      expect(answer).toMatchObject({ status: 404, code: 'override_not_found' });
    },
  );

  test('a wildcard is found by its own text only', async () => {
    expect(await ok('ratelimits.getOverride', { namespace: 'email', identifier: 'a*' })).toMatchObject({ limit: 5 });
  });
});
