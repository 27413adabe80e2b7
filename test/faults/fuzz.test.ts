// Random requests made from the schemas of all operations (valid, nearly valid, garbage), sent to the built server: no
// 5xx, every response in the envelope and as its schema states, no record that the contract forbids, and no growth of
// memory. A few thousand requests in `npm test`, 200 000 in `npm run test:faults`.
//
// Each lane is a workspace with a connection of its own. Its requests are sent one after the other, so that a seed
// repeats them: SEED=<n> npx vitest run <this file>. A failure prints the request, in a short run shrunk to the
// smallest that fails.

import { Agent, request as httpRequest } from 'node:http';
import { Ajv, type ValidateFunction } from 'ajv';
import fc from 'fast-check';
import type { TSchema } from 'typebox';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import { createRootKeyString, digestOf } from '../../src/domain/keyString.ts';
import { recordKinds } from '../../src/domain/records.ts';
import { errorCatalogue } from '../../src/errors.ts';
import type { AnyOperation } from '../../src/operation.ts';
import { operations as registry } from '../../src/operations/index.ts';
import { RoleName, Slug } from '../../src/operations/schemas.ts';
import { cliActor } from '../../src/records/rootKeys.ts';
import { connect } from '../../src/redis/connection.ts';
import { embeddedUrlIfRunning } from '../../src/redis/embedded.ts';
import { openStore } from '../../src/store.ts';
import { arbitraryOf, bodiesFor, type Generated, type Hints } from '../support/arbitrary.ts';
import { closed } from '../support/closed.ts';
import { testSettings } from '../support/harness.ts';
import { survey } from '../support/keyspace.ts';
import { longValues, withLongValue } from '../support/longBodies.ts';
import { type Alone, build, endAll, startAlone } from '../support/processes.ts';
import { seed } from '../support/random.ts';
import { isLong, thorough } from '../support/testIf.ts';
import { report } from './report.ts';

/** Without streams, whose responses have no end. */
const operations: readonly AnyOperation[] = registry.filter((each) => !('streams' in each && each.streams));
/** By name and by alias. */
const operationAt = new Map(
  operations.flatMap((operation) =>
    [operation.name, operation.alias ?? []].flat().map((name) => [name, operation] as const),
  ),
);
const heapMegabytes = 128;
const requestsMin = isLong ? 200_000 : thorough(6_000, 2_000);
const lanesCount = 8;
const { bodyBytesMax } = loadConfig({});

let server: Alone;
beforeAll(async () => {
  build();
  // A long timeout: a busy machine is no failure.
  // A small heap that V8 must collect: with a larger one, memory is what V8 has not collected yet.
  const heap: Record<string, string> = isLong ? { NODE_OPTIONS: `--max-old-space-size=${heapMegabytes}` } : {};
  server = await startAlone({ LOG_LEVEL: 'error', REDIS_TIMEOUT_MS: '20000', ...heap });
});
afterAll(endAll);

// Values that a lane's workspace contains. Requests name them as `<<kind number>>`, which is replaced when they are
// sent.

type IdKind = 'apiId' | 'keyId' | 'rootKeyId' | 'roleId';
/** The members of requests and responses that are ids of records. */
const idKinds = recordKinds.map(([kind]) => `${kind === 'root_key' ? 'rootKey' : kind}Id` as IdKind);
const otherKinds = ['deletedKeyId', 'key', 'rootKey', 'externalId', 'identity', 'slug', 'permission'] as const;
const moreKinds = [
  'deletedApiId',
  'deletedIdentityId',
  'holdId',
  'identityId',
  'role',
  'roleName',
  'namespace',
  'identifier',
  'cursor',
  'hash',
  'tag',
] as const;
type Kind = IdKind | (typeof otherKinds)[number] | (typeof moreKinds)[number];

const knownMax = 12;

interface Lane {
  workspaceId: string;
  rootKey: string;
  agent: Agent;
  known: Record<Kind, string[]>;
  learned: number;
}

const named = (kind: Kind) => fc.nat(knownMax - 1).map((index) => `<<${kind} ${index}>>`);
const mostly = (arbitrary: fc.Arbitrary<unknown>) => (own: fc.Arbitrary<unknown>) =>
  fc.oneof({ weight: 9, arbitrary }, { weight: 1, arbitrary: own });
const sometimes =
  (...values: unknown[]) =>
  (own: fc.Arbitrary<unknown>) =>
    fc.oneof({ weight: 1, arbitrary: fc.constantFrom(...values) }, { weight: 1, arbitrary: own });
const keeper = 'keeper';
const fewOf = (kind: Kind) => mostly(fc.array(named(kind), { minLength: 1, maxLength: 4, size: 'max' }));

const hints: Hints = {
  ...Object.fromEntries(
    idKinds.flatMap((kind) => [kind, kind.slice(0, -2)].map((name) => [name, mostly(named(kind))])),
  ),
  // One, because two names may be of one key, and ids differ.
  keyIds: mostly(fc.tuple(named('keyId'))),
  key: mostly(named('key')),
  externalId: mostly(named('externalId')),
  identity: mostly(named('identity')),
  permission: mostly(named('permission')),
  slug: sometimes('documents.read', 'documents.*', 'a:b-c'),
  permissions: fewOf('slug'),
  role: mostly(named('role')),
  // A role that no request deletes, because one unknown role refuses the whole call.
  roles: (own) => fc.oneof(fc.constant([keeper]), fewOf('roleName')(own)),
  // Few values, so that overrides match the checks.
  namespace: (own) => fc.oneof({ weight: 6, arbitrary: fc.constant('emails') }, named('namespace'), own),
  identifier: (own) =>
    fc.oneof({ weight: 6, arbitrary: fc.constantFrom('user_1', 'user_*') }, named('identifier'), own),
  // Most are cursors of another list.
  cursor: (own) => fc.oneof({ weight: 4, arbitrary: fc.constant(undefined) }, named('cursor'), own),
  decrypt: sometimes(undefined, false),
  tag: mostly(named('tag')),
  tags: sometimes(['path=/a'], ['a', 'b', 'a']),
  name: sometimes('requests', 'tokens'),
  // A limit has a duration or a period.
  duration: (own) =>
    fc.oneof({ weight: 12, arbitrary: fc.constantFrom(1000, 1500, 60_000) }, { weight: 1, arbitrary: own }),
  // Not together with `ratelimits`.
  ratelimit: (own) => fc.oneof({ weight: 2, arbitrary: fc.constant(undefined) }, own),
  period: (own) => fc.oneof({ weight: 12, arbitrary: fc.constant(undefined) }, own),
  anchor: (own) => fc.oneof({ weight: 20, arbitrary: fc.constant(undefined) }, own),
  refillDay: (own) => fc.oneof({ weight: 5, arbitrary: fc.constant(undefined) }, own),
  until: (own) =>
    fc.oneof({ weight: 8, arbitrary: fc.constantFrom(undefined, Date.now() + 300_000, Date.now() + 5000) }, own),
  // A new key that has expired is refused.
  expires: (own) => fc.oneof({ weight: 6, arbitrary: fc.constantFrom(undefined, Date.now() + 300_000) }, own),
  // Else what is deleted cannot be restored.
  permanent: sometimes(undefined, false),
  recoverable: sometimes(undefined, false),
  query: (own) => fc.option(own, { freq: 1, nil: undefined }) as fc.Arbitrary<unknown>,
  start: sometimes(1_700_000_000_000),
  allowedIps: sometimes(undefined, ['10.0.0.0/8', '2001:db8::/32']),
  ip: sometimes(undefined, '10.1.2.3', '2001:db8::1'),
  holdId: mostly(named('holdId')),
  hold: sometimes({ ttl: 60_000 }, { ttl: 3_600_000, onExpiry: 'charge' }),
  hash: () =>
    fc.oneof(
      { weight: 1, arbitrary: named('hash') },
      {
        weight: 9,
        arbitrary: fc
          .uint8Array({ minLength: 32, maxLength: 32 })
          .map((bytes) => Buffer.from(bytes).toString('base64')),
      },
    ),
};

const grants = fc.array(
  fc.constantFrom(
    '*',
    'api.*.read_api',
    'apis.*.verify_key',
    'rbac.*.create_role',
    'ratelimit.*.limit',
    'audit.*.read_audit',
  ),
  { minLength: 1, maxLength: 3, size: 'max' },
);
const queries = fc.constantFrom(
  'documents.read',
  'a AND (b OR documents.*)',
  '((',
  'a AND',
  'AND',
  'x'.repeat(900),
  '*',
);

/** Members that exclude each other: each is missing in most requests. */
const atMostOneOf = (...names: string[]): Hints =>
  Object.fromEntries(
    names.map((name) => [
      name,
      (own) => fc.oneof({ weight: 6, arbitrary: fc.constant(undefined) }, (hints[name] ?? ((same) => same))(own)),
    ]),
  );

/** Hints of operations in which a member has another meaning than elsewhere. */
const hintsOf = ({ name }: AnyOperation): Hints => {
  if (name === 'keys.verifyKey' || name === 'keys.explainKey') return { ...hints, permissions: mostly(queries) };
  if (name === 'keys.listKeys') return { ...hints, start: (own) => own };
  if (name === 'ratelimits.setOverride')
    return { ...hints, until: (own) => fc.oneof({ weight: 6, arbitrary: fc.constant(Date.now() + 300_000) }, own) };
  if (name === 'ratelimits.listTemporary') return { ...hints, ...atMostOneOf('kinds', 'apiId', 'namespace') };
  if (name === 'analytics.getTop') return { ...hints, ...atMostOneOf('apiId', 'namespace', 'externalId', 'tag') };
  if (name === 'keys.restoreKey') return { ...hints, keyId: mostly(named('deletedKeyId')) };
  if (name === 'apis.restoreApi') return { ...hints, apiId: mostly(named('deletedApiId')) };
  if (name === 'identities.deleteIdentity') return { ...hints, identity: mostly(named('identityId')) };
  if (name === 'identities.restoreIdentity') return { ...hints, identityId: mostly(named('deletedIdentityId')) };
  if (name.startsWith('rootKeys.')) return { ...hints, permissions: mostly(grants), keyId: mostly(named('rootKeyId')) };
  return hints;
};

/** Members of requests and responses whose values later requests use, by name. */
const kindsOf: Record<string, readonly Kind[]> = {
  ...Object.fromEntries(idKinds.map((kind) => [kind, [kind]])),
  // Only those that the lane creates: it must not delete its own.
  rootKeyId: [],
  key: ['key'],
  identityId: ['identity', 'identityId'],
  externalId: ['externalId', 'identity'],
  permissionId: ['permission'],
  slug: ['slug', 'permission'],
  roleId: ['roleId', 'role'],
  namespace: ['namespace'],
  namespaceId: ['namespace'],
  identifier: ['identifier'],
  cursor: ['cursor'],
  hash: ['hash'],
  tag: ['tag'],
};

function learn(lane: Lane, operation: AnyOperation, value: unknown) {
  if (Array.isArray(value)) for (const item of value.slice(0, 5)) learn(lane, operation, item);
  if (typeof value !== 'object' || value === null) return;
  for (const [name, member] of Object.entries(value)) {
    // keys.explainKey: parts of a query, such as `*`, which need not be permissions.
    if (name === 'meta' || name === 'slugs') continue;
    if (typeof member !== 'string') learn(lane, operation, member);
    else for (const kind of kindsOf[name] ?? []) keep(lane, kind, member);
  }
}

function keep(lane: Lane, kind: Kind, text: string) {
  const known = lane.known[kind];
  // A request may have sent any text as the id of a key.
  if (known.includes(text) || (kind === 'keyId' && !/^key_[a-zA-Z0-9]{1,24}$/.test(text))) return;
  if (known.length < knownMax) known.push(text);
  else known[lane.learned++ % knownMax] = text;
}

function remember(lane: Lane, operation: AnyOperation, sent: unknown, answered: Record<string, unknown>) {
  const { data, pagination } = answered as { data: Record<string, string>; pagination: unknown };
  learn(lane, operation, pagination);
  if (operation.name.startsWith('rootKeys.')) {
    // Only those that the lane creates.
    if (data.key) keep(lane, 'rootKeyId', (data.rootKeyId ?? data.keyId)!);
    if (data.key) keep(lane, 'rootKey', data.key);
    return;
  }
  const { hold } = data as unknown as { hold?: { id: string } };
  if (hold) keep(lane, 'holdId', hold.id);
  const { permanent, ...deleted } = sent as { permanent?: boolean; keyId: string; apiId: string; identity: string };
  if (permanent !== true) {
    if (operation.name === 'keys.deleteKey') keep(lane, 'deletedKeyId', deleted.keyId);
    if (operation.name === 'apis.deleteApi') keep(lane, 'deletedApiId', deleted.apiId);
    // It may be an external id, which may be shorter than any id.
    const isById = operation.name === 'identities.deleteIdentity' && deleted.identity.startsWith('id_');
    if (isById) keep(lane, 'deletedIdentityId', deleted.identity);
  }
  if (operation.name === 'permissions.createRole') {
    keep(lane, 'roleName', (sent as { name: string }).name);
    keep(lane, 'role', (sent as { name: string }).name);
  }
  learn(lane, operation, data);
  learn(lane, operation, sent);
}

/** Replaces `<<kind number>>` in a text. */
const lookUp = (lane: Lane, text: string): string =>
  text.replace(/<<(\w+) (\d+)>>/g, (_whole, kind: Kind, index: string) => {
    const known = lane.known[kind] ?? [];
    const value = known[Number(index) % known.length] ?? `${kind === 'keyId' ? 'key_none' : 'none_'}${index}`;
    return JSON.stringify(value).slice(1, -1);
  });

// Requests.

interface Fuzzed {
  /** The operation's name or its alias. */
  path: string;
  body: Generated;
  as: 'root key' | 'another root key' | 'a key' | 'nobody' | 'nonsense';
  contentType: string;
  method: string;
}

const rarely = <T>(usual: T, ...unusual: T[]) =>
  fc.oneof({ weight: 40, arbitrary: fc.constant(usual) }, { weight: 1, arbitrary: fc.constantFrom(...unusual) });

/**
 * Creating is more frequent than deleting. The operations with the largest inputs, on keys, are the most frequent, and
 * those that accept the smallest part of what is made up.
 */
function weightOf({ name }: AnyOperation): number {
  if (name.startsWith('rootKeys.')) return 4;
  if (/createKey|updateKey|updateIdentity|explainKey|\.restore/.test(name)) return 14;
  if (/getTop|migrateKeys/.test(name)) return 28;
  if (/deleteKey|deleteIdentity|getVerifications|Override$/.test(name)) return 8;
  if (/create|verify|imit$/.test(name)) return 6;
  return /delete/.test(name) && !['apis.deleteApi', 'plans.deletePlan'].includes(name) ? 2 : 4;
}

/** Bodies from 5 KB to nearly the maximum, made of values that are expensive to parse. */
const longBodies = ({ input }: AnyOperation): fc.Arbitrary<Generated> => {
  const members = Object.keys((input as unknown as { properties?: object }).properties ?? {});
  return fc
    .record({
      value: fc.constantFrom(...Object.values(longValues)),
      member: fc.constantFrom('', ...members),
      bytes: fc.integer({ min: 5_000, max: bodyBytesMax - 10_000 }),
      rest: arbitraryOf(input, {}),
    })
    .map(({ value, member, bytes, rest }) => {
      const isWhole = member === '' || JSON.stringify(rest).length > 9_000;
      return {
        kind: 'garbage',
        text: isWhole ? value(bytes) : withLongValue(rest as object, member, value(bytes)),
      };
    });
};

const requestOf = (operation: AnyOperation): fc.Arbitrary<Fuzzed> =>
  fc.record({
    path: fc.constantFrom(...[operation.name, operation.alias ?? []].flat()),
    body: fc.oneof(
      { weight: 400, arbitrary: bodiesFor(operation.input, hintsOf(operation)) },
      { weight: 1, arbitrary: longBodies(operation) },
    ),
    as: rarely<Fuzzed['as']>('root key', 'another root key', 'another root key', 'a key', 'nobody', 'nonsense'),
    contentType: rarely('application/json', 'application/json; charset=utf-8', 'text/plain', ''),
    method: rarely('POST', 'POST', 'GET', 'PUT'),
  });
const requestsBy = (weight: (operation: AnyOperation) => number) =>
  fc.oneof(...operations.map((operation) => ({ weight: weight(operation), arbitrary: requestOf(operation) })));

const whoOf = (lane: Lane, as: Fuzzed['as']) =>
  ({
    'root key': lane.rootKey,
    'another root key': lookUp(lane, '<<rootKey 0>>'),
    'a key': lookUp(lane, '<<key 0>>'),
    nobody: '',
    nonsense: `root_${'1'.repeat(16)}_~`,
  })[as];

interface Answered {
  status: number;
  contentType: string;
  requestId: string;
  text: string;
}

function post(
  lane: Lane,
  path: string,
  rootKey: string,
  body: string,
  method = 'POST',
  contentType = 'application/json',
) {
  return new Promise<Answered>((resolve, reject) => {
    const headers = {
      ...(rootKey && { authorization: `Bearer ${rootKey.replace(/[^!-~]/g, '~').slice(0, 600)}` }),
      ...(contentType && { 'content-type': contentType }),
      'content-length': Buffer.byteLength(body),
    };
    const options = { host: '127.0.0.1', port: server.port, path: `/v2/${path}`, method, headers, agent: lane.agent };
    const asked = httpRequest(options, (response) => {
      const parts: Buffer[] = [];
      response.on('data', (part) => parts.push(part));
      response.on('error', reject);
      response.on('end', () =>
        resolve({
          status: response.statusCode!,
          contentType: response.headers['content-type'] ?? '',
          requestId: String(response.headers['x-request-id']),
          text: Buffer.concat(parts).toString(),
        }),
      );
    });
    asked.on('error', reject);
    asked.end(body);
  });
}

// Checks of responses.

const ajv = new Ajv({ strict: false });
const inputs = new Map(operations.map(({ name, input }) => [name, ajv.compile(input)]));
const outputs = new Map(operations.map(({ name, output }) => [name, ajv.compile(closed(output))]));
const statusOf = new Map(errorCatalogue.map(({ code, status }) => [`/errors/${code}`, status]));
const errorShape = ajv.compile({
  type: 'object',
  properties: {
    meta: { type: 'object', properties: { requestId: { type: 'string' } }, additionalProperties: false },
    error: {
      type: 'object',
      properties: {
        title: { type: 'string', minLength: 1 },
        detail: { type: 'string', minLength: 1 },
        status: { type: 'integer' },
        type: { type: 'string' },
        errors: {
          type: 'array',
          maxItems: 20,
          items: {
            type: 'object',
            properties: { location: { type: 'string' }, message: { type: 'string' }, fix: { type: 'string' } },
            required: ['location', 'message'],
            additionalProperties: false,
          },
        },
      },
      required: ['title', 'detail', 'status', 'type', 'errors'],
      additionalProperties: false,
    },
  },
  required: ['meta', 'error'],
  additionalProperties: false,
});

const must = (holds: unknown, what: () => string) => {
  if (!holds) throw new Error(what());
};
const failuresOf = (check: ValidateFunction) =>
  (check.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`).join('; ');

/** Throws if a response breaks the contract; returns its body. */
function examine(path: string, { status, contentType, requestId, text }: Answered) {
  const operation = operationAt.get(path)!;
  const shown = () => `${status} ${text.slice(0, 600)}`;
  must(/^application\/(problem\+)?json$/.test(contentType), () => `no JSON: ${contentType} ${shown()}`);
  const answered = JSON.parse(text);
  must(answered.meta?.requestId === requestId && requestId.startsWith('req_'), () => `no request id: ${shown()}`);
  if (status === 200) {
    const { list, wrapItems } = operation.kind === 'manages' ? operation : {};
    const members = list ? 'meta,data,pagination' : 'meta,data';
    must(Object.keys(answered).join() === members, () => `members other than ${members}: ${shown()}`);
    const isWrapped = wrapItems !== undefined && path === operation.name;
    const check = outputs.get(operation.name)!;
    must(check(isWrapped ? answered.data[wrapItems] : answered.data), () => `${failuresOf(check)}: ${shown()}`);
  } else {
    must(status < 500, () => `a fault: ${shown()} ${server.err.slice(-2000)}`);
    // application/problem+json also has the members of `error` at its top level.
    const { meta, error, ...members } = answered;
    must(errorShape({ meta, error }), () => `${failuresOf(errorShape)}: ${shown()}`);
    const expected = contentType === 'application/json' ? {} : error;
    must(JSON.stringify(members) === JSON.stringify(expected), () => `other members: ${shown()}`);
    must(answered.error.status === status, () => `two statuses: ${shown()}`);
    must(statusOf.get(answered.error.type) === status, () => `not an error of ours: ${shown()}`);
  }
  return answered;
}

/** docs/contract.md §2: a caller that is still sending beyond the limit may be disconnected before it gets the 413. */
const mayBeCutOff = (body: string, error: NodeJS.ErrnoException) =>
  Buffer.byteLength(body) > bodyBytesMax && (error.code === 'EPIPE' || error.code === 'ECONNRESET');

const passed = new Map<string, number>();
const seen = { answers: 0, cutOff: 0, valid: 0, ok: 0, memory: [] as number[] };

async function send(lane: Lane, fuzzed: Fuzzed) {
  // As the server reads it: UTF-8 has no half of a surrogate pair.
  const text = Buffer.from(lookUp(lane, fuzzed.body.text)).toString();
  const { path, method, contentType } = fuzzed;
  const operation = operationAt.get(path)!;
  const answer = await post(lane, path, whoOf(lane, fuzzed.as), text, method, contentType).catch((error) => {
    if (mayBeCutOff(text, error)) return undefined;
    throw error;
  });
  if (!answer) {
    seen.cutOff++;
    return;
  }
  const say = (error: Error) => new Error(`${error.message}\n${method} ${path} ${text.slice(0, 2000)}`);
  try {
    const answered = examine(path, answer);
    if (fuzzed.body.kind === 'valid') {
      // Others are refused by their method, type or root key, whatever their body.
      if (![401, 405, 415].includes(answer.status)) seen.valid++;
      const accepts = inputs.get(operation.name)!;
      must(accepts(JSON.parse(text)), () => `the arbitrary made what the schema refuses: ${failuresOf(accepts)}`);
    }
    if (answer.status === 200) {
      seen.ok++;
      passed.set(operation.name, (passed.get(operation.name) ?? 0) + 1);
      // An operation that may lack a body takes none for `{}`.
      remember(lane, operation, JSON.parse(text.replace(/^\ufeff/, '') || '{}'), answered);
    }
  } catch (error) {
    throw say(error as Error);
  }
  seen.answers++;
  if (seen.answers % (requestsMin / 100) === 0) seen.memory.push(server.memory());
}

/** Few requests at random make a hold. */
async function makeHolds(lane: Lane) {
  const ask = async (name: string, input: object) => {
    const { text } = await post(lane, name, lane.rootKey, JSON.stringify(input));
    return (JSON.parse(text) as { data: Record<string, string> & { hold?: { id: string } } }).data;
  };
  const { apiId } = await ask('apis.createApi', { name: 'holds' });
  const { key } = await ask('keys.createKey', { apiId });
  for (let count = 0; count < 6; count++) {
    const { hold } = await ask('keys.verifyKey', { key, hold: { ttl: 3_600_000 } });
    keep(lane, 'holdId', hold!.id);
  }
}

async function openLanes(): Promise<Lane[]> {
  const url = (await embeddedUrlIfRunning(server.dataDir))!;
  const store = await openStore({ ...testSettings, url });
  const lanes: Lane[] = [];
  for (let index = 0; index < lanesCount; index++) {
    const { workspaceId } = await store.workspaces.create(`lane ${index}`);
    const { key, start } = createRootKeyString(workspaceId);
    await store.rootKeys.create(workspaceId, { digest: digestOf(key), start, permissions: ['*'] }, cliActor);
    const known = Object.fromEntries(
      [...idKinds, ...otherKinds, ...moreKinds].map((kind) => [kind, [] as string[]]),
    ) as Lane['known'];
    for (const kind of ['externalId', 'slug', 'namespace', 'identifier', 'roleName'] as const)
      known[kind].push(`${kind}.a`, `${kind}_b`);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    known.hash.push(digestOf('known').toString('base64'));
    const lane = { workspaceId, rootKey: key, agent, known, learned: 0 };
    for (const name of [keeper, ...known.roleName])
      await post(lane, 'permissions.createRole', key, JSON.stringify({ name }));
    await makeHolds(lane);
    lanes.push(lane);
  }
  await store.close();
  return lanes;
}

// Stored records afterwards: they contain nothing that the operations' schemas forbid.

const inputOf = (name: string) => operationAt.get(name)!.input;

/** The rules for members of a record, from the schema of the operation that creates it. */
function rulesOf(input: TSchema, but: object = {}) {
  const { properties } = input as unknown as { properties: Record<string, object> };
  const text = JSON.stringify({ type: 'object', properties: { ...properties, ...but } });
  // A record's limits have ids as well, which the schema of the request does not allow.
  return ajv.compile(
    JSON.parse(text, (_name, value) =>
      value?.additionalProperties === false ? { ...value, additionalProperties: true } : value,
    ),
  );
}

interface StoredRecord {
  meta?: object;
  permissions?: string[];
  roles?: string[];
  ratelimits?: { id: string; name: string }[];
  credits?: { remaining: number };
}

function examineRecord(rules: ValidateFunction, record: StoredRecord) {
  const failures = rules(record) ? [] : [failuresOf(rules)];
  const twice = (what: string, items: readonly string[] = []) => {
    if (new Set(items).size !== items.length) failures.push(`${what} twice`);
  };
  twice('a permission', record.permissions);
  twice('a role', record.roles);
  twice(
    'a limit',
    record.ratelimits?.map(({ name }) => name),
  );
  twice(
    'a limit’s id',
    record.ratelimits?.map(({ id }) => id),
  );
  if (Buffer.byteLength(JSON.stringify(record.meta ?? {})) > 10_240) failures.push('meta that is too long');
  must(failures.length === 0, () => `${failures.join('; ')}: ${JSON.stringify(record).slice(0, 1000)}`);
}

async function examineStore(lane: Lane): Promise<number> {
  let records = 0;
  const ask = async (name: string, input: object) => {
    const answered = await post(lane, name, lane.rootKey, JSON.stringify(input));
    return { status: answered.status, ...examine(name, answered) };
  };
  async function* list(name: string, input: object = {}, wrapped?: string) {
    for (let cursor: string | undefined; ; ) {
      const page = await ask(name, { ...input, ...(cursor && { cursor }) });
      if (page.status === 404) return;
      must(page.status === 200, () => JSON.stringify(page));
      const items = (wrapped ? page.data[wrapped] : page.data) as (StoredRecord & Record<string, string>)[];
      records += items.length;
      yield* items;
      cursor = page.pagination.cursor;
      if (!cursor) return;
    }
  }

  const apis = new Set<string>();
  const namespaces = new Set<string>();
  for await (const { resource } of list('audit.listEvents') as AsyncIterable<{
    resource: { type: string; id: string };
  }>) {
    if (resource.type === 'api') apis.add(resource.id);
    if (resource.type === 'namespace') namespaces.add(resource.id);
  }
  for (const namespace of lane.known.namespace) namespaces.add(namespace);
  // A record also has the permissions of its roles, whose number has no limit.
  const keyRules = rulesOf(inputOf('keys.createKey'), { permissions: { type: 'array', items: Slug } });
  for (const apiId of apis) {
    for await (const key of list('apis.listKeys', { apiId })) {
      examineRecord(keyRules, key);
      const read = await ask('keys.getKey', { keyId: key.keyId });
      must(
        JSON.stringify(read.data) === JSON.stringify(key),
        () => `read otherwise than listed: ${JSON.stringify([key, read])}`,
      );
    }
  }
  const identityRules = rulesOf(inputOf('identities.createIdentity'));
  for await (const identity of list('identities.listIdentities')) examineRecord(identityRules, identity);
  // Imports have slugs and names of other lengths.
  const permissionRules = rulesOf(inputOf('permissions.createPermission'), { slug: Slug });
  for await (const permission of list('permissions.listPermissions')) examineRecord(permissionRules, permission);
  const roleRules = rulesOf(inputOf('permissions.createRole'), { name: RoleName });
  for await (const role of list('permissions.listRoles')) {
    examineRecord(roleRules, {
      ...role,
      permissions: (role.permissions as unknown as { slug: string }[]).map(({ slug }) => slug),
    });
  }
  const rootKeyRules = rulesOf(inputOf('rootKeys.createRootKey'));
  for await (const rootKey of list('rootKeys.listRootKeys')) examineRecord(rootKeyRules, rootKey);
  const overrideRules = rulesOf(inputOf('ratelimits.setOverride'));
  for (const namespace of namespaces) {
    for await (const override of list('ratelimits.listOverrides', { namespace }, 'overrides'))
      examineRecord(overrideRules, override);
  }
  must((await ask('analytics.getVerifications', {})).status === 200, () => 'analytics');
  must((await ask('analytics.getRatelimits', {})).status === 200, () => 'analytics');
  return records;
}

const megabytes = (bytes: number) => Math.round(bytes / 1e6);

test(`${requestsMin} requests leave nothing broken (seed ${seed})`, async () => {
  const lanes = await openLanes();
  console.log(`fuzz: SEED=${seed}`);
  const startedAt = performance.now();
  const run = (requests: fc.Arbitrary<Fuzzed>, numRuns: number, round = 0) =>
    Promise.all(
      lanes.map((lane, index) =>
        fc.assert(
          fc.asyncProperty(requests, (fuzzed) => send(lane, fuzzed)),
          // A request depends on all earlier ones, so shrinking may take longer than the whole run did.
          { seed: seed + round * lanesCount + index, numRuns, endOnFailure: isLong },
        ),
      ),
    );
  await run(requestsBy(weightOf), requestsMin / lanesCount);
  const tookMs = performance.now() - startedAt;
  // A few operations seldom pass: they get more requests.
  const missing = () => operations.filter(({ name }) => !passed.get(name));
  for (let round = 1; missing().length > 0 && round < 40; round++) {
    const rare = missing();
    const weight = (operation: AnyOperation) => weightOf(operation) * (rare.includes(operation) ? 4 : 1);
    await run(requestsBy(weight), requestsMin / 10 / lanesCount, round);
  }

  expect(server.child.exitCode).toBeNull();
  expect(server.err).toBe('');
  expect(seen.answers + seen.cutOff).toBeGreaterThanOrEqual(requestsMin);
  // The test must not pass because all requests were refused.
  expect(missing().map(({ name }) => name)).toEqual([]);
  expect(seen.ok / seen.valid).toBeGreaterThan(0.3);

  let records = 0;
  for (const lane of lanes) records += await examineStore(lane);
  expect(records).toBeGreaterThan(requestsMin / 50);
  const redis = await connect((await embeddedUrlIfRunning(server.dataDir))!, { commandTimeoutMs: 10_000 });
  const found = await survey(redis).finally(() => redis.quit());
  expect(found.wrong.slice(0, 5)).toEqual([]);

  const after = (share: number) => seen.memory[Math.floor(seen.memory.length * share)]!;
  const [early, late] = [after(0.3), Math.max(...seen.memory.slice(-10))];
  // Besides the heap, memory contains the young generation, code and buffers.
  if (isLong) expect(late).toBeLessThan(2.5e6 * heapMegabytes);
  report({
    order: '11.2',
    fault: 'fuzzing from the operations’ own schemas: right, nearly right, garbage',
    expected: 'no 5xx, every answer as its schema says, no record that the contract forbids, memory flat',
    measured:
      `${seen.answers} requests over ${operations.length} operations in ${Math.round(tookMs / 1000)} s (seed ${seed}), ` +
      `${seen.ok} answered 200; ${records} records read afterwards, all as the contract says; ` +
      `server memory ${megabytes(early)} MB after a third, ${megabytes(late)} MB at most at the end, with a heap of ${heapMegabytes} MB`,
  });
}, 1_800_000);
