// Calls about an API that was moved to another workspace. It is here, because these tests run on a Cluster, too, where
// the two workspaces are on any two nodes. test/cli/move.test.ts has the rest.

import { expect, test } from 'vitest';
import { harness, hourMs } from '../../support/harness.ts';

const tollgate = harness();
const { ok, call, createKey, createWorkspace, clock } = tollgate;

test('verifications, holds and reads find it', async () => {
  const { store, workspaceId: from } = tollgate;
  const limit = { name: 'shared', limit: 10, duration: hourMs, autoApply: true };
  await ok('identities.createIdentity', { externalId: 'ada', ratelimits: [limit], credits: { remaining: 50 } });
  const { apiId, key, keyId } = await createKey({ externalId: 'ada', permissions: ['docs.read'] });
  const { key: plain } = await createKey({ apiId, credits: { remaining: 10 } });
  const { hold } = await ok('keys.verifyKey', { key, credits: { cost: 5 }, hold: { ttl: 60_000 } });
  await ok('keys.verifyKey', { key: plain });

  for (let times = 0; times < 3; times++) {
    const { workspaceId: to, rootKey } = await createWorkspace();
    const move = { from, to, apiId };
    expect(await store.moves.begin(move)).toEqual({ outcome: 'begun' });
    const { keys } = await store.moves.plan(move, { isDeleted: false, after: '', count: 10 });
    expect(await store.moves.obstacles(move, keys, { mayCopy: false, mayJoin: false })).toMatchObject({
      obstacles: [],
    });
    expect(
      await store.moves.moveKeys(
        move,
        keys.map(({ digest }) => digest),
        false,
      ),
    ).toBe(2);
    expect(await store.moves.close(move)).toBe(true);
    await store.moves.finish(move);

    expect(await ok('keys.verifyKey', { key, permissions: 'docs.read', credits: { cost: 0 } })).toMatchObject({
      valid: true,
      identity: { credits: 45 },
      ratelimits: [{ remaining: 8 - 2 * times }],
    });
    expect((await call('keys.verifyKey', { key, credits: { cost: 0 } }, rootKey)).data).toMatchObject({ valid: true });
    expect((await call('keys.getKey', { keyId }, rootKey)).data).toMatchObject({ permissions: ['docs.read'] });
    expect((await call('keys.listHolds', { keyId }, rootKey)).data).toHaveLength(1);
    const usage = { apiId, start: clock.now - hourMs, end: clock.now + hourMs, granularity: 'total' as const };
    expect((await call('analytics.getVerifications', { ...usage, groupBy: [] }, rootKey)).data).toMatchObject([
      { count: 4 + 2 * times },
    ]);
    // Back, so that the next workspace may be on another node.
    const back = { from: to, to: from, apiId };
    await store.moves.begin(back);
    await store.moves.moveKeys(
      back,
      keys.map(({ digest }) => digest),
      false,
    );
    expect(await store.moves.close(back)).toBe(true);
    await store.moves.finish(back);
  }
  expect(await ok('keys.settleHold', { holdId: hold!.id, credits: { cost: 1 } })).toMatchObject({ late: false });
  expect(await ok('identities.getIdentity', { identity: 'ada' })).toMatchObject({ credits: { remaining: 49 } });
});
