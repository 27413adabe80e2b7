import { describe, expect, test } from 'vitest';
import { actions } from '../../../src/domain/grants.ts';
import { harness } from '../../support/harness.ts';
import { onlyInvalidAt } from '../../support/invalid.ts';

const tollgate = harness();
const { call, ok, clock } = tollgate;

const listed = async (rootKeyId: string) =>
  (await ok('rootKeys.listRootKeys', {})).find((rootKey) => rootKey.rootKeyId === rootKeyId);

describe('rootKeys.createRootKey: 200', () => {
  test('the root key works immediately, with exactly its grants', async () => {
    const { rootKeyId, key } = await ok('rootKeys.createRootKey', { permissions: ['api.*.create_api'] });
    expect(rootKeyId).toMatch(/^root_[1-9A-HJ-NP-Za-km-z]{16}$/);
    expect(key).toMatch(new RegExp(`^root_${tollgate.workspaceId.slice(3)}_[1-9A-HJ-NP-Za-km-z]{20,}$`));
    const { status, data } = await call('apis.createApi', { name: 'new' }, key);
    expect(status).toBe(200);
    expect((await call('apis.getApi', { apiId: data.apiId }, key)).status).toBe(403);
  });

  test('the root key is returned once; lists have its start', async () => {
    const { rootKeyId, key } = await ok('rootKeys.createRootKey', { permissions: ['*'], name: 'second' });
    const { start } = (await listed(rootKeyId))!;
    expect(key.startsWith(start)).toBe(true);
    expect(key.length - start.length).toBeGreaterThanOrEqual(20);
  });

  test('grants in either spelling are one grant', async () => {
    const permissions = [
      'apis.*.read_api',
      'api.*.read_api',
      'ratelimits.rlns_a.limit',
      'ratelimit.rlns_a.limit',
      'apis.api_a.read_key',
    ];
    const { rootKeyId, key } = await ok('rootKeys.createRootKey', { permissions });
    expect((await listed(rootKeyId))?.permissions).toEqual([
      'api.*.read_api',
      'ratelimit.rlns_a.limit',
      'api.api_a.read_key',
    ]);
    const { apiId } = await ok('apis.createApi', { name: 'read' });
    expect((await call('apis.getApi', { apiId }, key)).status).toBe(200);
  });

  test('every action can be granted', async () => {
    const all = Object.entries(actions).flatMap(([resource, names]) => names.map((name) => `${resource}.*.${name}`));
    const { rootKeyId } = await ok('rootKeys.createRootKey', { permissions: all });
    expect((await listed(rootKeyId))?.permissions).toEqual(all);
  });

  test('a thousand grants, and names of any characters', async () => {
    const permissions = Array.from({ length: 1000 }, (_, index) => `api.api_${index}.read_key`);
    const { rootKeyId } = await ok('rootKeys.createRootKey', { permissions, name: '\u{1f511}'.repeat(255) });
    expect(await listed(rootKeyId)).toMatchObject({ permissions, name: '\u{1f511}'.repeat(255) });
  });

  test('64 KiB of grants and not a byte more, in either spelling', async () => {
    // With line breaks, a grant of 255 bytes is 256, and there is one line break more.
    const grant = (index: number, bytes: number) =>
      `api.api_${index}_`.padEnd(bytes - '.read_key'.length, 'x').concat('.read_key');
    const full = Array.from({ length: 256 }, (_, index) => grant(index, index === 0 ? 254 : 255));
    const { rootKeyId } = await ok('rootKeys.createRootKey', {
      permissions: full.map((text) => text.replace('api.', 'apis.')),
    });
    expect((await listed(rootKeyId))?.permissions).toEqual(full);
    const tooLong = [grant(0, 255), ...full.slice(1)];
    for (const refused of [
      await call('rootKeys.createRootKey', { permissions: tooLong }),
      await call('rootKeys.updateRootKey', { rootKeyId, permissions: tooLong }),
    ]) {
      expect(refused).toMatchObject({ status: 400, code: 'invalid_input' });
      expect(refused.error.errors).toEqual([
        { location: 'body.permissions', message: expect.stringContaining('65536 bytes') },
      ]);
    }
    // A duplicate grant is stored once.
    expect((await call('rootKeys.createRootKey', { permissions: [...full, ...full] })).status).toBe(200);
  });

  test('a root key that is older than that limit works, and its other fields can be changed', async () => {
    const grants = Array.from({ length: 1000 }, (_, index) => `api.api_${index}${'x'.repeat(240)}.read_key`);
    const key = await tollgate.createRootKey([...grants, 'api.*.create_api']);
    expect((await call('apis.createApi', { name: 'new' }, key)).status).toBe(200);
    const { rootKeyId } = (await ok('rootKeys.listRootKeys', {})).find(({ start }) => key.startsWith(start))!;
    await ok('rootKeys.updateRootKey', { rootKeyId, name: 'renamed' });
    expect(await listed(rootKeyId)).toMatchObject({ name: 'renamed', permissions: [...grants, 'api.*.create_api'] });
  });

  test('expires to the millisecond', async () => {
    const expires = clock.now + 1000;
    const { rootKeyId, key } = await ok('rootKeys.createRootKey', { permissions: ['*'], expires });
    expect(await listed(rootKeyId)).toMatchObject({ expires });
    clock.advance(999);
    expect((await call('rootKeys.listRootKeys', {}, key)).status).toBe(200);
    clock.advance(1);
    expect(await call('rootKeys.listRootKeys', {}, key)).toMatchObject({ status: 403, code: 'root_key_expired' });
    const limit = { namespace: 'email', identifier: 'a', limit: 1, duration: 1000 };
    expect(await call('ratelimits.limit', limit, key)).toMatchObject({ status: 403, code: 'root_key_expired' });
    expect(await call('keys.verifyKey', { key: 'any' }, key)).toMatchObject({ status: 403, code: 'root_key_expired' });
  });
});

describe('rootKeys.createRootKey: 400', () => {
  test.each([
    '',
    '**',
    'api',
    'api.*',
    'api.*.*',
    'api.*.verify',
    'api.*.limit',
    'api..read_api',
    'api.ab.read_api',
    'api.a-b.read_api',
    'api.*.read_api.more',
    ' api.*.read_api',
    'api.*.read_api\n',
    'api.*.read_api\n*',
    'API.*.read_api',
    'ratelimit.*.read_api',
    'rbacs.*.read_role',
    'rbac.role_a.read_role',
    'root_key.root_a.read_root_key',
    'audit.audit_a.read_audit',
    'constructor.*.name',
    '__proto__.*.toString',
  ])('the grant %j', async (grant) => {
    expect(await call('rootKeys.createRootKey', { permissions: ['api.*.read_api', grant] })).toMatchObject(
      onlyInvalidAt('body.permissions[1]'),
    );
  });

  test('no grants, or more than a thousand', async () => {
    expect((await call('rootKeys.createRootKey', { permissions: [] })).status).toBe(400);
    const permissions = Array.from({ length: 1001 }, () => '*');
    expect((await call('rootKeys.createRootKey', { permissions })).status).toBe(400);
  });

  test('an empty name, or a time out of range', async () => {
    expect((await call('rootKeys.createRootKey', { permissions: ['*'], name: '' })).status).toBe(400);
    for (const expires of [-1, 4_102_444_800_001, 1.5]) {
      expect((await call('rootKeys.createRootKey', { permissions: ['*'], expires })).status).toBe(400);
    }
  });

  test('an unknown grant, for any caller', async () => {
    const answer = await call('rootKeys.createRootKey', { permissions: ['api.*.fly'] }, ['api.*.read_api']);
    expect(answer).toMatchObject({ status: 400, code: 'invalid_input' });
  });
});

describe('rootKeys.createRootKey: 403', () => {
  const maker = 'root_key.*.create_root_key';

  test.each([
    { holds: ['api.*.read_key'], grants: ['api.*.read_api'], lacks: 'api.*.read_api' },
    { holds: ['api.*.read_key'], grants: ['*'], lacks: '*' },
    { holds: ['api.api_a.read_key'], grants: ['api.*.read_key'], lacks: 'api.*.read_key' },
    { holds: ['api.api_a.read_key'], grants: ['api.api_b.read_key'], lacks: 'api.api_b.read_key' },
    { holds: ['api.*.read_key'], grants: ['api.*.read_key', 'apis.api_a.delete_key'], lacks: 'api.api_a.delete_key' },
    { holds: ['ratelimit.*.limit'], grants: ['ratelimit.*.set_override'], lacks: 'ratelimit.*.set_override' },
  ])('$holds cannot grant $grants', async ({ holds, grants, lacks }) => {
    const before = (await ok('rootKeys.listRootKeys', {})).length + 1;
    const answer = await call('rootKeys.createRootKey', { permissions: grants }, [maker, ...holds]);
    expect(answer).toMatchObject({ status: 403, code: 'insufficient_permissions' });
    expect(answer.error.detail).toContain(lacks);
    expect(await ok('rootKeys.listRootKeys', {})).toHaveLength(before);
  });

  test.each([
    { holds: ['api.*.read_key'], grants: ['api.*.read_key'] },
    { holds: ['api.*.read_key'], grants: ['apis.api_a.read_key', 'apis.*.read_key'] },
    { holds: ['api.api_a.read_key'], grants: ['api.api_a.read_key'] },
    { holds: [], grants: [maker] },
  ])('$holds can grant $grants', async ({ holds, grants }) => {
    expect((await call('rootKeys.createRootKey', { permissions: grants }, [maker, ...holds])).status).toBe(200);
  });
});
