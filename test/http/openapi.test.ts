// The OpenAPI document: valid, complete, and equal to what the operations accept and return.

import { readFileSync } from 'node:fs';
import { Validator } from '@seriousme/openapi-schema-validator';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import { beforeAll, describe, expect, test } from 'vitest';
import { actions } from '../../src/domain/grants.ts';
import { outcomes } from '../../src/domain/verification.ts';
import { errorCatalogue } from '../../src/errors.ts';
import { gatewayPath } from '../../src/http/gateway.ts';
import { introspectPath } from '../../src/http/introspect.ts';
import { mePath } from '../../src/http/me.ts';
import type { OpenApiDocument, OperationObject, ResponseObject } from '../../src/http/openapi.ts';
import type { AnyOperation } from '../../src/operation.ts';
import { type OperationName, operations } from '../../src/operations/index.ts';
import { exampleOf, makeThings } from '../support/examples.ts';
import { harness } from '../support/harness.ts';

const h = harness();
const asAnybody = { method: 'GET', authorization: '', contentType: '', body: '' };
const all: readonly AnyOperation[] = operations;

let document: OpenApiDocument & {
  components: { schemas: Record<string, object>; examples: Record<string, { value: unknown }> };
};
beforeAll(async () => {
  const { status, contentType, json } = await h.send('/openapi.json', asAnybody);
  expect({ status, contentType }).toEqual({ status: 200, contentType: 'application/json' });
  document = json;
});

const operationAt = (path: string): OperationObject => document.paths[path]!.post!;
const everyOperation = () => Object.values(document.paths).flatMap((path) => Object.values(path));

/** All values of a member with this name, anywhere in a JSON value. */
function valuesOf(name: string, json: unknown): unknown[] {
  if (typeof json !== 'object' || json === null) return [];
  return Object.entries(json).flatMap(([key, value]) => [...(key === name ? [value] : []), ...valuesOf(name, value)]);
}

interface Schema {
  $ref?: string;
  description?: string;
  properties?: Record<string, Schema>;
  items?: Schema;
  contentSchema?: Schema;
  anyOf?: Schema[];
}

/** The fields in a schema, at any depth, each with its own description or that of the schema it refers to. */
function fieldsOf(schema: Schema, at: string): { name: string; description: string | undefined }[] {
  const own = Object.entries(schema.properties ?? {}).flatMap(([name, field]) => {
    const { description } = field.$ref ? (document.components.schemas[field.$ref.split('/').at(-1)!] as Schema) : field;
    return [
      { name: `${at}: ${name}`, description: field.description ?? description },
      ...fieldsOf(field, `${at}: ${name}`),
    ];
  });
  const { items, contentSchema, anyOf = [] } = schema;
  const inner = [items, contentSchema, ...anyOf].filter((each) => each !== undefined && !each.$ref);
  return [...own, ...inner.flatMap((each) => fieldsOf(each!, `${at}[]`))];
}

/** Of Go, Java, Kotlin, C#, Python, Rust, Swift and TypeScript, and of their standard libraries. */
const reservedNames = new Set(
  `any array boolean byte character class context date default deprecated double enum error exception float function
  future generic import integer interface iterable list long map module number object option optional override package
  promise record request response result runtime set short string system task thread throwable tuple type unit vec
  void`.split(/\s+/),
);

type FreeSchema = Schema & { [keyword: string]: unknown };

/** What a schema has that is legal, and that generators of clients refuse or read wrongly. */
function faultsOf(schema: FreeSchema): string[] {
  const isAmong = (type: string) => [schema.type].flat().includes(type);
  const conditions = ['allOf', 'oneOf', 'not', 'if', 'dependentRequired', 'dependentSchemas'];
  return [
    ...conditions.filter((keyword) => keyword in schema).map((keyword) => `has ${keyword}`),
    ...(schema.anyOf && schema.properties ? ['has a condition next to properties'] : []),
    ...(isAmong('integer') && schema.format !== 'int64' ? ['is an integer without format'] : []),
    ...(Array.isArray(schema.enum) && !schema.type ? ['is an enum without type'] : []),
    ...('const' in schema && !isAmong('string') ? ['is a constant of another type than string'] : []),
    ...(typeof schema.default === 'object' ? ['has a default that is no plain value'] : []),
  ];
}

const ajv = new Ajv2020({ strict: true, strictTypes: false, allErrors: true, formats: { int64: true } });

/** By the text of the schema: most responses are one of a few errors. */
const checks = new Map<string, ValidateFunction>();

/** Whether a value matches a schema of the document. Unknown members are a failure too. */
function checkFor(schema: object): ValidateFunction {
  if (!ajv.getSchema('document')) ajv.addSchema({ $id: 'document', $defs: closed(document.components.schemas) });
  const text = JSON.stringify(schema);
  const check = checks.get(text) ?? ajv.compile(closed(schema));
  checks.set(text, check);
  return check;
}

const closed = (schema: object): object =>
  JSON.parse(JSON.stringify(schema).replaceAll('#/components/schemas/', 'document#/$defs/'), (_name, value) =>
    value?.type === 'object' && value.properties && value.additionalProperties === undefined
      ? { ...value, additionalProperties: false }
      : value,
  );

/** Checks a response against the document's description of its path and status. */
function expectDescribed(path: string, answer: { status: number; contentType: string; json: unknown }) {
  const described = operationAt(path).responses[answer.status]?.content[answer.contentType];
  expect(described, `${path} describes ${answer.status} ${answer.contentType}`).toBeDefined();
  const name = `${path} ${answer.status}`;
  const check = checkFor(described!.schema);
  check(answer.json);
  expect(check.errors ?? [], `${name}: ${JSON.stringify(answer.json)}`).toEqual([]);
}

describe('the document', () => {
  test('refuses what operations check themselves, where JSON Schema can state it', async () => {
    const schemaOf = (name: string) => {
      const { content } = operationAt(`/v2/${name}`).requestBody as { content: Record<string, { schema: object }> };
      return checkFor(content['application/json']!.schema);
    };
    const wrong: [name: string, right: object, wrong: object][] = [
      ['keys.updateCredits', { keyId: 'key_1', operation: 'set', value: null }, { value: undefined }],
      [
        'keys.migrateKeys',
        { migrationId: 'abc', apiId: 'api_1', keys: [{ hash: Buffer.alloc(32, 'x').toString('base64') }] },
        { keys: [{ hash: Buffer.alloc(31, 'x').toString('base64') }] },
      ],
      ['rootKeys.createRootKey', { permissions: ['*', 'api.api_1.read_key'] }, { permissions: ['api.read_key'] }],
    ];
    for (const [name, right, change] of wrong) {
      const check = schemaOf(name);
      expect(check(right), `${name} ${JSON.stringify(right)}: ${JSON.stringify(check.errors)}`).toBe(true);
      const input = JSON.parse(JSON.stringify({ ...right, ...change }));
      expect(check(input), `${name} ${JSON.stringify(input)}`).toBe(false);
      expect((await h.call(name as OperationName, input)).status, `${name} ${JSON.stringify(input)}`).toBe(400);
    }
    expect(JSON.stringify(document)).not.toContain('"documented"');
  });

  test('has only what generators of clients read', () => {
    const wrong: string[] = [];
    const visit = (node: unknown, at: string, isSchemas = false) => {
      if (typeof node !== 'object' || node === null) {
        if (isSchemas) wrong.push(`${at}: a boolean is no schema to them`);
        return;
      }
      if (!isSchemas && !Array.isArray(node))
        wrong.push(...faultsOf(node as FreeSchema).map((fault) => `${at}: ${fault}`));
      for (const [name, member] of Object.entries(node)) {
        const isExample = ['example', 'examples', 'value', 'x-required-permissions'].includes(name) && !isSchemas;
        if (!isExample) visit(member, `${at}/${name}`, name === 'properties' && !isSchemas);
      }
    };
    visit(document, '');
    const reserved = Object.keys(document.components.schemas).filter((name) => reservedNames.has(name.toLowerCase()));
    expect([...wrong, ...reserved]).toEqual([]);
  });

  test('is valid OpenAPI 3.1, without a broken reference', async () => {
    const validator = new Validator();
    expect(await validator.validate(structuredClone(document))).toMatchObject({ valid: true });
    expect(validator.version).toBe('3.1');
    for (const ref of new Set(valuesOf('$ref', document) as string[])) {
      const target = ref
        .split('/')
        .slice(1)
        .reduce<unknown>((at, step) => (at as Record<string, unknown>)?.[step], document);
      expect(target, ref).toBeDefined();
    }
  });

  test('has only schemas that are valid JSON Schema 2020-12', () => {
    const ajv = new Ajv2020({ strict: true, allowUnionTypes: true });
    const schemas = [...valuesOf('schema', document), ...Object.values(document.components.schemas)] as object[];
    expect(schemas.length).toBeGreaterThan(all.length * 8);
    for (const schema of schemas) {
      expect(ajv.validateSchema(schema), JSON.stringify(schema)).toBe(true);
      // TypeBox's own members are not in the document.
      expect(JSON.stringify(schema)).not.toMatch(/"~|"\$id"|"static"/);
    }
  });

  test('accepts GET and HEAD only', async () => {
    const { status, headers } = await h.send('/openapi.json', { ...asAnybody, method: 'POST' });
    expect({ status, headers }).toEqual({ status: 405, headers: [['Allow', 'GET, HEAD']] });
  });

  test('has the version of the package', async () => {
    const { default: npm } = await import('../../package.json', { with: { type: 'json' } });
    expect(document.info).toMatchObject({ version: npm.version });
  });

  test('has every path and no other', () => {
    const paths = all.flatMap(({ name, alias }) => [name, alias ?? []].flat()).map((name) => `/v2/${name}`);
    expect(Object.keys(document.paths).sort()).toEqual(
      [...paths, gatewayPath, introspectPath, mePath, '/v2/liveness', '/health/live', '/health/ready'].sort(),
    );
  });

  test('has a summary and an example response for every operation', () => {
    for (const { operationId, summary, responses } of everyOperation()) {
      expect(summary, operationId).toMatch(/^[A-Z].+\.$/);
      const { content } = responses[200]!;
      // Events of a stream have no envelope.
      if (content['text/event-stream']) expect(content['text/event-stream'].example, operationId).toMatch(/^event: /);
      else {
        // By RFC 7662 an introspection has no envelope.
        const member = operationId === 'introspect' ? 'active' : 'meta.requestId';
        expect(content['application/json']!.example, operationId).toHaveProperty(member);
      }
    }
  });

  test('describes every field of every input and output', () => {
    const bodies = everyOperation().flatMap(({ operationId, requestBody, responses }) =>
      [['input', requestBody], ...Object.entries(responses)].flatMap(([of, body]) =>
        Object.values((body as ResponseObject | undefined)?.content ?? {}).map(
          ({ schema }) => [`${operationId} ${of}`, schema] as const,
        ),
      ),
    );
    const schemas = [...bodies, ...Object.entries(document.components.schemas)];
    const fields = schemas.flatMap(([name, schema]) => fieldsOf(schema, name));
    expect(fields.length).toBeGreaterThan(400);
    expect(fields.filter(({ description }) => !description?.endsWith('.')).map(({ name }) => name)).toEqual([]);
    const parameters = everyOperation().flatMap(({ parameters = [] }) => parameters as { description?: string }[]);
    expect(parameters.filter(({ description }) => !description)).toEqual([]);
  });

  test('describes the checks of a verification in the order of docs/contract.md', () => {
    const contract = readFileSync(new URL('../../docs/contract.md', import.meta.url), 'utf8');
    const rows = contract.split('**verifyKey**')[1]!.split('The HTTP status is 200')[0]!.split('\n');
    const codes = rows.flatMap((row) => /^\|.*\| (?:`([A-Z_]+)`|HTTP (412))/.exec(row)?.slice(1).find(Boolean) ?? []);
    expect(codes).toHaveLength(outcomes.length + 1);
    const { description } = operationAt('/v2/keys.verifyKey');
    const described = String(description).match(/(?<=Else `|HTTP |code is `)([A-Z_]+|412)/g);
    expect(described).toEqual(codes);
  });

  test('has a unique operationId for every operation', () => {
    const ids = everyOperation().map(({ operationId }) => operationId);
    expect(new Set(ids).size).toBe(ids.length);
  });

  test('names every error code, and every permission', () => {
    const text = JSON.stringify(document);
    for (const { code, meaning } of errorCatalogue) {
      expect(text).toContain(`"/errors/${code}"`);
      expect(text).toContain(JSON.stringify(meaning).slice(1, -1));
    }
    for (const action of Object.values(actions).flat()) expect(text).toContain(`\`${action}\``);
  });

  test('requires a root key except for liveness, health and /v2/me, as a password too for an introspection, and the key as well for the gateway check', () => {
    expect(document.security).toEqual([{ rootKey: [] }]);
    const open = everyOperation().filter(({ security }) => security !== undefined);
    expect(open).toEqual([
      expect.objectContaining({
        operationId: 'gateway.check',
        security: [{ key: [] }, { key: [], gatewayRootKey: [] }],
      }),
      expect.objectContaining({ operationId: 'introspect', security: [{ rootKeyBasic: [] }, { rootKey: [] }] }),
      expect.objectContaining({ operationId: 'me', security: [{ key: [] }] }),
      ...['liveness', 'health.live', 'health.ready'].map((operationId) =>
        expect.objectContaining({ operationId, security: [] }),
      ),
    ]);
  });
});

describe.each(all.map((operation) => ({ operation, name: operation.name })))('$name', ({ operation }) => {
  const paths = [operation.name, operation.alias ?? []].flat().map((name) => `/v2/${name}`);
  const statusOf = (code: string) => errorCatalogue.find((entry) => entry.code === code)!.status;

  test.each(paths)('%s has its summary, input and permissions', (path) => {
    const described = operationAt(path);
    expect(described).toMatchObject({ summary: operation.summary, tags: [operation.name.split('.')[0]] });
    const actionsNamed = valuesOf('anyOf', described['x-required-permissions'])
      .map((group) => (group as string[])[0]!.split('.'))
      .map(([resource, , action]) => `${resource}.${action}`);
    const needed = Object.entries(operation.needs).flatMap(([resource, named]) =>
      named.map((action) => `${resource}.${action}`),
    );
    expect(actionsNamed.sort()).toEqual(needed.sort());
    for (const grant of valuesOf('anyOf', described['x-required-permissions']).flat()) {
      expect(described.description).toContain(`\`${grant}\``);
    }
  });

  test.each(paths)('%s lists every error that the operation names, and those of all operations', (path) => {
    const { responses } = operationAt(path);
    const refuseAs = operation.kind === 'manages' ? operation.refuseAs : undefined;
    const common = ['invalid_input', 'unauthorized', 'root_key_disabled', 'root_key_expired'];
    const expected = [...common, 'body_too_large', 'unsupported_media_type', 'internal', 'store_unavailable'];
    for (const code of [...expected, ...(operation.errors ?? []), refuseAs ?? 'insufficient_permissions']) {
      const { content } = responses[statusOf(code)]!;
      expect(responses[statusOf(code)]!.description).toContain(`- \`${code}\`: `);
      expect(Object.values(content)[0]!.examples).toHaveProperty(code);
      expect('application/json' in content).toBe(!operation.problems);
      expect(content).toHaveProperty(['application/problem+json']);
    }
    for (const [status, { content }] of Object.entries(responses)) {
      for (const { schema, examples = {} } of Object.values(content)) {
        const check = checkFor(schema);
        expect(Object.keys(examples).length > 0).toBe(status !== '200');
        for (const code of Object.keys(examples)) {
          expect(check(document.components.examples[code]!.value), `${status} ${code}`).toBe(true);
        }
      }
      const codes = Object.keys(Object.values(content)[0]!.examples ?? {});
      expect(codes.map(statusOf)).toEqual(codes.map(() => +status));
    }
  });

  test.each(paths)('%s has an example request and response that match its schemas', (path) => {
    const { requestBody, responses } = operationAt(path);
    for (const described of [requestBody as ResponseObject, responses[200]!]) {
      const [{ schema, example }] = Object.values(described.content) as [{ schema: object; example: unknown }];
      expect(example).toBeDefined();
      const check = checkFor(schema);
      check(example);
      expect(check.errors ?? [], JSON.stringify(example)).toEqual([]);
    }
  });

  test.each(paths)('%s accepts the input that the pipeline accepts', async (path) => {
    const accepts = checkFor(
      (operationAt(path).requestBody as { content: Record<string, { schema: object }> }).content['application/json']!
        .schema,
    );
    const isList = (operation.input as { type?: string }).type === 'array';
    const body = isList ? [{ nonsense: 1 }] : { nonsense: 1 };
    expect(accepts(body)).toBe(false);
    const refused = await h.send(path, { body: JSON.stringify(body) });
    expect(refused.status).toBe(400);
    expectDescribed(path, refused);
  });
});

describe('real responses match the document', () => {
  /** Calls an operation by each of its paths. A function makes an input for each. Returns the data of the last call. */
  async function call(name: OperationName, input: object | (() => Promise<object>)) {
    const { alias } = all.find((operation) => operation.name === name)!;
    let data: Record<string, string> = {};
    for (const path of [alias ?? [], name].flat().map((spelling) => `/v2/${spelling}`)) {
      const body = JSON.stringify(typeof input === 'function' ? await input() : input);
      const answer = await h.send(path, { body });
      expect(answer.status, answer.body).toBe(200);
      if (!answer.stream) expectDescribed(path, answer);
      data = answer.json.data;
    }
    return data;
  }

  test.each(all.map(({ name }) => name as OperationName))('of %s', async (name) => {
    await call(name, async () => exampleOf(name).input(await makeThings(h.call, h.rootKey)));
  });

  test('with and without optional members, by each path', async () => {
    const { name, apiId, key, keyId } = await makeThings(h.call, h.rootKey);
    const plain = await call('keys.createKey', { apiId });
    const ratelimits = [
      { name: 'tokens', cost: 2 },
      { name: 'burst', limit: 1, duration: 1000 },
    ];
    for (const permissions of [name, `${name}.none`])
      for (let index = 0; index < 3; index++)
        await call('keys.verifyKey', { key, ratelimits, permissions, tags: ['path=/a'] });
    await call('keys.verifyKey', { key: plain.key });
    await call('keys.verifyKey', { key: 'made up' });
    await call('keys.updateKey', { keyId: plain.keyId, name: 'plain', credits: { remaining: 0 } });
    await call('keys.verifyKey', { key: plain.key });
    await call('keys.getKey', { keyId: plain.keyId });
    await call('keys.explainKey', { key });
    for (const list of ['apis.listApis', 'permissions.listPermissions', 'permissions.listRoles'] as const)
      await call(list, { limit: 1 });
    await call('ratelimits.listNamespaces', { search: 'nothing' });
    await call('keys.listKeys', { search: 'Pla', limit: 1 });
    await call('keys.listKeys', { deleted: true });
    await call('keys.getAttention', { limit: 1, expiresBefore: 4e12, creditsBelow: 1e6, unusedSince: 4e12 });
    for (const page of [{ limit: 1 }, {}]) await call('apis.listKeys', { apiId, ...page });
    await call('keys.updateCredits', { keyId, operation: 'increment', value: 5 });
    await call('keys.updateCredits', { keyId, operation: 'set', value: null });
    const hash = Buffer.alloc(32, 7).toString('base64');
    for (let index = 0; index < 2; index++)
      await call('keys.migrateKeys', { migrationId: 'unkey', apiId, keys: [{ hash }] });

    const check = { namespace: 'email', identifier: 'alice', limit: 1, duration: 60_000 };
    await call('ratelimits.limit', check);
    for (const identifier of ['*', 'alice', 'a*'])
      await call('ratelimits.setOverride', { ...check, identifier, limit: 0 });
    await call('ratelimits.limit', check);
    await call('ratelimits.multiLimit', [check, { ...check, namespace: 'sms', cost: 0 }]);
    await call('ratelimits.getOverride', { namespace: 'email', identifier: 'alice' });
    for (const page of [{ limit: 2 }, {}]) await call('ratelimits.listOverrides', { namespace: 'email', ...page });
    await call('analytics.getVerifications', { groupBy: ['apiId', 'keyId', 'externalId', 'outcome', 'tag'] });
    await call('analytics.getVerifications', { granularity: 'total', orderBy: 'count', limit: 1 });
    for (const of of ['keys', 'identifiers']) await call('analytics.getTop', { of });
    await call('analytics.listRefusals', {});
    await call('analytics.getRatelimits', { namespace: 'email', identifier: 'alice' });
    await call('audit.listEvents', { limit: 5, order: 'desc' });
  });

  test.each([
    ['keys.getKey', 404, { keyId: 'key_none' }],
    ['keys.createKey', 404, { apiId: 'api_none' }],
    ['keys.verifyKey', 400, { key: 'k', permissions: 'a AND' }],
    ['keys.verifyKey', 412, { key: '$key', ratelimits: [{ name: 'nowhere' }] }],
    ['keys.whoami', 404, { key: 'k' }],
    ['identities.deleteIdentity', 404, { identity: 'none' }],
    ['identities.deleteIdentity', 400, {}],
    ['identities.createIdentity', 409, { externalId: 'twice' }],
    ['permissions.createRole', 409, { name: 'twice' }],
    ['rootKeys.deleteRootKey', 404, { rootKeyId: 'root_none' }],
    ['ratelimits.limit', 404, { namespace: 'rlns_none', identifier: 'a', limit: 1, duration: 1000 }],
  ])('of %s with %i', async (name, status, input) => {
    const path = `/v2/${name}`;
    const { key } = await h.createKey();
    const body = JSON.stringify(input).replace('$key', key);
    if (status === 409) await h.send(path, { body });
    for (const accept of ['', 'application/problem+json']) {
      const answer = await h.send(path, { body, accept });
      expect(answer.status).toBe(status);
      expectDescribed(path, answer);
    }
  });

  test('of refusals before an operation begins', async () => {
    const other = await h.createRootKey(['audit.*.read_audit']);
    const expired = await h.createRootKey(['*'], h.workspaceId, 0);
    for (const { name, input } of all) {
      const path = `/v2/${name}`;
      for (const request of [
        { authorization: '' },
        { contentType: 'text/plain' },
        { body: '[' },
        { authorization: `Bearer ${expired}`, body: leastOf(input) },
        { authorization: `Bearer ${other}`, body: leastOf(input) },
      ]) {
        const answer = await h.send(path, request);
        if (answer.status !== 200) expectDescribed(path, answer);
        // What `other` may do, and what needs no grant.
        else expect(['audit.listEvents', 'rootKeys.whoami', 'system.find']).toContain(name);
      }
    }
  });

  test.each(['/v2/liveness', '/health/live', '/health/ready'])('of %s', async (path) => {
    const { json } = await h.send(path, asAnybody);
    const check = checkFor(document.paths[path]!.get!.responses[200]!.content['application/json']!.schema);
    check(json);
    expect(check.errors ?? []).toEqual([]);
  });
});

/** A random input that a schema accepts. */
function leastOf(schema: unknown): string {
  interface Schema {
    type?: string;
    required?: string[];
    properties?: Record<string, Schema>;
    items?: Schema;
    enum?: string[];
    minimum?: number;
  }
  const least = ({ type, required = [], properties = {}, items, enum: values, minimum = 0 }: Schema): unknown => {
    if (values) return values[0];
    if (type === 'object') return Object.fromEntries(required.map((name) => [name, least(properties[name]!)]));
    if (type === 'array') return [least(items!)];
    return type === 'integer' ? minimum : type === 'boolean' ? false : 'abc';
  };
  return JSON.stringify(least(schema as Schema));
}
