import { describe, expect, test } from 'vitest';
import { dayMs, harness, hourMs } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';

const tollgate = harness();
const { call, ok, createWorkspace, clock } = tollgate;

const listed = async (keyId: string) => (await ok('rootKeys.listKeys', {})).find((rootKey) => rootKey.keyId === keyId)!;
const create = (permissions: string[], more: { name?: string; expires?: number } = {}) =>
  ok('rootKeys.createKey', { permissions, ...more });
const statusOf = async (key: string) => {
  const { status, code } = await call('rootKeys.whoami', {}, key);
  return status === 200 ? 'ok' : code;
};

describe('rootKeys.rerollKey: 200', () => {
  test('the successor has the same name, grants and expiry; the old one works until the grace is over', async () => {
    const expires = clock.now + 9 * hourMs;
    const old = await create(['api.*.read_api', 'api.api_a.verify_key'], { name: 'gateway', expires });
    const before = await listed(old.keyId);
    clock.advance(1);
    const made = await ok('rootKeys.rerollKey', { keyId: old.keyId, expiration: hourMs });
    const { keyId, start, createdAt, lastUsedAt, ...same } = await listed(made.keyId);
    expect(before).toMatchObject(same);
    expect([keyId, createdAt, lastUsedAt]).toEqual([made.keyId, clock.now, 0]);
    expect(made.key.startsWith(start)).toBe(true);
    expect(await listed(old.keyId)).toEqual({ ...before, expires: clock.now + hourMs });
    expect([await statusOf(old.key), await statusOf(made.key)]).toEqual(['ok', 'ok']);
    clock.advance(hourMs - 1);
    expect(await statusOf(old.key)).toBe('ok');
    clock.advance(1);
    expect([await statusOf(old.key), await statusOf(made.key)]).toEqual(['root_key_expired', 'ok']);
  });

  test('0 refuses the old one from the next request on, also of decisions', async () => {
    const { key } = await tollgate.createKey();
    const old = await create(['api.*.verify_key']);
    expect((await call('keys.verifyKey', { key }, old.key)).status).toBe(200);
    const made = await ok('rootKeys.rerollKey', { keyId: old.keyId, expiration: 0 });
    expect(await call('keys.verifyKey', { key }, old.key)).toMatchObject({ status: 403, code: 'root_key_expired' });
    expect((await call('keys.verifyKey', { key }, made.key)).data).toMatchObject({ valid: true });
  });

  test('no grace extends an expiry, and null leaves it', async () => {
    const expires = clock.now + hourMs;
    const old = await create(['api.*.read_api'], { expires });
    await ok('rootKeys.rerollKey', { keyId: old.keyId, expiration: dayMs });
    expect(await listed(old.keyId)).toMatchObject({ expires });
    await ok('rootKeys.rerollKey', { keyId: old.keyId, expiration: null });
    expect(await listed(old.keyId)).toMatchObject({ expires });
    const lasting = await create(['api.*.read_api']);
    await ok('rootKeys.rerollKey', { keyId: lasting.keyId, expiration: null });
    expect(await listed(lasting.keyId)).toMatchObject({ expires: null });
  });

  test('a disabled one has a disabled successor', async () => {
    const old = await create(['api.*.read_api']);
    await ok('rootKeys.updateKey', { keyId: old.keyId, enabled: false });
    const made = await ok('rootKeys.rerollKey', { keyId: old.keyId, expiration: 0 });
    expect(await statusOf(made.key)).toBe('root_key_disabled');
  });

  test('one that is in use and ends by a reroll is in the list of those that end', async () => {
    const old = await create(['*']);
    expect(await statusOf(old.key)).toBe('ok');
    const ending = async () =>
      (await ok('rootKeys.listRootKeys', { ending: true })).filter(({ rootKeyId }) => rootKeyId === old.keyId);
    expect(await ending()).toEqual([]);
    await ok('rootKeys.rerollKey', { keyId: old.keyId, expiration: 8 * hourMs });
    expect(await ending()).toMatchObject([{ expires: clock.now + 8 * hourMs }]);
  });

  test('the last admin may replace itself, and its successor is the last admin', async () => {
    const { rootKey } = await createWorkspace();
    const own = (await call('rootKeys.whoami', {}, rootKey)).data.rootKeyId;
    const { data } = await call('rootKeys.rerollKey', { keyId: own, expiration: 0 }, rootKey);
    expect(await statusOf(rootKey)).toBe('root_key_expired');
    const refused = await call('rootKeys.deleteKey', { keyId: data.keyId }, data.key);
    expect(refused).toMatchObject({ status: 412, code: 'precondition_failed' });
    expect(await call('rootKeys.deleteKey', { keyId: own }, data.key)).toMatchObject({ status: 200 });
  });

  test('the audit log names the successor', async () => {
    const old = await create(['api.*.read_api']);
    const made = await ok('rootKeys.rerollKey', { keyId: old.keyId, expiration: 1000 });
    const [event] = await ok('audit.listEvents', { order: 'desc', limit: 1 });
    expect(event).toMatchObject({
      operation: 'rootKeys.rerollKey',
      resource: { type: 'root_key', id: old.keyId },
      changes: [
        { field: 'successor', after: made.keyId },
        { field: 'expires', after: `${clock.now + 1000}` },
      ],
    });
  });
});

describe('rootKeys.rerollKey: refused, and nothing changes', () => {
  const both = ['root_key.*.create_root_key', 'root_key.*.update_root_key'];
  const refuses = async (keyId: string, as: string[] | string, expected: object) => {
    const list = async () => (await ok('rootKeys.listKeys', {})).map(({ lastUsedAt: _used, ...rootKey }) => rootKey);
    const before = await list();
    const answer = await call('rootKeys.rerollKey', { keyId, expiration: 0 }, as);
    expect(answer).toMatchObject(expected);
    // The root keys that the callers of tests are made with are newer.
    expect((await list()).slice(0, before.length)).toEqual(before);
    return answer;
  };
  const forbidden = { status: 403, code: 'insufficient_permissions' };

  test.each(both)('without %s', async (lacking) => {
    const { keyId } = await create([lacking]);
    const { error } = await refuses(
      keyId,
      [...both, 'api.*.read_api'].filter((grant) => grant !== lacking),
      forbidden,
    );
    expect(error.detail).toContain(lacking);
  });

  test('without a grant of the other one, or of itself with fewer than it has', async () => {
    const { keyId } = await create(['api.*.read_api', 'api.*.read_key']);
    const { error } = await refuses(keyId, [...both, 'api.*.read_api'], forbidden);
    expect(error.detail).toContain('lacks a grant that the other root key has');
    await refuses((await create(['*'])).keyId, [...both, 'api.*.read_api'], forbidden);
  });

  test('by a caller that expires before it: its successor would outlive it', async () => {
    const { key } = await create(['*'], { expires: clock.now + hourMs });
    for (const expires of [undefined, clock.now + hourMs + 1]) {
      const { keyId } = await create(['api.*.read_api'], expires === undefined ? {} : { expires });
      const { error } = await refuses(keyId, key, forbidden);
      expect(error.detail).toContain('expires before the other one');
    }
    const { keyId } = await create(['api.*.read_api'], { expires: clock.now + hourMs });
    expect((await call('rootKeys.rerollKey', { keyId, expiration: 0 }, key)).status).toBe(200);
  });

  test('404 for one that is unknown or of another workspace', async () => {
    const { rootKey } = await createWorkspace();
    const own = (await call('rootKeys.whoami', {}, rootKey)).data.rootKeyId;
    const notFound = { status: 404, code: 'root_key_not_found' };
    for (const keyId of ['root_unknown', own]) await refuses(keyId, tollgate.rootKey, notFound);
    expect(await statusOf(rootKey)).toBe('ok');
  });

  test.each<[string, object]>([
    ['expiration', {}],
    ['expiration', { expiration: -1 }],
    ['expiration', { expiration: '0' }],
    ['expiration', { expiration: 4e12 }],
    ['keyId', { keyId: null, expiration: 0 }],
    ['rootKeyId', { rootKeyId: 'root_1', expiration: 0 }],
  ])('400 for %s: %j', async (field, input) => {
    const { keyId } = await create(['api.*.read_api']);
    const answer = await call('rootKeys.rerollKey', { keyId, ...input } as never);
    expect(answer).toMatchObject(invalidAt(`body.${field}`));
    expect(await listed(keyId)).toMatchObject({ expires: null });
  });
});
