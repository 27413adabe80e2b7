// The rules for every operation, for all operations in the registry, so a new operation is tested too. Rules that the
// pipeline applies before it knows the operation are tested on three paths.

import { Ajv } from 'ajv';
import type { TSchema } from 'typebox';
import { beforeAll, describe, expect, test } from 'vitest';
import { createKeyString, createRootKeyString } from '../../src/domain/keyString.ts';
import { ApiError, type ErrorCode, errorCatalogue } from '../../src/errors.ts';
import type { Handler, Request } from '../../src/http/message.ts';
import { createPipeline } from '../../src/http/pipeline.ts';
import type { AnyOperation } from '../../src/operation.ts';
import { operations } from '../../src/operations/index.ts';
import { closed } from '../support/closed.ts';
import { exampleOf, makeThings as makeThingsBy, type Things } from '../support/examples.ts';
import { type ErrorBody, harness, jsonOf, logOfCauses, printCauses } from '../support/harness.ts';
import { testIf } from '../support/testIf.ts';

const tollgate = harness();
const { call, createRootKey, createWorkspace } = tollgate;

const makeThings = ({ rootKey }: { rootKey: string }) => makeThingsBy(call, rootKey);

/** An operation with an alias is tested on both paths. */
const paths = (operations as readonly AnyOperation[]).flatMap((operation) =>
  [operation.name, operation.alias ?? []].flat().map((name) => ({ path: `/v2/${name}`, operation })),
);

const managing = paths.find(({ operation }) => operation.name === 'keys.updateKey')!;
const deciding = paths.find(({ operation }) => operation.name === 'keys.verifyKey')!;
const limiting = paths.find(({ operation }) => operation.name === 'ratelimits.limit')!;

let answer: Handler;
const causes = new Map<string, string>();
printCauses(causes);
/** What refused requests name: they change none of it. */
let refusedThings: Things;
/** Records of another workspace. */
let theirThings: Things;
beforeAll(async () => {
  refusedThings = await makeThings(tollgate);
  theirThings = await makeThings(await createWorkspace());
  answer = createPipeline(operations, {
    store: tollgate.store,
    log: logOfCauses(causes),
    metaBytesMax: 10_240,
  });
});

interface Answered {
  status: number;
  contentType: string;
  headers: Map<string, string>;
  text: string;
  /** The type of an error. */
  code: string | undefined;
  error: ErrorBody;
  data: unknown;
  json: Record<string, unknown>;
}

/** The defaults of a request. A test replaces the parts that it tests. */
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
  const json = jsonOf(response, 'req_asked') ?? {};
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

/** The members of an input object; of its items if the operation takes a list. */
const fieldsOf = ({ input }: AnyOperation) => {
  const schema = input as { type?: string; items?: unknown; properties?: Record<string, TSchema> };
  const isList = schema.type === 'array';
  const object = (isList ? schema.items : schema) as { properties?: Record<string, TSchema>; required?: string[] };
  const { required = [], properties = {} } = object;
  return {
    required,
    /** Those required fields in which null has a meaning. */
    nullable: required.filter((name) => (properties[name] as { type?: string | string[] }).type?.includes('null')),
    names: Object.keys(object.properties ?? {}),
    at: isList ? 'body[0]' : 'body',
    wrap: (fields: object): unknown => (isList ? [fields] : fields),
    wrong: isList ? {} : [],
  };
};

const outOf = (code: ErrorCode) => ({ status: errorCatalogue.find((entry) => entry.code === code)!.status, code });

const bytes = (text: string) => Buffer.from(text);

describe.each([managing, deciding, limiting])('rules before any operation, on $path', ({ path, operation }) => {
  const wrong: never[] = [];
  const { input } = exampleOf(operation.name);

  test.each([
    ['no header', ''],
    ['another scheme', 'Basic cm9vdDpyb290'],
    ['no root key', 'Bearer '],
    ['only a root key', createRootKeyString('ws_1111111111111111').key],
    ['two root keys', 'Bearer a b'],
  ])('401 before the body is read, for Authorization with %s', async (_what, authorization) => {
    const refused = await ask(path, { authorization, contentType: '', body: 'too_large' });
    expect(refused).toMatchObject(outOf('unauthorized'));
  });

  test('the scheme is Bearer in any case', async () => {
    const answered = await ask(path, { authorization: `bEARER  ${tollgate.rootKey}`, body: wrong });
    expect(answered).toMatchObject(outOf('invalid_input'));
  });

  test.each([
    ['of this workspace', () => createRootKeyString(tollgate.workspaceId).key],
    ['of no workspace', () => createRootKeyString('ws_1111111111111111').key],
    ['of another form', () => 'secret'],
    ['that is an end user’s key', async () => (await tollgate.createKey()).key],
    ['that is a key with the prefix root', () => createKeyString({ prefix: 'root', byteLength: 16 }).key],
  ])('401 for an unknown root key %s, after the body was validated', async (_what, rootKey) => {
    const authorization = `Bearer ${await rootKey()}`;
    const body = input(await makeThings(tollgate));
    expect(await ask(path, { authorization, body })).toMatchObject(outOf('unauthorized'));
    expect(await ask(path, { authorization, body: wrong })).toMatchObject(outOf('invalid_input'));
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
  ])('415 for the content type %j, before the body is read', async (contentType) => {
    expect(await ask(path, { contentType, body: 'too_large' })).toMatchObject(outOf('unsupported_media_type'));
  });

  test.each(['application/json; charset=utf-8', 'application/json;charset=UTF-8', 'Application/JSON'])(
    'the content type %j is accepted',
    async (contentType) => {
      expect(await ask(path, { contentType, body: wrong })).toMatchObject(outOf('invalid_input'));
    },
  );

  test('413 for a body over the limit', async () => {
    const authorization = `Bearer ${createRootKeyString(tollgate.workspaceId).key}`;
    expect(await ask(path, { authorization, body: 'too_large' })).toMatchObject(outOf('body_too_large'));
  });

  test.each([
    ['no body', bytes('')],
    ['a body that is cut off', bytes('{"a":')],
    ['a body that is not JSON', bytes('{a:1}')],
    ['two values', bytes('{}{}')],
    ['two byte order marks', bytes('\ufeff\ufeff{}')],
    ['bytes that are not UTF-8', Buffer.from([...bytes('{"a":"'), 0xff, ...bytes('"}')])],
    ['an overlong encoding', Buffer.from([...bytes('{"a":"'), 0xc0, 0xaf, ...bytes('"}')])],
    ['an encoded surrogate', Buffer.from([...bytes('{"a":"'), 0xed, 0xa0, 0x80, ...bytes('"}')])],
    ['a high surrogate alone in a value', bytes('{"a":"\\ud800"}')],
    ['a low surrogate alone in a value', bytes('{"a":{"b":["\\uDFFF"]}}')],
    ['a high surrogate alone in a name', bytes('{"\\ud83d":1}')],
    ['null', bytes('null')],
    ['a string', bytes('"{}"')],
    ['a number', bytes('1')],
  ])('400 for %s', async (_what, body) => {
    const { status, code, error } = await ask(path, { body });
    expect({ status, code }).toEqual(outOf('invalid_input'));
    expect(error.errors).toEqual([expect.objectContaining({ location: 'body' })]);
  });

  test('400 for a query string', async () => {
    const body = input(await makeThings(tollgate));
    const refused = await ask(path, { hasQuery: true, body });
    expect(refused).toMatchObject({ ...outOf('invalid_input'), error: { errors: [] } });
  });

  test('400 names twenty fields at most', async () => {
    const fields = Object.fromEntries(Array.from({ length: 25 }, (_, index) => [`nonsense${index}`, 1]));
    const { error } = await ask(path, { body: fields });
    expect(error.errors).toHaveLength(20);
    expect(new Set(error.errors.map(({ location }) => location)).size).toBe(20);
  });

  test.each([
    ['', 'application/json'],
    ['application/problem+json', 'application/problem+json'],
    ['application/json, Application/Problem+JSON;q=0.9', 'application/problem+json'],
  ])('an error has the media type of Accept: %j', async (accept, contentType) => {
    expect(await ask(path, { accept, body: wrong })).toMatchObject({ status: 400, contentType });
  });

  test('403 for a root key that was disabled, after the body was validated', async () => {
    const { rootKeyId, key } = (await call('rootKeys.createRootKey', { permissions: ['*'] })).data;
    const asked = { authorization: `Bearer ${key}`, body: input(await makeThings(tollgate)) };
    await call('rootKeys.updateRootKey', { rootKeyId, enabled: false });
    expect(await ask(path, asked)).toMatchObject(outOf('root_key_disabled'));
    expect(await ask(path, { ...asked, body: wrong })).toMatchObject(outOf('invalid_input'));
  });

  test('403 for a root key that expires in this millisecond', async () => {
    const key = await createRootKey(['*'], tollgate.workspaceId, tollgate.clock.now);
    const asked = { authorization: `Bearer ${key}`, body: input(await makeThings(tollgate)) };
    expect(await ask(path, asked)).toMatchObject(outOf('root_key_expired'));
  });
});

describe.each(paths)('$path', ({ path, operation }) => {
  const { names, required, nullable, at, wrap, wrong } = fieldsOf(operation);
  const { input, elsewhere } = exampleOf(operation.name);

  test('400 for a list in place of an object, or an object in place of a list', async () => {
    const { status, code, error } = await ask(path, { body: wrong });
    expect({ status, code }).toEqual(outOf('invalid_input'));
    expect(error.errors[0]).toMatchObject({ location: 'body' });
  });

  test('400 for an unknown field, by name', async () => {
    const body = input(refusedThings);
    const known = Array.isArray(body) ? (body[0] as object) : body;
    const { status, code, error } = await ask(path, { body: wrap({ ...known, nonsense: 1 }) });
    expect({ status, code }).toEqual(outOf('invalid_input'));
    expect(error.errors).toEqual([expect.objectContaining({ location: `${at}.nonsense` })]);
    expect(error.detail).toContain(`${at}.nonsense`);
  });

  testIf(names.length > 0)('400 for fields of the wrong type names every field', async () => {
    const { status, error } = await ask(path, { body: wrap(Object.fromEntries(names.map((name) => [name, [[]]]))) });
    expect(status).toBe(400);
    const failed = new Set(error.errors.map(({ location }) => location.slice(at.length + 1).replace(/[[.].*/, '')));
    expect([...failed].sort()).toEqual([...names].sort());
    for (const { message } of error.errors) expect(message).not.toBe('');
  });

  testIf(names.includes('cursor'))('400 for a malformed cursor, before the root key is looked up', async () => {
    const authorization = `Bearer ${createRootKeyString(tollgate.workspaceId).key}`;
    const body = { ...input(refusedThings), cursor: 'nonsense' };
    const { status, code, error } = await ask(path, { authorization, body });
    expect({ status, code }).toEqual(outOf('invalid_input'));
    expect(error.errors).toEqual([expect.objectContaining({ location: 'body.cursor' })]);
  });

  testIf(required.length > 0)('400 for a required field that is missing or null', async () => {
    for (const name of required) {
      const body = input(refusedThings);
      const fields = (Array.isArray(body) ? body[0] : body) as Record<string, unknown>;
      const { [name]: _left, ...without } = fields;
      for (const [wrongFields, message] of [
        [without, 'is required'],
        ...(nullable.includes(name) ? [] : [[{ ...fields, [name]: null }, expect.stringMatching(/^must be/)]]),
      ]) {
        const { error, status } = await ask(path, { body: wrap(wrongFields as object) });
        expect(status).toBe(400);
        expect(error.errors).toEqual([expect.objectContaining({ location: `${at}.${name}`, message })]);
      }
    }
  });

  test('200 has the envelope and the data of the schema', async () => {
    // In a workspace of its own, whose lists have one page.
    const workspace = await createWorkspace();
    const answered = await ask(path, {
      authorization: `Bearer ${workspace.rootKey}`,
      body: input(await makeThings(workspace)),
      accept: 'application/problem+json',
    });

    if (operation.kind === 'manages' && operation.streams) {
      expect(answered).toMatchObject({ status: 200, contentType: 'text/event-stream', text: '' });
      return;
    }
    expect(answered, answered.text).toMatchObject({ status: 200, contentType: 'application/json' });
    const { meta, data, pagination } = answered.json;
    expect(meta).toEqual({ requestId: 'req_asked' });
    const { list, wrapItems } = operation.kind === 'manages' ? operation : {};
    expect(Object.keys(answered.json)).toEqual(list ? ['meta', 'data', 'pagination'] : ['meta', 'data']);
    if (list) expect(pagination).toMatchObject({ hasMore: false });
    if (list) expect(pagination).not.toHaveProperty('cursor');
    const hasNulls = ['rootKeys.listKeys', 'workspace.getLimits'].includes(operation.name);
    if (!hasNulls) expect(nullsIn(data)).toEqual([]);
    const wrapped = wrapItems !== undefined && path === `/v2/${operation.name}`;
    expect(failuresOf(operation.output, wrapped ? (data as Record<string, unknown>)[wrapItems] : data)).toEqual([]);
  });

  test('an error has the envelope, and the media type that the operation declares', async () => {
    const answered = await ask(path, { body: wrong });
    const contentType = operation.problems ? 'application/problem+json' : 'application/json';
    expect(answered).toMatchObject({ status: 400, contentType });
    const error = {
      title: expect.stringMatching(/./),
      detail: expect.stringMatching(/./),
      status: 400,
      type: '/errors/invalid_input',
      errors: expect.any(Array),
    };
    expect(answered.json).toEqual({ ...(operation.problems && error), meta: { requestId: 'req_asked' }, error });
  });

  // permissionTable.test.ts asks for each grant, by the name of the operation.
  testIf(path === `/v2/${operation.alias}`)('403 on the alias, too', async () => {
    const authorization = `Bearer ${await createRootKey(['audit.*.read_audit'])}`;
    const refused = await ask(path, { authorization, body: input(refusedThings) });
    expect(refused).toMatchObject(outOf('insufficient_permissions'));
  });

  // That nothing of it is changed is in test/faults/rootKeys.test.ts.
  testIf(elsewhere !== null)('a record of another workspace looks absent', async () => {
    expect(await ask(path, { body: input(theirThings) })).toMatchObject(outOf(elsewhere!));
  });

  const keptOnDeletion = elsewhere !== null && /^(api|key|identity)_/.test(elsewhere) && !path.includes('.restore');
  testIf(keptOnDeletion)('a deleted record looks absent', async () => {
    const { deletedApiId, deletedIdentityId, deletedKeyId, deletedKey } = refusedThings;
    const ids = { apiId: deletedApiId, identityId: deletedIdentityId, keyId: deletedKeyId, heldKeyId: deletedKeyId };
    const body = input({ ...refusedThings, ...ids, key: deletedKey });
    expect(await ask(path, { body })).toMatchObject(outOf(elsewhere!));
  });
});

/** The paths of nulls in a response, which must omit absent members. */
function nullsIn(value: unknown, at = ''): string[] {
  if (value === null) return [at];
  if (typeof value !== 'object') return [];
  return Object.entries(value as object).flatMap(([name, member]) => nullsIn(member, `${at}.${name}`));
}

/** The differences of a response from its schema. Unknown members are a failure too. */
function failuresOf(output: TSchema, data: unknown): string[] {
  const check = new Ajv({ strict: false, allErrors: true }).compile(closed(output));
  check(data);
  return (check.errors ?? []).map(({ instancePath, message, params }) =>
    `${instancePath} ${message} ${JSON.stringify(params)}`.trim(),
  );
}

describe('aliases', () => {
  const aliased = (operations as readonly AnyOperation[]).filter(({ alias }) => alias);

  test.each(aliased.map((operation) => ({ operation, name: operation.name })))(
    'responds like $name',
    async ({ operation }) => {
      const answers = [];
      for (const name of [operation.name, operation.alias]) {
        const body = exampleOf(operation.name).input(await makeThings(tollgate));
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

describe('pages that need no root key', () => {
  const asAnybody = { method: 'GET', authorization: '', contentType: '', body: Buffer.alloc(0) };

  test('the liveness page', async () => {
    const answered = await ask('/v2/liveness', asAnybody);
    expect(answered).toMatchObject({ status: 200, contentType: 'application/json' });
    expect(answered.json).toEqual({ meta: { requestId: 'req_asked' }, data: { message: expect.any(String) } });
  });

  test.each(errorCatalogue)('the type of the error $code is the path of a page about it', async ({ code, status }) => {
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
  '//',
  '/v2',
  '/v2/',
  '/v2/apis.nothing',
  '/v2/apis.createApi/',
  '/v2/APIS.createApi',
  '/v2/constructor',
  '/v1/apis.createApi',
  '/errors/nothing',
  '/errors/__proto__',
])('404 for the path %s, with or without a root key', async (path) => {
  expect(await ask(path, { authorization: '' })).toMatchObject(outOf('route_not_found'));
  expect(await ask(path, { method: 'GET' })).toMatchObject(outOf('route_not_found'));
});
