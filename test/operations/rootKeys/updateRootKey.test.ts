import { describe, expect, test } from 'vitest';
import { harness, type InputOf } from '../../support/harness.ts';
import { onlyInvalidAt } from '../../support/invalid.ts';

const tollgate = harness();
const { call, ok, createKey, createWorkspace, clock } = tollgate;

const create = (permissions: string[], more: Partial<InputOf<'rootKeys.createRootKey'>> = {}) =>
  ok('rootKeys.createRootKey', { permissions, ...more });

const listed = async (rootKeyId: string) =>
  (await ok('rootKeys.listRootKeys', {})).find((rootKey) => rootKey.rootKeyId === rootKeyId);

const limit = { namespace: 'email', identifier: 'a', limit: 1000, duration: 60_000 };

describe('rootKeys.updateRootKey: 200', () => {
  test('changes the given fields and keeps the rest', async () => {
    const expires = clock.now + 60_000;
    const { rootKeyId } = await create(['api.*.read_api'], { name: 'before', expires });
    const before = (await listed(rootKeyId))!;
    const steps: [Omit<InputOf<'rootKeys.updateRootKey'>, 'rootKeyId'>, object][] = [
      [{}, {}],
      [{ name: 'after' }, { name: 'after' }],
      [{ permissions: ['apis.*.read_key', 'apis.*.read_api'] }, { permissions: ['api.*.read_key', 'api.*.read_api'] }],
      [{ enabled: false }, { enabled: false }],
      [{ enabled: true }, { enabled: true }],
      [{ expires: expires + 1 }, { expires: expires + 1 }],
    ];
    const expected = { ...before };
    for (const [changes, changed] of steps) {
      expect(await ok('rootKeys.updateRootKey', { rootKeyId, ...changes })).toEqual({});
      expect(await listed(rootKeyId)).toEqual(Object.assign(expected, changed));
    }
  });

  test('null removes a name and an expiry', async () => {
    const { rootKeyId } = await create(['api.*.read_api'], { name: 'named', expires: clock.now + 60_000 });
    await ok('rootKeys.updateRootKey', { rootKeyId, name: null, expires: null });
    const rootKey = await listed(rootKeyId);
    expect(rootKey).not.toHaveProperty('name');
    expect(rootKey).not.toHaveProperty('expires');
    await ok('rootKeys.updateRootKey', { rootKeyId, name: null, expires: null });
  });
});

describe('rootKeys.updateRootKey: applies from the next request on, also to keys.verifyKey', () => {
  test('disabling and enabling again', async () => {
    const { key } = await createKey();
    const root = await create(['*']);
    const answers = async () => [
      (await call('keys.verifyKey', { key }, root.key)).code ?? 'ok',
      (await call('ratelimits.limit', limit, root.key)).code ?? 'ok',
      (await call('rootKeys.listRootKeys', {}, root.key)).code ?? 'ok',
    ];
    expect(await answers()).toEqual(['ok', 'ok', 'ok']);
    await ok('rootKeys.updateRootKey', { rootKeyId: root.rootKeyId, enabled: false });
    expect(await answers()).toEqual(['root_key_disabled', 'root_key_disabled', 'root_key_disabled']);
    await ok('rootKeys.updateRootKey', { rootKeyId: root.rootKeyId, enabled: true });
    expect(await answers()).toEqual(['ok', 'ok', 'ok']);
  });

  test('an expiry', async () => {
    const { key } = await createKey();
    const root = await create(['*']);
    await ok('rootKeys.updateRootKey', { rootKeyId: root.rootKeyId, expires: clock.now + 1 });
    expect((await call('keys.verifyKey', { key }, root.key)).status).toBe(200);
    clock.advance(1);
    for (const answer of [
      await call('keys.verifyKey', { key }, root.key),
      await call('ratelimits.limit', limit, root.key),
      await call('rootKeys.listRootKeys', {}, root.key),
    ]) {
      expect(answer).toMatchObject({ status: 403, code: 'root_key_expired' });
    }
    await ok('rootKeys.updateRootKey', { rootKeyId: root.rootKeyId, expires: null });
    expect((await call('keys.verifyKey', { key }, root.key)).status).toBe(200);
  });

  test('fewer and more grants', async () => {
    const { apiId, keyId, key } = await createKey();
    const { rootKeyId, key: rootKey } = await create(['api.*.verify_key', 'api.*.read_key', 'ratelimit.*.limit']);
    await ok('ratelimits.limit', limit);
    const answers = async () => [
      (await call('keys.verifyKey', { key }, rootKey)).data?.code,
      (await call('keys.getKey', { keyId }, rootKey)).status,
      (await call('ratelimits.limit', limit, rootKey)).status,
    ];
    expect(await answers()).toEqual(['VALID', 200, 200]);
    await ok('rootKeys.updateRootKey', { rootKeyId, permissions: ['api.api_other.verify_key'] });
    expect(await answers()).toEqual(['NOT_FOUND', 403, 403]);
    await ok('rootKeys.updateRootKey', { rootKeyId, permissions: [`api.${apiId}.read_key`] });
    expect(await answers()).toEqual([undefined, 200, 403]);
    await ok('rootKeys.updateRootKey', { rootKeyId, permissions: [`api.${apiId}.verify_key`, 'ratelimit.*.limit'] });
    expect(await answers()).toEqual(['VALID', 403, 200]);
  });
});

describe('rootKeys.updateRootKey: 400', () => {
  test('an unknown grant, and nothing changes', async () => {
    const { rootKeyId } = await create(['api.*.read_api'], { name: 'before' });
    expect(
      await call('rootKeys.updateRootKey', { rootKeyId, name: 'after', permissions: ['api.*.fly'] }),
    ).toMatchObject(onlyInvalidAt('body.permissions[0]'));
    expect(await listed(rootKeyId)).toMatchObject({ name: 'before' });
  });

  test('an unknown grant comes before 403 and 404', async () => {
    const change = { rootKeyId: 'root_unknown', permissions: ['api.*.fly'] };
    expect((await call('rootKeys.updateRootKey', change)).status).toBe(400);
    expect((await call('rootKeys.updateRootKey', change, ['api.*.read_api'])).status).toBe(400);
  });

  test('no grants, and null for a field that cannot be removed', async () => {
    const { rootKeyId } = await create(['api.*.read_api']);
    for (const changes of [{ permissions: [] }, { permissions: null }, { enabled: null }]) {
      expect((await call('rootKeys.updateRootKey', { rootKeyId, ...changes } as never)).status).toBe(400);
    }
  });
});

describe('rootKeys.updateRootKey: 403', () => {
  const updater = 'root_key.*.update_root_key';

  test.each([
    { target: ['*'], caller: [updater, 'api.*.read_api'] },
    { target: ['api.*.read_api'], caller: [updater] },
    { target: ['api.*.read_api'], caller: [updater, 'api.api_a.read_api'] },
    { target: ['api.api_a.read_api', 'api.api_b.read_api'], caller: [updater, 'api.api_a.read_api'] },
  ])('$caller cannot change a root key that holds $target', async ({ target, caller }) => {
    const { rootKeyId } = await create(target);
    const before = await listed(rootKeyId);
    for (const changes of [{ name: 'mine' }, { enabled: false }, { expires: 0 }, { permissions: [updater] }, {}]) {
      const answer = await call('rootKeys.updateRootKey', { rootKeyId, ...changes }, caller);
      expect(answer).toMatchObject({ status: 403, code: 'insufficient_permissions' });
    }
    expect(await listed(rootKeyId)).toEqual(before);
  });

  test.each([
    { target: ['api.api_a.read_api'], caller: [updater, 'api.*.read_api'] },
    { target: [updater], caller: [updater] },
    { target: ['api.*.read_api'], caller: ['*'] },
  ])('$caller can change a root key that holds $target', async ({ target, caller }) => {
    const { rootKeyId } = await create(target);
    expect((await call('rootKeys.updateRootKey', { rootKeyId, name: 'mine' }, caller)).status).toBe(200);
  });

  test('for a grant that the caller lacks, also to itself', async () => {
    const self = await create([updater, 'api.api_a.read_api']);
    for (const permissions of [['*'], ['api.*.read_api'], ['api.api_b.read_api'], [updater, 'api.api_a.read_key']]) {
      const answer = await call('rootKeys.updateRootKey', { rootKeyId: self.rootKeyId, permissions }, self.key);
      expect(answer).toMatchObject({ status: 403, code: 'insufficient_permissions' });
    }
    expect((await listed(self.rootKeyId))?.permissions).toEqual([updater, 'api.api_a.read_api']);
  });

  test('may give up its own grants, and then lacks them', async () => {
    const self = await create([updater, 'api.api_a.read_api']);
    const change = { rootKeyId: self.rootKeyId, permissions: [updater] };
    expect((await call('rootKeys.updateRootKey', change, self.key)).status).toBe(200);
    const back = { rootKeyId: self.rootKeyId, permissions: [updater, 'api.api_a.read_api'] };
    expect((await call('rootKeys.updateRootKey', back, self.key)).status).toBe(403);
  });
});

describe('rootKeys.updateRootKey: 412: a change that leaves no root key with every permission', () => {
  test.each([{ enabled: false }, { expires: 4_102_444_800_000 }, { permissions: ['api.*.read_api'] }])(
    '%j of the last one',
    async (changes) => {
      const { rootKey } = await createWorkspace();
      const others = { permissions: ['*'], expires: clock.now + 60_000 };
      await call('rootKeys.createRootKey', others, rootKey); // It expires, so it does not count.
      const disabled = (await call('rootKeys.createRootKey', { permissions: ['*'] }, rootKey)).data;
      await call('rootKeys.updateRootKey', { rootKeyId: disabled.rootKeyId, enabled: false }, rootKey);
      const [before] = (await call('rootKeys.listRootKeys', {}, rootKey)).data;
      const { rootKeyId } = before!;

      const refused = await call('rootKeys.updateRootKey', { rootKeyId, name: 'x', ...changes }, rootKey);
      expect(refused).toMatchObject({ status: 412, code: 'precondition_failed' });
      expect((await call('rootKeys.listRootKeys', {}, rootKey)).data[0]).toEqual(before);

      // With another one that counts, it may be changed.
      await call('rootKeys.updateRootKey', { rootKeyId: disabled.rootKeyId, enabled: true }, rootKey);
      expect((await call('rootKeys.updateRootKey', { rootKeyId, ...changes }, rootKey)).status).toBe(200);
    },
  );

  test('the name of the last one may change; with a second such root key all of it may', async () => {
    const { rootKey } = await createWorkspace();
    const [own] = (await call('rootKeys.listRootKeys', {}, rootKey)).data;
    const { rootKeyId } = own!;
    expect((await call('rootKeys.updateRootKey', { rootKeyId, name: 'owner' }, rootKey)).status).toBe(200);
    const second = (await call('rootKeys.createRootKey', { permissions: ['*'] }, rootKey)).data;
    for (const id of [rootKeyId, second.rootKeyId]) {
      expect((await call('rootKeys.updateRootKey', { rootKeyId: id, enabled: false }, second.key)).status).toBe(
        id === rootKeyId ? 200 : 412,
      );
    }
    const narrowed = { rootKeyId, permissions: ['api.*.read_api'] };
    expect((await call('rootKeys.updateRootKey', narrowed, second.key)).status).toBe(200);
    const enabled = { rootKeyId, enabled: true };
    expect((await call('rootKeys.updateRootKey', enabled, second.key)).status).toBe(200);
    const last = { rootKeyId: second.rootKeyId, enabled: false };
    expect((await call('rootKeys.updateRootKey', last, second.key)).status).toBe(412);
  });
});
