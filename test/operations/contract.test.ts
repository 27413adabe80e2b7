// What every operation owes, whatever it does: asked of the registry, so a new operation is asked too. Its line in
// `examples` below is all that it adds here.

import { randomBytes } from 'node:crypto';
import { Ajv } from 'ajv';
import { pino } from 'pino';
import type { TSchema } from 'typebox';
import { beforeAll, describe, expect, test } from 'vitest';
import { createKeyString, createRootKeyString } from '../../src/domain/keyString.ts';
import { ApiError, type ErrorCode, errorCatalogue } from '../../src/errors.ts';
import type { Answer, Request } from '../../src/http/message.ts';
import { createPipeline } from '../../src/http/pipeline.ts';
import type { AnyOperation } from '../../src/operation.ts';
import { type OperationName, operations } from '../../src/operations/index.ts';
import { closed } from '../support/closed.ts';
import { type ErrorBody, harness, type InputOf } from '../support/harness.ts';

const tollgate = harness();
const { call, createRootKey, createWorkspace } = tollgate;

type Things = Awaited<ReturnType<typeof makeThings>>;

/** What operations are about, made anew for every call, as some remove it. */
async function makeThings({ rootKey }: { rootKey: string }) {
  const ok = async <Name extends OperationName>(name: Name, input: InputOf<Name>) => {
    const { status, data, error } = await call(name, input, rootKey);
    if (status !== 200) throw new Error(`${name}: ${error.detail}`);
    return data;
  };
  const name = `things.${++made}`;
  const { apiId } = await ok('apis.createApi', { name });
  const { identityId } = await ok('identities.createIdentity', { externalId: name });
  const { permissionId } = await ok('permissions.createPermission', { name, slug: name });
  const { roleId } = await ok('permissions.createRole', { name });
  const { keyId, key } = await ok('keys.createKey', { apiId, externalId: name, credits: { remaining: 9 } });
  const { rootKeyId } = await ok('rootKeys.createRootKey', { permissions: ['api.*.read_api'] });
  const override = { namespace: name, identifier: name };
  await ok('ratelimits.setOverride', { ...override, limit: 1, duration: 1000 });
  const { namespaceId } = await ok('ratelimits.getOverride', override);
  return { name, apiId, identityId, permissionId, roleId, keyId, key, rootKeyId, namespaceId };
}
let made = 0;
const fresh = () => `new.${++made}`;

interface Example<Name extends OperationName> {
  /** The least it accepts. */
  input(things: Things): InputOf<Name>;
  /** What it answers when the ids in `input` are another workspace's; left out where there are none. */
  elsewhere?: ErrorCode;
}

const about = {
  api: { input: ({ apiId }: Things) => ({ apiId }), elsewhere: 'api_not_found' },
  key: { input: ({ keyId }: Things) => ({ keyId }), elsewhere: 'key_not_found' },
  identity: { input: ({ identityId }: Things) => ({ identity: identityId }), elsewhere: 'identity_not_found' },
  permission: {
    input: ({ permissionId }: Things) => ({ permission: permissionId }),
    elsewhere: 'permission_not_found',
  },
  role: { input: ({ roleId }: Things) => ({ role: roleId }), elsewhere: 'role_not_found' },
  rootKey: { input: ({ rootKeyId }: Things) => ({ rootKeyId }), elsewhere: 'root_key_not_found' },
  keyPermissions: {
    input: ({ keyId, name }: Things) => ({ keyId, permissions: [name] }),
    elsewhere: 'key_not_found',
  },
  keyRoles: { input: ({ keyId, name }: Things) => ({ keyId, roles: [name] }), elsewhere: 'key_not_found' },
  override: {
    input: ({ namespaceId, name }: Things) => ({ namespace: namespaceId, identifier: name }),
    elsewhere: 'namespace_not_found',
  },
} as const;

const check = ({ namespaceId }: Things) => ({ namespace: namespaceId, identifier: 'a', limit: 1, duration: 1000 });

const examples: { [Name in OperationName]: Example<Name> } = {
  'apis.createApi': { input: () => ({ name: fresh() }) },
  'apis.getApi': about.api,
  'apis.listKeys': about.api,
  'apis.deleteApi': about.api,
  'keys.createKey': about.api,
  // Answers NOT_FOUND elsewhere, which is no error.
  'keys.verifyKey': { input: ({ key }) => ({ key }) },
  'keys.getKey': about.key,
  'keys.whoami': { input: ({ key }) => ({ key }), elsewhere: 'key_not_found' },
  'keys.updateKey': about.key,
  'keys.updateCredits': { ...about.key, input: ({ keyId }) => ({ keyId, operation: 'set', value: null }) },
  'keys.deleteKey': about.key,
  'keys.rerollKey': { ...about.key, input: ({ keyId }) => ({ keyId, expiration: 0 }) },
  'keys.migrateKeys': {
    ...about.api,
    input: ({ apiId, name }) => ({ migrationId: name, apiId, keys: [{ hash: randomBytes(32).toString('base64') }] }),
  },
  'keys.addPermissions': about.keyPermissions,
  'keys.removePermissions': about.keyPermissions,
  'keys.setPermissions': about.keyPermissions,
  'keys.addRoles': about.keyRoles,
  'keys.removeRoles': about.keyRoles,
  'keys.setRoles': about.keyRoles,
  'ratelimits.limit': { ...about.override, input: check },
  'ratelimits.multiLimit': { ...about.override, input: (things) => [check(things)] },
  'ratelimits.setOverride': { ...about.override, input: check },
  'ratelimits.getOverride': about.override,
  'ratelimits.listOverrides': { ...about.override, input: ({ namespaceId }) => ({ namespace: namespaceId }) },
  'ratelimits.deleteOverride': about.override,
  'identities.createIdentity': { input: () => ({ externalId: fresh() }) },
  'identities.getIdentity': about.identity,
  'identities.listIdentities': { input: () => ({}) },
  'identities.updateIdentity': about.identity,
  'identities.deleteIdentity': about.identity,
  'permissions.createPermission': { input: () => ({ name: 'new', slug: fresh() }) },
  'permissions.getPermission': about.permission,
  'permissions.listPermissions': { input: () => ({}) },
  'permissions.deletePermission': about.permission,
  'permissions.createRole': { input: () => ({ name: fresh() }) },
  'permissions.getRole': about.role,
  'permissions.listRoles': { input: () => ({}) },
  'permissions.deleteRole': about.role,
  'permissions.setRolePermissions': {
    ...about.role,
    input: ({ roleId, name }) => ({ roleId, permissions: [name] }),
  },
  'analytics.getVerifications': { input: () => ({}) },
  'analytics.getRatelimits': { input: () => ({}) },
  'audit.listEvents': { input: () => ({}) },
  'rootKeys.createRootKey': { input: () => ({ permissions: ['api.*.read_api'] }) },
  'rootKeys.listRootKeys': { input: () => ({}) },
  'rootKeys.updateRootKey': about.rootKey,
  'rootKeys.deleteRootKey': about.rootKey,
};

/** Every way in: an operation with an alias owes everything twice. */
const paths = (operations as readonly AnyOperation[]).flatMap((operation) =>
  [operation.name, operation.alias ?? []].flat().map((name) => ({ path: `/v2/${name}`, operation })),
);

const exampleOf = ({ name }: AnyOperation) => examples[name as OperationName] as Example<OperationName>;

let answer: Answer;
beforeAll(() => {
  answer = createPipeline(operations, {
    store: tollgate.store,
    log: pino({ level: 'silent' }),
    metaBytesMax: 10_240,
  });
});

interface Answered {
  status: number;
  contentType: string;
  headers: Map<string, string>;
  text: string;
  /** Of an error. */
  code: string | undefined;
  error: ErrorBody;
  data: unknown;
  json: Record<string, unknown>;
}

/** A whole request, of which a test names what it is about. */
async function ask(path: string, request: Partial<Omit<Request, 'body'>> & { body?: unknown } = {}): Promise<Answered> {
  const { body = {}, ...rest } = request;
  const asIs = Buffer.isBuffer(body) || body === 'too_large';
  const response = await answer({
    method: 'POST',
    path,
    hasQuery: false,
    authorization: `Bearer ${tollgate.rootKey}`,
    contentType: 'application/json',
    accept: '*/*',
    requestId: 'req_asked',
    body: (asIs ? body : Buffer.from(JSON.stringify(body))) as Request['body'],
    ...rest,
  });
  const json = response.contentType.includes('json') ? JSON.parse(response.body) : {};
  return {
    status: response.status,
    contentType: response.contentType,
    headers: new Map(response.headers),
    text: response.body,
    code: json.error?.type.split('/').at(-1),
    error: json.error,
    data: json.data,
    json,
  };
}

/** The members of an input object: of the items where the operation takes a list. */
const fieldsOf = ({ input }: AnyOperation) => {
  const schema = input as { type?: string; items?: unknown; properties?: Record<string, TSchema> };
  const isList = schema.type === 'array';
  const object = (isList ? schema.items : schema) as { properties?: Record<string, TSchema>; required?: string[] };
  return {
    required: object.required ?? [],
    names: Object.keys(object.properties ?? {}),
    at: isList ? 'body[0]' : 'body',
    wrap: (fields: object): unknown => (isList ? [fields] : fields),
    wrong: isList ? {} : [],
  };
};

/** whoami answers about a key string, whose existence is nobody else's business. */
const refusalOf = ({ name }: AnyOperation): ErrorCode =>
  name === 'keys.whoami' ? 'key_not_found' : 'insufficient_permissions';

const outOf = (code: ErrorCode) => ({ status: errorCatalogue.find((entry) => entry.code === code)!.status, code });

describe.each(paths)('$path', ({ path, operation }) => {
  const { names, required, at, wrap, wrong } = fieldsOf(operation);
  const bytes = (text: string) => Buffer.from(text);

  test.each([
    ['no header', ''],
    ['another scheme', 'Basic cm9vdDpyb290'],
    ['no root key', 'Bearer '],
    ['only a root key', createRootKeyString('ws_1111111111111111').key],
    ['two root keys', 'Bearer a b'],
  ])('401 before the body is looked at: %s', async (_what, authorization) => {
    const refused = await ask(path, { authorization, contentType: '', body: 'too_large' });
    expect(refused).toMatchObject(outOf('unauthorized'));
  });

  test('the scheme is Bearer in any case', async () => {
    const answered = await ask(path, { authorization: `bEARER  ${tollgate.rootKey}`, body: wrong });
    expect(answered).toMatchObject(outOf('invalid_input'));
  });

  describe('401 for a root key nobody was given', () => {
    test.each([
      ['of this workspace', () => createRootKeyString(tollgate.workspaceId).key],
      ['of no workspace', () => createRootKeyString('ws_1111111111111111').key],
      ['that looks like none', () => 'secret'],
      ['an end user\u2019s key', async () => (await tollgate.createKey()).key],
      ['an end user\u2019s key made to look like one', () => createKeyString({ prefix: 'root', byteLength: 16 }).key],
    ])('%s', async (_what, rootKey) => {
      const authorization = `Bearer ${await rootKey()}`;
      const body = exampleOf(operation).input(await makeThings(tollgate));
      expect(await ask(path, { authorization, body })).toMatchObject(outOf('unauthorized'));
      // The body is judged first.
      expect(await ask(path, { authorization, body: wrong })).toMatchObject(outOf('invalid_input'));
    });
  });

  test.each(['GET', 'HEAD', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])(
    '405 for %s, before anything else',
    async (method) => {
      const refused = await ask(path, { method, authorization: '', contentType: '', body: 'too_large' });
      expect(refused).toMatchObject(outOf('method_not_allowed'));
      expect(refused.headers.get('Allow')).toBe('POST');
    },
  );

  test.each([
    '',
    'text/plain',
    'application/x-www-form-urlencoded',
    'application/jsonp',
    'application/json-seq',
    'text/plain; application/json',
  ])('415 for the content type %j, before the body is looked at', async (contentType) => {
    expect(await ask(path, { contentType, body: 'too_large' })).toMatchObject(outOf('unsupported_media_type'));
  });

  test.each(['application/json; charset=utf-8', 'application/json;charset=UTF-8', 'Application/JSON'])(
    'takes the content type %j',
    async (contentType) => {
      expect(await ask(path, { contentType, body: wrong })).toMatchObject(outOf('invalid_input'));
    },
  );

  test('413 when reading stopped at the limit', async () => {
    const authorization = `Bearer ${createRootKeyString(tollgate.workspaceId).key}`;
    expect(await ask(path, { authorization, body: 'too_large' })).toMatchObject(outOf('body_too_large'));
  });

  describe('400', () => {
    test.each([
      ['no body', bytes('')],
      ['cut off', bytes('{"a":')],
      ['not JSON', bytes('{a:1}')],
      ['two values', bytes('{}{}')],
      ['a byte order mark', bytes('\ufeff{}')],
      ['bytes that are not UTF-8', Buffer.from([...bytes('{"a":"'), 0xff, ...bytes('"}')])],
      ['an overlong encoding', Buffer.from([...bytes('{"a":"'), 0xc0, 0xaf, ...bytes('"}')])],
      ['an encoded surrogate', Buffer.from([...bytes('{"a":"'), 0xed, 0xa0, 0x80, ...bytes('"}')])],
      ['half a character as a value', bytes('{"a":"\\ud800"}')],
      ['its other half', bytes('{"a":{"b":["\\uDFFF"]}}')],
      ['half a character as a name', bytes('{"\\ud83d":1}')],
      ['null', bytes('null')],
      ['a string', bytes('"{}"')],
      ['a number', bytes('1')],
    ])('%s', async (_what, body) => {
      const { status, code, error } = await ask(path, { body });
      expect({ status, code }).toEqual(outOf('invalid_input'));
      expect(error.errors).toEqual([expect.objectContaining({ location: 'body' })]);
    });

    test('a list for an object, or an object for a list', async () => {
      const { status, code, error } = await ask(path, { body: wrong });
      expect({ status, code }).toEqual(outOf('invalid_input'));
      expect(error.errors[0]).toMatchObject({ location: 'body' });
    });

    test('a query string', async () => {
      const body = exampleOf(operation).input(await makeThings(tollgate));
      expect(await ask(path, { hasQuery: true, body })).toMatchObject({
        ...outOf('invalid_input'),
        error: { errors: [] },
      });
    });

    test('a field it does not know, by name', async () => {
      const body = exampleOf(operation).input(await makeThings(tollgate));
      const known = Array.isArray(body) ? (body[0] as object) : body;
      const { status, code, error } = await ask(path, { body: wrap({ ...known, nonsense: 1 }) });
      expect({ status, code }).toEqual(outOf('invalid_input'));
      expect(error.errors).toEqual([expect.objectContaining({ location: `${at}.nonsense` })]);
      expect(error.detail).toContain(`${at}.nonsense`);
    });

    test('every field of the wrong type, each named', async () => {
      const body = wrap(Object.fromEntries(names.map((name) => [name, [[]]])));
      if (names.length === 0) return;
      const { status, error } = await ask(path, { body });
      expect(status).toBe(400);
      const failed = new Set(error.errors.map(({ location }) => location.slice(at.length + 1).replace(/[[.].*/, '')));
      expect([...failed].sort()).toEqual([...names].sort());
      for (const { message } of error.errors) expect(message).not.toBe('');
    });

    test('twenty fields at most', async () => {
      const fields = Object.fromEntries(Array.from({ length: 25 }, (_, index) => [`nonsense${index}`, 1]));
      const { error } = await ask(path, { body: wrap(fields) });
      expect(error.errors).toHaveLength(20);
      expect(new Set(error.errors.map(({ location }) => location)).size).toBe(20);
    });

    test('a cursor that is none, before it is asked who calls', async () => {
      if (!names.includes('cursor')) return;
      const authorization = `Bearer ${createRootKeyString(tollgate.workspaceId).key}`;
      const body = { ...exampleOf(operation).input(await makeThings(tollgate)), cursor: 'nonsense' };
      const { status, code, error } = await ask(path, { authorization, body });
      expect({ status, code }).toEqual(outOf('invalid_input'));
      expect(error.errors).toEqual([expect.objectContaining({ location: 'body.cursor' })]);
    });

    test('a field that must be there, left out or null', async () => {
      for (const name of required) {
        const body = exampleOf(operation).input(await makeThings(tollgate));
        const fields = (Array.isArray(body) ? body[0] : body) as Record<string, unknown>;
        const { [name]: _left, ...without } = fields;
        for (const [wrongFields, message] of [
          [without, 'is required'],
          [{ ...fields, [name]: null }, expect.stringMatching(/^must be/)],
        ]) {
          const { error, status } = await ask(path, { body: wrap(wrongFields as object) });
          expect(status).toBe(400);
          expect(error.errors).toEqual([expect.objectContaining({ location: `${at}.${name}`, message })]);
        }
      }
    });
  });

  describe('the envelope', () => {
    test('of a success', async () => {
      const example = exampleOf(operation);
      expect(example, `an example for ${operation.name}`).toBeDefined();
      // A workspace of its own has no second page.
      const workspace = await createWorkspace();
      const answered = await ask(path, {
        authorization: `Bearer ${workspace.rootKey}`,
        body: example.input(await makeThings(workspace)),
        accept: 'application/problem+json',
      });

      expect(answered, answered.text).toMatchObject({ status: 200, contentType: 'application/json' });
      const { meta, data, pagination } = answered.json;
      expect(meta).toEqual({ requestId: 'req_asked' });
      const { list, wrapItems } = operation.kind === 'manages' ? operation : {};
      expect(Object.keys(answered.json)).toEqual(list ? ['meta', 'data', 'pagination'] : ['meta', 'data']);
      if (list) expect(pagination).toEqual({ hasMore: false });
      expect(nullsIn(data)).toEqual(operation.name === 'keys.updateCredits' ? ['.remaining'] : []);
      const wrapped = wrapItems !== undefined && path === `/v2/${operation.name}`;
      expect(failuresOf(operation.output, wrapped ? (data as Record<string, unknown>)[wrapItems] : data)).toEqual([]);
    });

    test.each([
      ['*/*', 'application/json'],
      ['', 'application/json'],
      ['application/problem+json', 'application/problem+json'],
      ['application/json, Application/Problem+JSON;q=0.9', 'application/problem+json'],
    ])('of an error, when Accept is %j', async (accept, contentType) => {
      const answered = await ask(path, { accept, body: wrong });
      const problems = operation.problems ? 'application/problem+json' : contentType;
      expect(answered).toMatchObject({ status: 400, contentType: problems });
      expect(answered.json).toEqual({
        meta: { requestId: 'req_asked' },
        error: {
          title: expect.stringMatching(/./),
          detail: expect.stringMatching(/./),
          status: 400,
          type: '/errors/invalid_input',
          errors: expect.any(Array),
        },
      });
    });
  });

  describe('403', () => {
    test('a root key that was disabled', async () => {
      const { rootKeyId, key } = (await call('rootKeys.createRootKey', { permissions: ['*'] })).data;
      const asked = { authorization: `Bearer ${key}`, body: exampleOf(operation).input(await makeThings(tollgate)) };
      await call('rootKeys.updateRootKey', { rootKeyId, enabled: false });
      expect(await ask(path, asked)).toMatchObject(outOf('root_key_disabled'));
      expect(await ask(path, { ...asked, body: wrong })).toMatchObject(outOf('invalid_input'));
    });

    test('a root key that expires at this very moment', async () => {
      const key = await createRootKey(['*'], tollgate.workspaceId, tollgate.clock.now);
      const asked = { authorization: `Bearer ${key}`, body: exampleOf(operation).input(await makeThings(tollgate)) };
      expect(await ask(path, asked)).toMatchObject(outOf('root_key_expired'));
    });

    test('a root key that may do this to nothing, whether or not it is there', async () => {
      const things = await makeThings(tollgate);
      for (const [resource, actions] of Object.entries(operation.needs)) {
        for (const action of actions) {
          // All that it needs but for this one action.
          const others = Object.entries(operation.needs).flatMap(([other, named]) =>
            named.filter((name) => name !== action).map((name) => `${other}.*.${name}`),
          );
          const authorization = `Bearer ${await createRootKey([resource === 'audit' ? 'api.*.read_api' : 'audit.*.read_audit', ...others])}`;
          for (const named of [things, await makeThings(await createWorkspace())]) {
            const refused = await ask(path, { authorization, body: exampleOf(operation).input(named) });
            expect(refused).toMatchObject(outOf(refusalOf(operation)));
            if (refused.status === 403) expect(refused.error.detail).toContain(`${resource}.*.${action}`);
          }
        }
      }
    });
  });

  test('what belongs to another workspace looks absent', async () => {
    const { input, elsewhere } = exampleOf(operation);
    if (!elsewhere) return;
    const theirs = await createWorkspace();
    const things = await makeThings(theirs);
    const refused = await ask(path, { body: input(things) });
    expect(refused).toMatchObject(outOf(elsewhere));
    // And nothing happened to it.
    const owned = await ask(path, { body: input(things), authorization: `Bearer ${theirs.rootKey}` });
    expect(owned, owned.text).toMatchObject({ status: 200 });
  });

  test('grants that name the id are enough, and those that name another are not', async () => {
    const { input, elsewhere } = exampleOf(operation);
    const things = await makeThings(tollgate);
    const idOf: Record<string, string> = {
      api: things.apiId,
      ratelimit: things.namespaceId,
      identity: things.identityId,
    };
    const needs = Object.entries(operation.needs);
    const isScoped = elsewhere !== undefined && needs.some(([resource]) => idOf[resource]);
    if (!isScoped && operation.name !== 'keys.verifyKey') return;
    const grantsFor = (ids: Record<string, string>) =>
      needs.flatMap(([resource, actions]) => actions.map((action) => `${resource}.${ids[resource] ?? '*'}.${action}`));

    const other = await createRootKey(grantsFor({ api: 'other', ratelimit: 'other', identity: 'other' }));
    const refused = await ask(path, { authorization: `Bearer ${other}`, body: input(things) });
    if (operation.name === 'keys.verifyKey') expect(refused.data).toEqual({ valid: false, code: 'NOT_FOUND' });
    else expect(refused).toMatchObject(outOf(refusalOf(operation)));

    const scoped = await createRootKey(grantsFor(idOf));
    const allowed = await ask(path, { authorization: `Bearer ${scoped}`, body: input(things) });
    expect(allowed, allowed.text).toMatchObject({ status: 200 });
  });
});

/** The places of nulls in an answer, which says what is absent by leaving it out. */
function nullsIn(value: unknown, at = ''): string[] {
  if (value === null) return [at];
  if (typeof value !== 'object') return [];
  return Object.entries(value as object).flatMap(([name, member]) => nullsIn(member, `${at}.${name}`));
}

/** Where an answer is not what its schema says; a member that the schema does not name is a failure too. */
function failuresOf(output: TSchema, data: unknown): string[] {
  const check = new Ajv({ strict: false, allErrors: true }).compile(closed(output));
  check(data);
  return (check.errors ?? []).map(({ instancePath, message, params }) =>
    `${instancePath} ${message} ${JSON.stringify(params)}`.trim(),
  );
}

describe('an alias', () => {
  const aliased = (operations as readonly AnyOperation[]).filter(({ alias }) => alias);

  test.each(aliased.map((operation) => ({ operation, name: operation.name })))(
    'answers like $name',
    async ({ operation }) => {
      const answers = [];
      for (const name of [operation.name, operation.alias]) {
        const body = exampleOf(operation).input(await makeThings(tollgate));
        const { status, json } = await ask(`/v2/${name}`, { body });
        answers.push({ status, members: Object.keys(json), error: json.error });
      }
      expect(answers[1]).toEqual(answers[0]);
      expect(answers[0]!.status).toBe(200);
    },
  );

  test('ratelimit.limit and ratelimits.limit charge the same counter', async () => {
    const body = { namespace: 'both', identifier: 'a', limit: 2, duration: 60_000 };
    const { data } = await ask('/v2/ratelimit.limit', { body });
    expect(data).toMatchObject({ success: true, remaining: 1 });
    expect((await ask('/v2/ratelimits.limit', { body })).data).toEqual({ ...(data as object), remaining: 0 });
    expect((await ask('/v2/ratelimit.limit', { body })).data).toMatchObject({ success: false, remaining: 0 });
  });
});

describe('what is served without a root key', () => {
  const asAnybody = { method: 'GET', authorization: '', contentType: '', body: Buffer.alloc(0) };

  test('liveness', async () => {
    const answered = await ask('/v2/liveness', asAnybody);
    expect(answered).toMatchObject({ status: 200, contentType: 'application/json' });
    expect(answered.json).toEqual({ meta: { requestId: 'req_asked' }, data: { message: expect.any(String) } });
  });

  test.each(errorCatalogue)('a page about $code, where the type of such an error points', async ({ code, status }) => {
    const { type } = new ApiError(code, '').toBody();
    expect(type.endsWith(code)).toBe(true);
    const page = await ask(type, asAnybody);
    expect(page).toMatchObject({ status: 200, contentType: 'text/html; charset=utf-8' });
    expect(page.text).toContain(code);
    expect(page.text).toContain(`${status}`);
  });

  test.each(['/v2/liveness', '/errors/internal', '/health/live', '/health/ready'])(
    '405 with Allow for POST %s',
    async (path) => {
      const refused = await ask(path, { ...asAnybody, method: 'POST' });
      expect(refused).toMatchObject(outOf('method_not_allowed'));
      expect(refused.headers.get('Allow')).toBe('GET, HEAD');
    },
  );
});

test.each([
  '/',
  '/v2',
  '/v2/',
  '/v2/apis.nothing',
  '/v2/apis.createApi/',
  '/v2/APIS.createApi',
  '/v2/constructor',
  '/v1/apis.createApi',
  '/errors/nothing',
  '/errors/__proto__',
])('404 for %s, with or without a root key', async (path) => {
  expect(await ask(path, { authorization: '' })).toMatchObject(outOf('route_not_found'));
  expect(await ask(path, { method: 'GET' })).toMatchObject(outOf('route_not_found'));
});
