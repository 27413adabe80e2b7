// The OpenAPI 3.1 document: what the operations say of themselves, and what every operation has in common. Nothing of it
// is written by hand but the sentences.

import type { TSchema } from 'typebox';
import { actions, type Resource } from '../domain/grants.ts';
import { ApiError, type ErrorCode, errorCatalogue } from '../errors.ts';
import type { AnyOperation } from '../operation.ts';
import {
  costMax,
  Identity,
  KeyRecord,
  Override,
  Permission,
  Ratelimit,
  RatelimitRequest,
  Role,
  VerifiedRatelimit,
} from '../operations/schemas.ts';
import { examples } from './examples.ts';
import { answeredBy, askedBy, gatewayPath } from './gateway.ts';

/** JSON Schema 2020-12, as OpenAPI 3.1 takes it, and every other object of the document. */
type Json = { [member: string]: unknown };

export interface OpenApiDocument extends Json {
  openapi: string;
  paths: Record<string, { post?: OperationObject; get?: OperationObject }>;
}

export interface OperationObject extends Json {
  operationId: string;
  responses: Record<string, ResponseObject>;
}

export interface ResponseObject extends Json {
  content: Record<string, { schema: Json; example?: unknown; examples?: Json }>;
}

/** Shapes that several operations answer or take, by the name they have in the document. */
const shared: Record<string, TSchema> = {
  KeyRecord,
  Identity,
  Ratelimit,
  RatelimitRequest,
  VerifiedRatelimit,
  Permission,
  Role,
  Override,
};

/** What may go wrong with any operation (docs/contract.md §1 and §2). */
const commonErrors: readonly ErrorCode[] = [
  'invalid_input',
  'malformed_request',
  'unauthorized',
  'root_key_disabled',
  'root_key_expired',
  'insufficient_permissions',
  'body_too_large',
  'unsupported_media_type',
  'internal',
  'store_unavailable',
];

/** How scoped grants name the id they are for. */
const idNames: Partial<Record<Resource, string>> = {
  api: '<apiId>',
  ratelimit: '<namespaceId>',
  identity: '<identityId>',
};

const ref = (kind: string, name: string): Json => ({ $ref: `#/components/${kind}/${name}` });
const object = (properties: Json, optional: readonly string[] = []): Json => ({
  type: 'object',
  required: Object.keys(properties).filter((name) => !optional.includes(name)),
  properties,
});
const string: Json = { type: 'string' };

/**
 * A TypeBox schema without what is TypeBox's own; shapes that have a name are referred to by it. `documented` holds keywords
 * for the document alone: rules that an operation checks itself, for the sake of its message.
 */
const plain = (schema: TSchema): Json => named(JSON.parse(JSON.stringify(schema)));

const names = new Map(Object.entries(shared).map(([name, schema]) => [JSON.stringify(schema), name]));

function named<Value>(value: Value): Value {
  if (typeof value !== 'object' || value === null) return value;
  const name = names.get(JSON.stringify(value));
  if (name) return ref('schemas', name) as Value;
  return members(value);
}

function members<Value extends object>(value: Value): Value {
  if (Array.isArray(value)) return value.map(named) as unknown as Value;
  const { documented, ...rest } = value as Value & { documented?: object };
  return Object.fromEntries(
    Object.entries({ ...rest, ...documented }).map(([key, member]) => [key, named(member)]),
  ) as Value;
}

export function openApi(operations: readonly AnyOperation[], { version }: { version: string }): OpenApiDocument {
  const paths: OpenApiDocument['paths'] = {};
  for (const operation of operations) {
    paths[`/v2/${operation.name}`] = { post: describe(operation, operation.name) };
    if (operation.alias) paths[`/v2/${operation.alias}`] = { post: describe(operation, operation.alias) };
  }
  paths[gatewayPath] = { get: gatewayCheck };
  paths['/v2/liveness'] = { get: liveness };
  Object.assign(paths, health);
  for (const { get } of Object.values(paths)) if (get) showAnswer(get);
  const services = new Set(operations.map(serviceOf));
  return {
    openapi: '3.1.0',
    info: {
      title: 'Tollgate',
      version,
      description: [
        'Issues, verifies and meters API keys.',
        'Every operation is `POST /v2/<service>.<procedure>` with a JSON body and without query parameters; every answer carries a request id. Times are Unix milliseconds, durations are milliseconds.',
        'Errors come in this order: 404 and 405 for the path, 401 without a root key, 415, 413, 400 for the body, 401 and 403 for the root key, then those of the operation. Of a body of 32 KB and more the root key comes before the body. The first error of a body above 8 KB is listed, and up to 20 of a smaller one.',
        'A path that does not exist answers 404 (`route_not_found`), a path that takes another method 405 (`method_not_allowed`) with `Allow`, both in the envelope of every error.',
      ].join('\n\n'),
    },
    servers: [{ url: '/' }],
    security: [{ rootKey: [] }],
    tags: [...services, 'gateway'].map((name) => ({ name })),
    paths,
    components: {
      securitySchemes: {
        rootKey: { type: 'http', scheme: 'bearer', description: `A root key. ${grantsInWords()}` },
        key: { type: 'http', scheme: 'bearer', description: "An end user's key, as the gateway check takes it." },
        gatewayRootKey: {
          type: 'apiKey',
          in: 'header',
          name: askedBy.rootKey,
          description: 'The root key of a gateway check, where the setting GATEWAY_ROOT_KEY is empty.',
        },
      },
      headers: {
        RequestId: { description: 'The request id, as in `meta`.', schema: string },
        RetryAfter: { description: 'Seconds to wait.', schema: { type: 'integer' } },
      },
      examples: Object.fromEntries(errorCatalogue.map(({ code, meaning }) => [code, errorExample(code, meaning)])),
      schemas: {
        ...Object.fromEntries(
          Object.entries(shared).map(([name, schema]) => [name, members(JSON.parse(JSON.stringify(schema)))]),
        ),
        ResponseMeta: object({
          requestId: { type: 'string', description: '`req_…`; also in the header X-Request-Id.' },
        }),
        Pagination: object(
          {
            hasMore: { type: 'boolean' },
            cursor: { type: 'string', description: 'Of the next page; only when there is one.' },
          },
          ['cursor'],
        ),
        Error: object({ meta: ref('schemas', 'ResponseMeta'), error: ref('schemas', 'ErrorBody') }),
        ErrorBody: object({
          title: string,
          detail: { type: 'string', description: 'A sentence for people; it may change.' },
          status: { type: 'integer', description: 'The HTTP status.' },
          type: ref('schemas', 'ErrorType'),
          errors: {
            type: 'array',
            description: 'Failed fields, at most 20.',
            items: object({ location: string, message: string, fix: string }, ['fix']),
          },
        }),
        ErrorType: {
          type: 'string',
          description: `A reference that ends in the error's code and leads to a page about it.\n\n${inWords(errorCatalogue.map(({ code }) => code))}`,
          enum: errorCatalogue.map(({ code }) => typeOf(code)),
        },
      },
    },
  };
}

function errorExample(code: ErrorCode, meaning: string): Json {
  const fields = code === 'invalid_input' ? [{ location: 'body.name', message: 'is required' }] : [];
  const error = new ApiError(code, meaning, { fields }).toBody();
  return { summary: error.title, value: { meta: { requestId: 'req_Example' }, error } };
}

const typeOf = (code: string) => `/errors/${code}`;
const serviceOf = ({ name }: AnyOperation): string => name.slice(0, name.indexOf('.'));

function describe(operation: AnyOperation, name: string): OperationObject {
  const grants = grantsOf(operation);
  return {
    operationId: name,
    summary: operation.summary,
    description: `Needs ${grants.map((group) => group.map((grant) => `\`${grant}\``).join(' or ')).join(', and ')}.`,
    tags: [serviceOf(operation)],
    'x-required-permissions': { allOf: grants.map((group) => ({ anyOf: group })) },
    requestBody: {
      required: true,
      content: { 'application/json': { schema: plain(operation.input), example: examples[operation.name]?.request } },
    },
    responses: { 200: success(operation, name === operation.alias), ...failures(operation) },
  };
}

/** Groups of which each must be held, by one of its members. */
function grantsOf(operation: AnyOperation): string[][] {
  // A scope that asks nothing of the call is the same for every call.
  const anyOnly =
    operation.kind === 'manages' && operation.scope.length === 0 && operation.scope({}, undefined) === '*';
  return Object.entries(operation.needs).flatMap(([resource, needed]) =>
    needed.map((action) => {
      const id = anyOnly ? undefined : idNames[resource as Resource];
      return ['*', id ?? []].flat().map((scope) => `${resource}.${scope}.${action}`);
    }),
  );
}

function success(operation: AnyOperation, asAlias: boolean): ResponseObject {
  const manages = operation.kind === 'manages' ? operation : undefined;
  const output = plain(operation.output);
  const data = manages?.wrapItems && !asAlias ? object({ [manages.wrapItems]: output }) : output;
  const schema = object({
    meta: ref('schemas', 'ResponseMeta'),
    data,
    ...(manages?.list && { pagination: ref('schemas', 'Pagination') }),
  });
  return {
    description: 'Done, or decided.',
    headers: { 'X-Request-Id': ref('headers', 'RequestId') },
    content: { 'application/json': { schema, example: exampleAnswer(operation, asAlias) } },
  };
}

/** Puts in what was answered to a GET without a root key. */
function showAnswer({ operationId, responses }: OperationObject) {
  const json = responses[200]?.content['application/json'];
  if (json) json.example = examples[operationId]?.response;
}

/** Told by the operation's first path; the second answers alike but for the list, which it does not wrap. */
function exampleAnswer(operation: AnyOperation, asAlias: boolean): unknown {
  const answer = examples[operation.name]?.response as { data: Json } | undefined;
  const wrapItems = operation.kind === 'manages' ? operation.wrapItems : undefined;
  return answer && asAlias && wrapItems ? { ...answer, data: answer.data[wrapItems] } : answer;
}

function failures(operation: AnyOperation): Record<string, ResponseObject> {
  const refuseAs = operation.kind === 'manages' ? operation.refuseAs : undefined;
  const codes = new Set<ErrorCode>([...commonErrors, ...(operation.errors ?? [])]);
  if (refuseAs) {
    codes.delete('insufficient_permissions');
    codes.add(refuseAs);
  }
  return failuresOf(codes, () => (operation.problems ? ['application/problem+json'] : jsonOrProblem));
}

const jsonOrProblem = ['application/json', 'application/problem+json'];

/** What may be refused, by status. The second media type is for requests whose Accept names it. */
function failuresOf(
  codes: ReadonlySet<ErrorCode>,
  mediaTypesOf: (status: number) => readonly string[],
): Record<string, ResponseObject> {
  const statuses = new Map<number, ErrorCode[]>();
  for (const { code, status } of errorCatalogue) {
    if (codes.has(code)) statuses.set(status, [...(statuses.get(status) ?? []), code]);
  }
  return Object.fromEntries([...statuses].map(([status, of]) => [status, failure(status, of, mediaTypesOf(status))]));
}

function failure(status: number, codes: readonly ErrorCode[], mediaTypes: readonly string[]): ResponseObject {
  const schema = {
    allOf: [
      ref('schemas', 'Error'),
      { properties: { error: { properties: { status: { const: status }, type: { enum: codes.map(typeOf) } } } } },
    ],
  };
  const shown = Object.fromEntries(codes.map((code) => [code, ref('examples', code)]));
  return {
    description: inWords(codes),
    headers: {
      'X-Request-Id': ref('headers', 'RequestId'),
      ...(status === 503 && { 'Retry-After': ref('headers', 'RetryAfter') }),
    },
    content: Object.fromEntries(mediaTypes.map((mediaType) => [mediaType, { schema, examples: shown }])),
  };
}

/** A list of codes and when they come. */
const inWords = (codes: readonly string[]): string =>
  errorCatalogue
    .filter(({ code }) => codes.includes(code))
    .map(({ code, meaning }) => `- \`${code}\`: ${meaning}`)
    .join('\n');

function grantsInWords(): string {
  const lines = Object.entries(actions).map(([resource, of]) => {
    const id = idNames[resource as Resource];
    return `- \`${resource}.*\`${id ? ` or \`${resource}.${id}\`` : ''}: ${of.map((action) => `\`${action}\``).join(', ')}`;
  });
  return `What it may do are grants, \`<resource>.<id or *>.<action>\`; \`*\` alone is all of them.\n\n${lines.join('\n')}`;
}

/** What is asked without a root key, and what a 200 answers as `data`. */
const open = (
  operationId: string,
  summary: string,
  data: Json,
  failures: readonly ErrorCode[] = [],
): OperationObject => ({
  operationId,
  summary,
  tags: ['health'],
  security: [],
  responses: {
    200: {
      description: 'It is so.',
      headers: { 'X-Request-Id': ref('headers', 'RequestId') },
      content: { 'application/json': { schema: object({ meta: ref('schemas', 'ResponseMeta'), data }) } },
    },
    ...(failures.length > 0 && { 503: failure(503, failures, jsonOrProblem) }),
  },
});

const liveness = open('liveness', 'Say that the server runs. Takes no root key.', object({ message: string }));

const health = {
  '/health/live': {
    get: open('health.live', 'Say that the process answers. Takes no root key.', object({ alive: { const: true } })),
  },
  '/health/ready': {
    get: open(
      'health.ready',
      'Say whether requests should be sent here: Redis answers in time and has the scripts, and the server is not about to stop. Takes no root key.',
      object({ ready: { const: true }, redis: { const: 'answers' }, scripts: { const: 'loaded' } }),
      ['store_unavailable', 'shutting_down'],
    ),
  },
};

const headerParameter = (name: string, description: string, schema: Json = string): Json => ({
  in: 'header',
  name,
  description,
  schema,
});
const headerObject = (description: string, schema: Json = string): Json => ({ description, schema });

const decided: Json = {
  [answeredBy.code]: headerObject('What was decided, as `code` of `keys.verifyKey`.'),
  'Cache-Control': headerObject('`no-store`: it was decided for this request alone.'),
};

const rateLimits: Json = {
  ...decided,
  'RateLimit-Policy': headerObject(
    'Every limit that was checked, such as `"requests";q=100;w=60` (draft-ietf-httpapi-ratelimit-headers-11). Names are percent-encoded.',
  ),
  RateLimit: headerObject('What is left of them, and for how many seconds: `"requests";r=50;t=30`.'),
  [answeredBy.keyId]: headerObject('The id of the key, where it is known.'),
  [answeredBy.apiId]: headerObject('The id of the API that the key belongs to, where the key is known.'),
};

const gatewayErrors: readonly ErrorCode[] = [
  'invalid_input',
  'permissions_query_syntax',
  'malformed_request',
  'invalid_key',
  'key_disabled',
  'key_expired',
  'key_lacks_permission',
  'precondition_failed',
  'rate_limited',
  'usage_exceeded',
  'gateway_misconfigured',
  'internal',
  'store_unavailable',
];

function gatewayFailures() {
  const failures = failuresOf(new Set(gatewayErrors), (status) =>
    status === 429 ? ['application/problem+json'] : jsonOrProblem,
  );
  const more: Record<number, Json> = {
    401: { ...decided, 'WWW-Authenticate': headerObject('`Bearer`, where the key is expected in Authorization.') },
    403: rateLimits,
    429: { ...rateLimits, 'Retry-After': ref('headers', 'RetryAfter') },
  };
  for (const [status, headers] of Object.entries(more)) Object.assign(failures[status]!.headers as Json, headers);
  return failures;
}

const gatewayCheck: OperationObject = {
  operationId: 'gateway.check',
  summary: 'Verify the key of a request for a gateway: by status and headers.',
  description: [
    'What `keys.verifyKey` does, for gateways that ask by headers and are told by a status and headers, such as nginx, Traefik, Caddy and Envoy. Any method will do, and a body is not looked at. A path below this one is taken for this one. An empty header counts as left out.',
    'The key is in Authorization, after `Bearer`, or in the header of the setting GATEWAY_KEY_HEADER. Needs the root key of the setting GATEWAY_ROOT_KEY or, where that is empty, of a header; a root key that is not accepted is a 500, as it is not the end user who is at fault.',
  ].join('\n\n'),
  tags: ['gateway'],
  security: [{ key: [] }, { key: [], gatewayRootKey: [] }],
  parameters: [
    headerParameter(askedBy.permissions, 'A permission query, as `permissions` of `keys.verifyKey`.'),
    headerParameter(askedBy.cost, 'Credits to charge; 1 if left out.', {
      type: 'integer',
      minimum: 0,
      maximum: costMax,
    }),
    headerParameter(
      askedBy.limits,
      'Limits to check: `name` or `name=cost`, with commas between. Names are percent-encoded where they hold `,`, `=` or `%`.',
    ),
  ],
  responses: {
    200: {
      description: `The request may pass. Members of the key's metadata that the setting GATEWAY_META names are in \`${answeredBy.meta}…\`. Values are percent-encoded.`,
      headers: {
        'X-Request-Id': ref('headers', 'RequestId'),
        ...rateLimits,
        [answeredBy.externalId]: headerObject('The externalId of the key; empty where it has none.'),
      },
      content: {
        'application/json': {
          schema: object({
            meta: ref('schemas', 'ResponseMeta'),
            data: object({ valid: { const: true }, code: { const: 'VALID' }, keyId: string }),
          }),
        },
      },
    },
    ...gatewayFailures(),
  },
};
