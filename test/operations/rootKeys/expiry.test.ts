// A root key that expires grants no more than it holds, and for no longer than it lasts: not to a new root key, not to
// another, and not to itself. A root key that lasts longer it can only narrow.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { harness, type InputOf, type OutputOf } from '../../support/harness.ts';
import { seed } from '../../support/random.ts';

const tollgate = harness();
const { call, ok, clock, createRootKey, createWorkspace } = tollgate;

const manage = ['root_key.*.create_root_key', 'root_key.*.update_root_key', 'root_key.*.delete_root_key'];
const end = clock.now + 60_000;
const expiring = (permissions: string[] = ['*'], expires = end) =>
  createRootKey(permissions, tollgate.workspaceId, expires);
const make = (permissions: string[], more: Partial<InputOf<'rootKeys.createRootKey'>> = {}) =>
  ok('rootKeys.createRootKey', { permissions, ...more });
type Changes = Omit<InputOf<'rootKeys.updateRootKey'>, 'rootKeyId'>;

describe('rootKeys: createRootKey by one that expires', () => {
  test.each([['*'], [...manage, 'api.*.verify_key']])(
    'that holds %s: no expiry, or a later one, is 403',
    async (...held) => {
      const caller = await expiring(held);
      for (const expires of [undefined, end + 1, 4_102_444_800_000]) {
        const answer = await call('rootKeys.createRootKey', { permissions: [held.at(-1)!], expires }, caller);
        expect(answer).toMatchObject({ status: 403, code: 'insufficient_permissions' });
        expect(answer.error.detail).toContain(`${end}`);
      }
      for (const expires of [end, end - 1]) {
        const answer = await call('rootKeys.createRootKey', { permissions: [held.at(-1)!], expires }, caller);
        expect(answer.status).toBe(200);
      }
    },
  );
});

describe('rootKeys: updateRootKey by one that expires', () => {
  /** Permitted changes of a root key that lasts longer. */
  const narrowing: Changes[] = [
    {},
    { name: 'renamed' },
    { permissions: ['api.*.read_api'] },
    { expires: end + 1 },
    { expires: end },
    { enabled: false },
    { enabled: false, expires: end + 5, permissions: ['api.api_a.read_api'] },
  ];
  const lasting = ['api.*.read_api', 'api.*.read_key'];

  test.each(narrowing)('one that lasts can be narrowed: %j', async (changes) => {
    const { rootKeyId } = await make(lasting);
    expect((await call('rootKeys.updateRootKey', { rootKeyId, ...changes }, await expiring())).status).toBe(200);
  });

  test.each<Changes>([
    { permissions: [...lasting, 'api.*.verify_key'] },
    { permissions: ['*'] },
    { permissions: ['api.*.verify_key'], name: 'other', enabled: false },
    { expires: end + 1, permissions: [...lasting, 'audit.*.read_audit'] },
  ])('one that lasts cannot be widened: %j', async (changes) => {
    const { rootKeyId } = await make(lasting);
    const [before] = (await ok('rootKeys.listRootKeys', {})).slice(-1);
    const answer = await call('rootKeys.updateRootKey', { rootKeyId, ...changes }, await expiring());
    expect(answer).toMatchObject({ status: 403, code: 'insufficient_permissions' });
    expect((await ok('rootKeys.listRootKeys', {})).find((each) => each.rootKeyId === rootKeyId)).toEqual(before);
  });

  test('one that lasts can be neither enabled nor extended; one that ends no later than the caller can be both', async () => {
    const caller = await expiring();
    const disabled = await make(lasting);
    await ok('rootKeys.updateRootKey', { rootKeyId: disabled.rootKeyId, enabled: false });
    const shorter = await make(lasting, { expires: end - 10 });
    for (const [rootKeyId, changes, status] of [
      [disabled.rootKeyId, { enabled: true }, 403],
      [disabled.rootKeyId, { enabled: true, expires: end }, 200],
      [shorter.rootKeyId, { expires: null }, 403],
      [shorter.rootKeyId, { expires: end + 1 }, 403],
      [shorter.rootKeyId, { expires: end, permissions: ['*'] }, 200],
    ] as const) {
      const answer = await call('rootKeys.updateRootKey', { rootKeyId, ...changes } as never, caller);
      expect(answer.status, JSON.stringify(changes)).toBe(status);
    }
  });

  test('itself: it cannot extend its expiry or remove it, only shorten it', async () => {
    const self = await make(['*'], { expires: end });
    const change = (changes: Changes) =>
      call('rootKeys.updateRootKey', { rootKeyId: self.rootKeyId, ...changes }, self.key);
    expect((await change({ expires: null })).status).toBe(403);
    expect((await change({ expires: end + 1 })).status).toBe(403);
    expect((await change({ expires: end - 1 })).status).toBe(200);
    // It cannot extend it again either.
    expect((await change({ expires: end })).status).toBe(403);
  });
});

test('rootKeys: it can delete and disable one that lasts, but not the last that may do everything', async () => {
  const { rootKey, workspaceId } = await createWorkspace();
  const caller = await createRootKey(['*'], workspaceId, end);
  const second = (await call('rootKeys.createRootKey', { permissions: ['*'] }, rootKey)).data;
  const third = (await call('rootKeys.createRootKey', { permissions: ['*'] }, rootKey)).data;
  const [first] = (await call('rootKeys.listRootKeys', {}, rootKey)).data;
  expect((await call('rootKeys.deleteRootKey', { rootKeyId: second.rootKeyId }, caller)).status).toBe(200);
  expect((await call('rootKeys.updateRootKey', { rootKeyId: third.rootKeyId, enabled: false }, caller)).status).toBe(
    200,
  );
  const last = { rootKeyId: first!.rootKeyId };
  expect((await call('rootKeys.deleteRootKey', last, caller)).status).toBe(412);
  for (const changes of [{ enabled: false }, { expires: end }, { permissions: ['api.*.read_api'] }]) {
    expect((await call('rootKeys.updateRootKey', { ...last, ...changes }, caller)).status).toBe(412);
  }
});

describe('rootKeys: a request that has waited is checked with the root key as it is when the change is made', () => {
  const changesOf = (rootKeyId: string) =>
    [
      ['rootKeys.createRootKey', { permissions: ['*'] }],
      ['rootKeys.updateRootKey', { rootKeyId, name: 'late' }],
      ['rootKeys.deleteRootKey', { rootKeyId }],
      ['rootKeys.rerollKey', { keyId: rootKeyId, expiration: 0 }],
    ] as const;

  test.each([
    ['deleted', 401, (rootKeyId: string) => ok('rootKeys.deleteRootKey', { rootKeyId })],
    ['disabled', 403, (rootKeyId: string) => ok('rootKeys.updateRootKey', { rootKeyId, enabled: false })],
    ['expired', 403, (rootKeyId: string) => ok('rootKeys.updateRootKey', { rootKeyId, expires: clock.now })],
    [
      'narrowed',
      403,
      (rootKeyId: string) => ok('rootKeys.updateRootKey', { rootKeyId, permissions: ['api.*.read_api'] }),
    ],
  ] as const)('%s after it was let in: %i', async (_how, status, takeBack) => {
    for (let which = 0; which < 4; which++) {
      const target = await make(['api.*.read_api']);
      const caller = await make(['*']);
      const [operation, input] = changesOf(target.rootKeyId)[which]!;
      // The caller that the pipeline found before the request waited, and the store's functions that the operation then
      // calls.
      const actor = { rootKeyId: caller.rootKeyId, operation, requestId: 'req' };
      await takeBack(caller.rootKeyId);
      const { rootKeys } = tollgate.store;
      const { workspaceId } = tollgate;
      const made = { digest: Buffer.alloc(32, which), start: '' };
      const outcome = await (operation === 'rootKeys.rerollKey'
        ? rootKeys.reroll(workspaceId, target.rootKeyId, { ...made, expiresIn: 0 }, actor)
        : operation === 'rootKeys.createRootKey'
          ? rootKeys.create(workspaceId, { ...made, ...input }, actor)
          : operation === 'rootKeys.updateRootKey'
            ? rootKeys.update(workspaceId, target.rootKeyId, { name: 'late' }, actor)
            : rootKeys.delete(workspaceId, target.rootKeyId, actor));
      expect(outcome, `${operation} ${status}`).toMatchObject({ refused: expect.any(String) });
      const listed = (await ok('rootKeys.listRootKeys', {})).find((each) => each.rootKeyId === target.rootKeyId);
      expect(listed).toBeDefined();
      expect(listed!.name).toBeUndefined();
      expect(listed!.expires).toBeUndefined();
    }
  });
});

test(`rootKeys: with any actions of expiring root keys, no root key has more grants after their end than before (seed ${seed})`, async () => {
  type Listed = OutputOf<'rootKeys.listRootKeys'>[number];
  const grants = ['api.*.read_api', 'api.api_a.read_api', 'audit.*.read_audit', '*'];
  const times = [end - 2, end - 1, end, end + 1, end + 2];
  const covers = (held: readonly string[], grant: string) =>
    held.includes('*') || held.includes(grant) || held.includes(grant.replace('.api_a.', '.*.'));
  /** The grants that a root key has at a time. */
  const at = (rootKey: Listed | undefined, ms: number) =>
    rootKey?.enabled && ms < (rootKey.expires ?? Number.POSITIVE_INFINITY) ? rootKey.permissions : [];

  const someGrants = fc.uniqueArray(fc.constantFrom(...grants), { minLength: 1, maxLength: 2 });
  const someEnd = fc.constantFrom(undefined, null, ...times);
  const acts = fc.array(
    fc.record({
      kind: fc.constantFrom('create', 'update', 'reroll'),
      target: fc.nat(3),
      permissions: fc.option(someGrants, { nil: undefined }),
      expires: someEnd,
      enabled: fc.constantFrom(undefined, true, false),
    }),
    { minLength: 1, maxLength: 6 },
  );
  const counts = { done: 0, refused: 0 };
  // Through the store, because any root key may be disabled.
  const list = async (of: string): Promise<Listed[]> =>
    (await tollgate.store.rootKeys.list(of, { count: 100 })).rootKeys;
  await fc.assert(
    fc.asyncProperty(someGrants, fc.constantFrom(...times), acts, async (held, callerEnd, steps) => {
      const { rootKey, workspaceId } = await createWorkspace();
      const caller = await createRootKey([...held, ...manage], workspaceId, callerEnd);
      for (const permissions of [['api.*.read_api'], ['*']]) {
        await call('rootKeys.createRootKey', { permissions }, rootKey);
      }
      for (const { kind, target, permissions, expires, enabled } of steps) {
        const before = await list(workspaceId);
        const { status } =
          kind === 'create'
            ? await call(
                'rootKeys.createRootKey',
                { permissions: permissions ?? ['*'], ...(typeof expires === 'number' && { expires }) },
                caller,
              )
            : kind === 'reroll'
              ? await call(
                  'rootKeys.rerollKey',
                  { keyId: before[target % before.length]!.rootKeyId, expiration: enabled ? 60_001 : null },
                  caller,
                )
              : await call(
                  'rootKeys.updateRootKey',
                  { rootKeyId: before[target % before.length]!.rootKeyId, permissions, expires, enabled },
                  caller,
                );
        if (status === 200) counts.done++;
        else counts.refused++;
        const after = await list(workspaceId);
        const without = (rootKeys: Listed[]) => rootKeys.map(({ lastUsedAt: _, ...rest }) => rest);
        if (status !== 200) expect(without(after)).toEqual(without(before));
        for (const now of after) {
          const then = before.find(({ rootKeyId }) => rootKeyId === now.rootKeyId);
          for (const ms of [end - 3, ...times, end + 1e9]) {
            const gained = at(now, ms).filter((grant) => !covers(at(then, ms), grant));
            const mayGive = ms < callerEnd ? [...held, ...manage] : [];
            expect(gained.filter((grant) => !covers(mayGive, grant))).toEqual([]);
          }
        }
      }
    }),
    { seed, numRuns: 120 },
  );
  expect(counts.done).toBeGreaterThan(20);
  expect(counts.refused).toBeGreaterThan(20);
});
