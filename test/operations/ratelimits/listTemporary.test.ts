// Temporary limits and overrides in order of their end. test/lua/include/ends.test.ts compares the list with all
// records after random changes.

import { describe, expect, test } from 'vitest';
import { dayMs, harness, hourMs, type InputOf } from '../../support/harness.ts';
import { withoutDefaults } from '../../support/limits.ts';
import { brokenCursors, readPages } from '../../support/lists.ts';
import { snippets } from '../../support/snippet.ts';

const snippet = snippets();
const tollgate = harness();
const { call, clock, openWorkspace, send } = tollgate;
const minute = 60_000;
type Listed = { kind: string; name?: string; identifier?: string; until: number };

async function openListed() {
  const workspace = await openWorkspace();
  const list = async (input: InputOf<'ratelimits.listTemporary'> = {}) =>
    (await workspace.of('ratelimits.listTemporary', input)) as Listed[];
  const namesOf = async (input: InputOf<'ratelimits.listTemporary'> = {}) =>
    (await list(input)).map(({ name, identifier }) => name ?? identifier);
  return { ...workspace, list, namesOf };
}
type Workspace = Awaited<ReturnType<typeof openListed>>;

const temporary = (name: string, inMs: number) => ({ name, limit: 5, duration: minute, until: clock.now + inMs });

/** One of each kind: of a key in two hours, of an identity in one, an override in three. */
async function withOneOfEach({ of }: Workspace) {
  const { apiId } = await of('apis.createApi', { name: 'payments' });
  const { keyId } = await of('keys.createKey', {
    apiId,
    name: 'Ada',
    ratelimits: [{ name: 'requests', limit: 9, duration: minute, autoApply: true }],
  });
  await of('keys.updateKey', { keyId, ratelimit: { name: 'requests', limit: 90, until: clock.now + 2 * hourMs } });
  const { identityId } = await of('identities.createIdentity', {
    externalId: 'ada',
    ratelimits: [{ name: 'tokens', limit: 7, duration: hourMs, until: clock.now + hourMs, type: 'concurrency' }],
  });
  const override = { namespace: 'mail', identifier: 'partner_*' };
  const given = { ...override, duration: minute };
  await of('ratelimits.setOverride', { ...given, limit: 1 });
  await of('ratelimits.setOverride', { ...given, limit: 20, until: clock.now + 3 * hourMs });
  const { namespaceId, overrideId } = await of('ratelimits.getOverride', override);
  return { apiId, keyId, identityId, namespaceId, overrideId };
}

describe('ratelimits.listTemporary: 200', () => {
  test('lists all kinds with their owners, the first to end first, and what is in force afterwards', async () => {
    const workspace = await openListed();
    const { apiId, keyId, namespaceId, overrideId } = await withOneOfEach(workspace);
    const now = clock.now;
    expect((await workspace.list()).map(withoutDefaults)).toEqual([
      {
        kind: 'identity',
        externalId: 'ada',
        id: expect.stringMatching(/^rl_/),
        name: 'tokens',
        limit: 7,
        duration: hourMs,
        autoApply: false,
        type: 'concurrency',
        until: now + hourMs,
      },
      {
        kind: 'key',
        keyId,
        apiId,
        keyName: 'Ada',
        id: expect.stringMatching(/^rl_/),
        name: 'requests',
        limit: 90,
        duration: minute,
        autoApply: true,
        until: now + 2 * hourMs,
        former: { limit: 9, duration: minute, autoApply: true },
      },
      {
        kind: 'override',
        overrideId,
        namespace: 'mail',
        namespaceId,
        identifier: 'partner_*',
        limit: 20,
        duration: minute,
        until: now + 3 * hourMs,
        former: { limit: 1, duration: minute },
      },
    ]);
  });

  test('kinds, API, namespace and `before` select', async () => {
    const workspace = await openListed();
    const { apiId, namespaceId } = await withOneOfEach(workspace);
    const { namesOf, of } = workspace;
    const other = await of('apis.createApi', { name: 'other' });
    await of('keys.createKey', { apiId: other.apiId, ratelimits: [temporary('others', 90 * minute)] });
    const inSms = { namespace: 'sms', identifier: 'bob', limit: 1, duration: minute, until: clock.now + dayMs };
    await of('ratelimits.setOverride', inSms);
    expect(await namesOf()).toEqual(['tokens', 'others', 'requests', 'partner_*', 'bob']);
    expect(await namesOf({ kinds: ['identity', 'override'] })).toEqual(['tokens', 'partner_*', 'bob']);
    expect(await namesOf({ kinds: ['key', 'key'] })).toEqual(['others', 'requests']);
    expect(await namesOf({ apiId })).toEqual(['requests']);
    expect(await namesOf({ namespace: namespaceId })).toEqual(['partner_*']);
    expect(await namesOf({ namespace: 'sms' })).toEqual(['bob']);
    expect(await namesOf({ before: clock.now + 2 * hourMs })).toEqual(['tokens', 'others']);
    expect(await namesOf({ before: clock.now + 2 * hourMs + 1 })).toEqual(['tokens', 'others', 'requests']);
    expect(await namesOf({ before: 0 })).toEqual([]);
  });

  test('what has ended is not listed from its millisecond on, with and without the sweeper', async () => {
    const workspace = await openListed();
    await withOneOfEach(workspace);
    const from = clock.now;
    clock.now = from + hourMs - 1;
    expect(await workspace.namesOf()).toEqual(['tokens', 'requests', 'partner_*']);
    clock.now = from + hourMs;
    expect(await workspace.namesOf()).toEqual(['requests', 'partner_*']);
    clock.now = from + 2 * hourMs;
    while (await tollgate.store.sweep.ended(workspace.workspaceId));
    expect(await workspace.namesOf()).toEqual(['partner_*']);
    clock.now = from + 3 * hourMs;
    expect(await workspace.namesOf()).toEqual([]);
    clock.now = from;
  });

  test('pages have everything once, also what ends at the same time, while others change', async () => {
    const { of, rootKey, list } = await openListed();
    const { apiId } = await of('apis.createApi', { name: 'many' });
    const until = clock.now + dayMs;
    // Names that an order by locale would sort in another way than by bytes, and long ones.
    const names = [
      'a_b',
      'A_b',
      'äöü',
      '漢字漢',
      '\u{1F600} x',
      'a b',
      'a-b',
      'a.b',
      'x'.repeat(128),
      '漢'.repeat(128),
    ];
    const ratelimits = names.map((name) => ({ name, limit: 1, duration: minute, until }));
    const { keyId } = await of('keys.createKey', { apiId, ratelimits });
    await of('identities.createIdentity', { externalId: 'many', ratelimits });
    const given = { namespace: 'mail', limit: 1, duration: minute, until };
    for (let index = 0; index < 5; index++)
      await of('ratelimits.setOverride', { ...given, identifier: '\u{1F600}'.repeat(255) + index });
    const expected = await list();
    expect(expected).toHaveLength(2 * names.length + 5);
    for (const limit of [1, 2, 7, 24, 25]) {
      const pages = await readPages((at) => call('ratelimits.listTemporary', { limit, ...at }, rootKey));
      expect(pages.slice(0, -1).every((items) => items.length === limit)).toBe(true);
      expect(pages.flat()).toEqual(expected);
    }
    // A page begins after an item that is gone, or ends later now.
    const first = await call('ratelimits.listTemporary', { limit: 3 }, rootKey);
    const changed = expected[2]!;
    const owner = changed.kind === 'key' ? { keyId } : { identity: 'many' };
    const change = { ...owner, ratelimit: { name: changed.name!, limit: 2, until: until + 1 } };
    await of(changed.kind === 'key' ? 'keys.updateKey' : 'identities.updateIdentity', change as never);
    const rest = await readPages((at) =>
      call('ratelimits.listTemporary', { limit: 100, cursor: first.pagination.cursor!, ...at }, rootKey),
    );
    expect(rest.flat()).toEqual([...expected.slice(3), { ...changed, limit: 2, until: until + 1 }]);
  });

  test('an owner is gone: its limits are not listed, and come back with it', async () => {
    const workspace = await openListed();
    const { apiId, keyId, identityId, namespaceId } = await withOneOfEach(workspace);
    const { of, namesOf } = workspace;
    await of('keys.deleteKey', { keyId });
    expect(await namesOf()).toEqual(['tokens', 'partner_*']);
    await of('keys.restoreKey', { keyId });
    expect(await namesOf()).toEqual(['tokens', 'requests', 'partner_*']);
    await of('apis.deleteApi', { apiId });
    expect(await namesOf()).toEqual(['tokens', 'partner_*']);
    await of('identities.deleteIdentity', { identity: identityId });
    expect(await namesOf()).toEqual(['partner_*']);
    await of('ratelimits.deleteOverride', { namespace: namespaceId, identifier: 'partner_*' });
    expect(await namesOf()).toEqual([]);
  });

  test('nothing of an earlier state is listed: each item is compared with its record', async () => {
    const workspace = await openListed();
    const { keyId, identityId, namespaceId, overrideId } = await withOneOfEach(workspace);
    const before = await workspace.list();
    const [key24, identity16] = [keyId.slice(4), identityId.slice(3)];
    const override = `o${namespaceId.slice(5)}${overrideId.slice(5)}`;
    const unknown = '1'.repeat(16);
    const stale = [
      [1, `k${key24}another name`],
      [1, `k${unknown}${key24.slice(16)}requests`],
      [1, `k${key24.slice(0, 16)}${unknown.slice(8)}requests`],
      [1, `i${identity16}requests`],
      [1, `i${unknown}tokens`],
      [1, `o${namespaceId.slice(5)}${unknown}`],
      [1, `o${unknown}${overrideId.slice(5)}`],
      [1, 'k'],
      [1, `x${unknown}`],
    ] as const;
    const index = `tg:{${workspace.workspaceId}}:ends`;
    for (const [ms, member] of stale) await snippet.redis.zadd(index, clock.now + ms, member);
    expect(await workspace.list()).toEqual(before);
    // With another end than the record has.
    await snippet.redis.zadd(index, clock.now + 5, `k${key24}requests`, clock.now + 5, `i${identity16}tokens`);
    await snippet.redis.zadd(index, clock.now + 5, override);
    expect(await workspace.list()).toEqual([]);
  });

  test('a page ends early where very many are of other kinds, and the next one continues', async () => {
    const { workspaceId, rootKey, of } = await openListed();
    await of('identities.createIdentity', { externalId: 'last', ratelimits: [temporary('tokens', dayMs)] });
    const members = Array.from({ length: 25_000 }, (_, number) => [
      clock.now + 1 + (number % 3),
      `k${'1'.repeat(24)}limit ${number}`,
    ]);
    for (let at = 0; at < members.length; at += 5000)
      await snippet.redis.zadd(`tg:{${workspaceId}}:ends`, ...members.slice(at, at + 5000).flat());
    const pages = await readPages((at) => call('ratelimits.listTemporary', { kinds: ['identity'], ...at }, rootKey));
    expect(pages.map((items) => items.length)).toEqual([0, 1]);
  });

  test('by the singular path, too', async () => {
    const workspace = await openListed();
    await withOneOfEach(workspace);
    const { json } = await send('/v2/ratelimit.listTemporary', { authorization: `Bearer ${workspace.rootKey}` });
    expect(json.data).toEqual(await workspace.list());
  });
});

test('400: a broken cursor, a cursor of another list, and what excludes each other', async () => {
  const { rootKey, of } = await openListed();
  const { apiId } = await of('apis.createApi', { name: 'one' });
  await of('keys.createKey', { apiId, ratelimits: [temporary('one', 1000), temporary('two', 1000)] });
  const { pagination } = await call('ratelimits.listTemporary', { apiId, limit: 1 }, rootKey);
  // One that is cut may be that of a shorter name.
  const broken = brokenCursors(pagination.cursor!, 'id_x').filter((each) => each !== pagination.cursor!.slice(0, -2));
  for (const cursor of broken) {
    const answer = await call('ratelimits.listTemporary', { apiId, cursor }, rootKey);
    expect(answer, cursor).toMatchObject({ status: 400, error: { errors: [{ location: 'body.cursor' }] } });
  }
  expect((await call('ratelimits.listTemporary', { cursor: pagination.cursor! }, rootKey)).status).toBe(400);
  const contradictions = [
    [{ kinds: ['key'], apiId }, 'body.apiId'],
    [{ namespace: 'mail', apiId }, 'body.namespace'],
    [{ kinds: ['override'], namespace: 'mail' }, 'body.namespace'],
  ] as const;
  for (const [input, location] of contradictions) {
    expect(await call('ratelimits.listTemporary', input as never, rootKey)).toMatchObject({
      status: 400,
      error: { errors: [{ location, message: expect.stringContaining('cannot be sent together with') }] },
    });
  }
});

test('404: an API or a namespace that does not exist', async () => {
  const { rootKey } = await openListed();
  expect(await call('ratelimits.listTemporary', { apiId: 'api_x' }, rootKey)).toMatchObject({ code: 'api_not_found' });
  const answer = await call('ratelimits.listTemporary', { namespace: 'none' }, rootKey);
  expect(answer).toMatchObject({ status: 404, code: 'namespace_not_found' });
});

describe('ratelimits.listTemporary: 403', () => {
  const ofKeys = ['api.*.read_key', 'api.*.read_api'];
  test.each([
    [['api.*.read_key'], { kinds: ['key'] }, 'api.*.read_api'],
    [['api.*.read_api'], { kinds: ['key'] }, 'api.*.read_key'],
    [ofKeys, { kinds: ['key', 'identity'] }, 'identity.*.read_identity'],
    [[...ofKeys, 'identity.*.read_identity'], {}, 'ratelimit.*.read_override'],
    [['ratelimit.*.read_override'], {}, 'api.*.read_key'],
  ])('%j, %j: names the grant that is missing', async (grants, input, missing) => {
    const answer = await call('ratelimits.listTemporary', input as never, grants);
    expect(answer).toMatchObject({ status: 403, error: { detail: `The root key lacks ${missing}.` } });
  });

  test('a caller that may read the keys of one API, or one namespace, names it', async () => {
    const workspace = await openListed();
    const { apiId, namespaceId } = await withOneOfEach(workspace);
    const grants = [`api.${apiId}.read_key`, `api.${apiId}.read_api`, `ratelimit.${namespaceId}.read_override`];
    const rootKey = await tollgate.createRootKey(grants, workspace.workspaceId);
    const other = await workspace.of('apis.createApi', { name: 'other' });
    const inSms = { namespace: 'sms', identifier: 'bob' };
    await workspace.of('ratelimits.setOverride', { ...inSms, limit: 1, duration: minute });
    const sms = await workspace.of('ratelimits.getOverride', inSms);
    const listed = async (input: InputOf<'ratelimits.listTemporary'>) => {
      const { status, data, error } = await call('ratelimits.listTemporary', input, rootKey);
      return status === 200 ? (data as Listed[]).map(({ kind }) => kind) : error.detail;
    };
    expect(await listed({ apiId })).toEqual(['key']);
    expect(await listed({ namespace: 'mail' })).toEqual(['override']);
    const lacks = (grant: string) => `The root key lacks ${grant}.`;
    expect(await listed({ kinds: ['key'] })).toBe(lacks('api.*.read_key'));
    expect(await listed({ kinds: ['override'] })).toBe(lacks('ratelimit.*.read_override'));
    expect(await listed({ apiId: other.apiId })).toBe(lacks(`api.*.read_key or api.${other.apiId}.read_key`));
    expect(await listed({ namespace: 'sms' })).toBe(
      lacks(`ratelimit.*.read_override or ratelimit.${sms.namespaceId}.read_override`),
    );
  });
});
