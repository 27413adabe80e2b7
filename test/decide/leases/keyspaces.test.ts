// A lease of a verification with `keyspaces` is for these keyspaces only.

import { expect, test, vi } from 'vitest';
import { hourMs } from '../../support/harness.ts';
import { heldServers } from './heldServers.ts';

const held = heldServers(1, { leaseMs: 2000 });
const { first, clock } = held;
const limit = { name: 'most', limit: 20_000, duration: hourMs, autoApply: true };

test('each list of keyspaces has a lease of its own; one that refuses charges and counts nothing', async () => {
  const { apiId: own } = await first.ok('apis.createApi', { name: 'own' });
  const { apiId: other } = await first.ok('apis.createApi', { name: 'other' });
  const { key, keyId } = await first.ok('keys.createKey', { apiId: own, ratelimits: [limit] });
  let passed = 0;
  const send = async (keyspaces?: string[], tags?: string[]) => {
    const answer = await first.ok('keys.verifyKey', { key, ...(keyspaces && { keyspaces }), ...(tags && { tags }) });
    passed += answer.valid ? 1 : 0;
    return answer;
  };
  /** Sends until a lease decides. */
  const leased = async (keyspaces?: string[], tags?: string[]) => {
    const before = first.counts.decided;
    return await vi.waitFor(async () => {
      clock.advance(1);
      const answer = await send(keyspaces, tags);
      expect(first.counts.decided).toBeGreaterThan(before);
      return answer;
    });
  };

  expect(await leased()).toMatchObject({ valid: true });
  expect(await send([other])).toEqual({ valid: false, code: 'NOT_FOUND' });
  expect(await leased([own])).toMatchObject({ valid: true, keyspaceId: own });
  expect(await leased([other])).toEqual({ valid: false, code: 'NOT_FOUND' });
  expect(await send()).not.toHaveProperty('keyspaceId');
  expect(await send([own])).toMatchObject({ valid: true, keyspaceId: own });
  // Requests that differ in their tags share a lease, those that differ in their keyspaces do not.
  const tags = ['a tag that is longer than the id of an API, and therefore than all that follows it'];
  expect(await leased([own], tags)).toMatchObject({ valid: true, keyspaceId: own });
  expect(await send([other], tags)).toEqual({ valid: false, code: 'NOT_FOUND' });
  expect(await leased([other], tags)).toEqual({ valid: false, code: 'NOT_FOUND' });
  expect(await send([own], tags)).toMatchObject({ valid: true, keyspaceId: own });

  await held.recallAll();
  expect((await send()).ratelimits).toMatchObject([{ remaining: limit.limit - passed }]);
  await held.recallAll();
  const rows = await first.ok('analytics.getVerifications', { keyId, groupBy: ['outcome'] });
  expect(rows.map(({ outcome, count }) => ({ outcome, count }))).toEqual([{ outcome: 'VALID', count: passed }]);
});
