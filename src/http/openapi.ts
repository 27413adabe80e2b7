// The OpenAPI 3.1 document, derived from the operations.

import { readFileSync } from 'node:fs';
import type { TSchema } from 'typebox';
import { actions, type Resource } from '../domain/grants.ts';
import { Pagination } from '../domain/pagination.ts';
import { outcomeErrors } from '../domain/verification.ts';
import { ApiError, type ErrorCode, errorCatalogue } from '../errors.ts';
import { type Json, partsOf, published } from '../input/published.ts';
import type { AnyOperation } from '../operation.ts';
import { holdTtl } from '../operations/keys/holdFields.ts';
import { KeyRecord } from '../operations/keys/keyFields.ts';
import { Holder } from '../operations/keys/me.ts';
import {
  costMax,
  Identity,
  Override,
  Permission,
  Ratelimit,
  RatelimitRequest,
  Role,
  VerifiedRatelimit,
} from '../operations/schemas.ts';
import { Migration } from '../operations/system/getStatus.ts';
import { gatewayPath, requestHeaders, responseHeaders } from './gateway.ts';
import { errorName, introspectPath } from './introspect.ts';
import { mePath } from './me.ts';

interface Example {
  /** The body of the request; absent for GET. */
  request?: unknown;
  /** The body of the response, whose status is 200. */
  response: unknown;
}

/** By operation, written by `npm run examples`. The path is the same from src/http and dist/http. */
const examples: Record<string, Example> = JSON.parse(
  readFileSync(new URL('../../src/http/examples.json', import.meta.url), 'utf8'),
);

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

/** Schemas that several operations use, by their name in the document. */
const shared: Record<string, TSchema> = {
  KeyRecord,
  Identity,
  Ratelimit,
  RatelimitRequest,
  VerifiedRatelimit,
  Permission,
  Role,
  RatelimitOverride: Override,
};

/** Errors of every operation (docs/contract.md §1 and §2). */
const commonErrors: readonly ErrorCode[] = [
  'invalid_input',
  'malformed_request',
  'unauthorized',
  'root_key_disabled',
  'root_key_expired',
  'insufficient_permissions',
  'body_too_large',
  'headers_too_large',
  'unsupported_media_type',
  'too_many_requests',
  'internal',
  'store_unavailable',
  'store_full',
];

/** The id in scoped grants, by resource. */
const idNames: Partial<Record<Resource, string>> = {
  api: '<apiId>',
  ratelimit: '<namespaceId>',
  identity: '<identityId>',
};

const ref = (kind: string, name: string): Json => ({ $ref: `#/components/${kind}/${name}` });
const object = (properties: Json, optional: readonly string[] = [], description?: string): Json => ({
  type: 'object',
  ...(description && { description }),
  required: Object.keys(properties).filter((name) => !optional.includes(name)),
  properties,
});
const string: Json = { type: 'string' };
const text = (description: string): Json => ({ ...string, description });
const count = (description: string): Json => published({ type: 'integer', description });
const truth = (description: string): Json => ({ type: 'boolean', description });
const constant = (value: string, description: string): Json => ({ ...string, const: value, description });
/** The body of a response with this `data`. A reference has the description of its schema. */
const envelope = (data: Json, more: Json = {}): Json =>
  object({
    meta: ref('schemas', 'ResponseMeta'),
    data: data.$ref ? data : { description: 'Result of the operation.', ...data },
    ...more,
  });
/** The response of status 200. */
const answer = (
  description: string,
  content: ResponseObject['content'][string],
  { headers = {}, mediaType = 'application/json' }: { headers?: Json; mediaType?: string } = {},
): ResponseObject => ({
  description,
  headers: { 'X-Request-Id': ref('headers', 'RequestId'), ...headers },
  content: { [mediaType]: content },
});

/** Returns a schema for the document, in which named schemas are references. */
const plain = (schema: TSchema): Json => named(JSON.parse(JSON.stringify(schema)));

const names = new Map(Object.entries(shared).map(([name, schema]) => [JSON.stringify(schema), name]));

function named<Value>(value: Value): Value {
  if (typeof value !== 'object' || value === null) return value;
  const name = names.get(JSON.stringify(value));
  if (name) return ref('schemas', name) as Value;
  return partsOf(value, named);
}

const description = [
  'Issues, verifies and meters API keys.',
  'Every operation is `POST /v2/<service>.<procedure>` with a JSON body and without query parameters. Every response carries a request id. Times are Unix milliseconds, durations are milliseconds.',
  'A request is checked in this order: path and method (404, 405), presence of a root key (401), media type (415), size (413), body (400), root key (401, 403), then the checks of the operation. For a body of 32 KB or more, the root key is checked before the body. A body is JSON in UTF-8, without escapes of half a surrogate pair. Up to 20 invalid fields of a body are listed, or only the first for a body above 8 KB.',
  'Clients can be generated from this document (docs/clients.md). Give them the address of the server.',
  'An unknown path returns 404 (`route_not_found`). A path that does not accept the method returns 405 (`method_not_allowed`) with `Allow`. Both use the error format of all operations.',
].join('\n\n');

export function openApi(operations: readonly AnyOperation[], { version }: { version: string }): OpenApiDocument {
  const services = new Set(operations.map(serviceOf));
  return {
    openapi: '3.1.0',
    info: { title: 'Tollgate', version, description },
    servers: [{ url: '/' }],
    security: [{ rootKey: [] }],
    tags: [...services, 'gateway'].map((name) => ({ name })),
    paths: pathsOf(operations),
    components: {
      securitySchemes: securitySchemes(),
      headers: {
        RequestId: { description: 'Request id, as in `meta`.', schema: string },
        RetryAfter: headerObject('Seconds to wait before a retry.', count('Seconds.')),
      },
      examples: Object.fromEntries(errorCatalogue.map(({ code, meaning }) => [code, errorExample(code, meaning)])),
      schemas: {
        ...Object.fromEntries(
          Object.entries(shared).map(([name, schema]) => [name, partsOf(JSON.parse(JSON.stringify(schema)), named)]),
        ),
        ...envelopeSchemas(),
      },
    },
  };
}

function pathsOf(operations: readonly AnyOperation[]): OpenApiDocument['paths'] {
  const paths: OpenApiDocument['paths'] = {};
  for (const operation of operations) {
    paths[`/v2/${operation.name}`] = { post: describe(operation, operation.name) };
    if (operation.alias) paths[`/v2/${operation.alias}`] = { post: describe(operation, operation.alias) };
  }
  paths[gatewayPath] = { get: gatewayCheck };
  paths[introspectPath] = { post: introspect };
  paths[mePath] = { get: me };
  paths['/v2/liveness'] = { get: liveness };
  Object.assign(paths, health);
  return paths;
}

const securitySchemes = (): Json => ({
  rootKey: { type: 'http', scheme: 'bearer', description: `Root key. ${describeGrants()}` },
  rootKeyBasic: { type: 'http', scheme: 'basic', description: 'Root key as the password, with any user name.' },
  key: { type: 'http', scheme: 'bearer', description: 'Key of an end user, for the gateway check and `GET /v2/me`.' },
  gatewayRootKey: {
    type: 'apiKey',
    in: 'header',
    name: requestHeaders.rootKey,
    description: 'Root key for the gateway check. Required if the setting GATEWAY_ROOT_KEY is empty.',
  },
});

const errorMembers: Record<string, Json> = {
  title: text('Title of the error code.'),
  detail: { type: 'string', description: 'Explanation for people. The wording may change.' },
  status: count('HTTP status.'),
  type: ref('schemas', 'ErrorType'),
  errors: {
    type: 'array',
    description: 'Invalid fields, at most 20.',
    items: object(
      {
        location: text('Place of the field, such as `body.credits.refill.interval`.'),
        message: text('What is wrong.'),
        fix: text('What to do.'),
      },
      ['fix'],
    ),
  },
};

/** The parts that the responses of all operations share. */
const envelopeSchemas = (): Json => ({
  ResponseMeta: object(
    { requestId: text('Request id (`req_…`), also in the header X-Request-Id.') },
    [],
    'Data about the response.',
  ),
  Pagination: plain(Pagination),
  ApiError: object(
    { meta: ref('schemas', 'ResponseMeta'), error: ref('schemas', 'ErrorBody'), ...errorMembers },
    Object.keys(errorMembers),
    'With the media type `application/problem+json` the members of `error` are also at the top level (RFC 9457).',
  ),
  ErrorBody: object(errorMembers, [], 'The error.'),
  ErrorType: {
    type: 'string',
    description: `URI reference that ends in the error code and leads to a page about the error.\n\n${describeCodes(errorCatalogue.map(({ code }) => code))}`,
    enum: errorCatalogue.map(({ code }) => typeOf(code)),
  },
});

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
    description: describeOperation(operation, grants),
    tags: [serviceOf(operation)],
    ...(name === operation.alias && { 'x-alias-of': operation.name }),
    'x-required-permissions': { allOf: grants.map((group) => ({ anyOf: group })) },
    requestBody: {
      required: operation.kind === 'decides' || operation.mayLackBody !== true,
      content: { 'application/json': { schema: plain(operation.input), example: examples[operation.name]?.request } },
    },
    responses: { 200: success(operation, name === operation.alias), ...failures(operation) },
  };
}

function describeOperation(operation: AnyOperation, grants: string[][]): string {
  const required = grants.map((group) => group.map((grant) => `\`${grant}\``).join(' or ')).join(', and ');
  return [operation.description, `Requires ${required}.`, describeAlias(operation)].filter((part) => part).join('\n\n');
}

function describeAlias(operation: AnyOperation): string | undefined {
  if (!operation.alias) return undefined;
  const wrapItems = operation.kind === 'manages' ? operation.wrapItems : undefined;
  return `\`/v2/${operation.alias}\` does the same${wrapItems ? `, with the list itself as \`data\`` : ''}.`;
}

/** Returns groups of grants. The root key must have at least one grant of every group. */
function grantsOf(operation: AnyOperation): string[][] {
  // A `scope` without parameters has the same result for every call.
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
  if (manages?.streams) return streamOf(operation, output);
  const data =
    manages?.wrapItems && !asAlias
      ? object({ [manages.wrapItems]: { description: 'Items of this page.', ...output } })
      : output;
  const schema = envelope(data, manages?.list && { pagination: ref('schemas', 'Pagination') });
  return answer('Success.', { schema, example: exampleResponse(operation, asAlias) });
}

/**
 * OpenAPI 3.1 has no schema for the events of a stream: it is a string, of which the data of each event has a schema.
 */
function streamOf(operation: AnyOperation, output: Json): ResponseObject {
  const description =
    'Server-sent events. `contentSchema` is the `data` of each; lines that begin with `:` are heartbeats.';
  const schema = { type: 'string', contentMediaType: 'text/event-stream', contentSchema: output, description };
  const content = { schema, example: exampleResponse(operation, false) };
  const mediaType = 'text/event-stream';
  return answer('Success: events until the client closes the connection.', content, { mediaType });
}

/** Examples are recorded under the operation's name. Its alias differs only in not wrapping the list. */
function exampleResponse(operation: AnyOperation, asAlias: boolean): unknown {
  const response = examples[operation.name]?.response as { data: Json } | undefined;
  const wrapItems = operation.kind === 'manages' ? operation.wrapItems : undefined;
  return response && asAlias && wrapItems ? { ...response, data: response.data[wrapItems] } : response;
}

function failures(operation: AnyOperation): Record<string, ResponseObject> {
  const refuseAs = operation.kind === 'manages' ? operation.refuseAs : undefined;
  const codes = new Set<ErrorCode>([...commonErrors, ...(operation.errors ?? [])]);
  if (refuseAs) {
    codes.delete('insufficient_permissions');
    codes.add(refuseAs);
  }
  return failuresOf(codes, operation.problems);
}

/** Returns the error responses by status. */
function failuresOf(codes: ReadonlySet<ErrorCode>, problemsOnly = false): Record<string, ResponseObject> {
  const statuses = new Map<number, ErrorCode[]>();
  for (const { code, status } of errorCatalogue) {
    if (codes.has(code)) statuses.set(status, [...(statuses.get(status) ?? []), code]);
  }
  return Object.fromEntries(
    [...statuses].map(([status, ofStatus]) => [status, failure(status, ofStatus, problemsOnly || status === 429)]),
  );
}

function failure(status: number, codes: readonly ErrorCode[], problemsOnly: boolean): ResponseObject {
  const mediaTypes = [...(problemsOnly ? [] : ['application/json']), 'application/problem+json'];
  const schema = ref('schemas', 'ApiError');
  const errorExamples = Object.fromEntries(codes.map((code) => [code, ref('examples', code)]));
  return {
    description: describeCodes(codes),
    headers: {
      'X-Request-Id': ref('headers', 'RequestId'),
      ...(status === 401 && { 'WWW-Authenticate': headerObject('`Bearer`.') }),
      ...((status === 429 || status === 503) && { 'Retry-After': ref('headers', 'RetryAfter') }),
    },
    content: Object.fromEntries(mediaTypes.map((mediaType) => [mediaType, { schema, examples: errorExamples }])),
  };
}

/** Returns a Markdown list of codes and their meanings. */
const describeCodes = (codes: readonly string[]): string =>
  errorCatalogue
    .filter(({ code }) => codes.includes(code))
    .map(({ code, meaning }) => `- \`${code}\`: ${meaning}`)
    .join('\n');

function describeGrants(): string {
  const lines = Object.entries(actions).map(([resource, ofResource]) => {
    const id = idNames[resource as Resource];
    const list = ofResource.map((action) => `\`${action}\``).join(', ');
    return `- \`${resource}.*\`${id ? ` or \`${resource}.${id}\`` : ''}: ${list}`;
  });
  return `Its permissions are grants, \`<resource>.<id or *>.<action>\`; \`*\` alone grants everything.\n\n${lines.join('\n')}`;
}

/** A path that needs no root key. `data` is the schema of that member of a 200. */
const withoutRootKey = (
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
    200: answer('OK.', { schema: envelope(data), example: examples[operationId]?.response }),
    ...(failures.length > 0 && { 503: failure(503, failures, false) }),
  },
});

const liveness = withoutRootKey(
  'liveness',
  'Check that the server runs. Needs no root key.',
  object({ message: text('Sentence for people.') }),
);

const health = {
  '/health/live': {
    get: withoutRootKey(
      'health.live',
      'Liveness: the process responds. Needs no root key.',
      object({ alive: truth('True: the process responds.') }),
    ),
  },
  '/health/ready': {
    get: withoutRootKey(
      'health.ready',
      'Readiness: Redis replies in time, has the scripts and accepts writes, and the server is not shutting down. Needs no root key.',
      object(
        {
          ready: truth('True: the server accepts requests.'),
          redis: constant('answers', 'Redis replies in time.'),
          scripts: constant('loaded', 'Redis has the scripts.'),
          writes: constant('accepted', 'Redis accepts writes.'),
          dataVersion: count('The version of the stored data.'),
          migration: plain(Migration),
        },
        ['migration'],
      ),
      ['store_unavailable', 'store_full', 'shutting_down'],
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

const outcomeHeaders: Json = {
  [responseHeaders.code]: headerObject('Outcome, as `code` of `keys.verifyKey`.'),
  'Cache-Control': headerObject('`no-store`: the outcome applies to this request only.'),
};

const verifiedHeaders: Json = {
  ...outcomeHeaders,
  'RateLimit-Policy': headerObject(
    'Limits that were checked, such as `"requests";q=100;w=60` (draft-ietf-httpapi-ratelimit-headers-11). Names are percent-encoded.',
  ),
  RateLimit: headerObject('Remaining units and seconds until the reset of each limit: `"requests";r=50;t=30`.'),
  [responseHeaders.keyId]: headerObject('Id of the key. Absent if the key is unknown.'),
  [responseHeaders.apiId]: headerObject('Id of the API of the key. Absent if the key is unknown.'),
};

const gatewayErrors: readonly ErrorCode[] = [
  'invalid_input',
  'permissions_query_syntax',
  'malformed_request',
  ...Object.values(outcomeErrors).map(({ code }) => code),
  'precondition_failed',
  'headers_too_large',
  'gateway_misconfigured',
  'internal',
  'store_unavailable',
  'store_full',
];

function gatewayFailures() {
  const failures = failuresOf(new Set(gatewayErrors));
  const more: Record<number, Json> = {
    401: {
      ...outcomeHeaders,
      'WWW-Authenticate': headerObject('`Bearer` if the key is expected in Authorization, else `ApiKey`.'),
    },
    403: verifiedHeaders,
    429: { ...verifiedHeaders, 'Retry-After': ref('headers', 'RetryAfter') },
  };
  for (const [status, headers] of Object.entries(more)) Object.assign(failures[status]!.headers as Json, headers);
  return failures;
}

const gatewayCheck: OperationObject = {
  operationId: 'gateway.check',
  summary: 'Verify the key of a request on behalf of a gateway.',
  description: [
    'Does what `keys.verifyKey` does, for gateways that send headers and read a status and headers, such as nginx, Traefik, Caddy and Envoy. Every method is accepted, and the body is ignored. Paths below this one behave the same. An empty header counts as absent.',
    'The key is read from Authorization (`Bearer`), or from the header named by the setting GATEWAY_KEY_HEADER. The root key is that of the setting GATEWAY_ROOT_KEY or, if that is empty, of a header. A root key that is not accepted results in a 500, because the end user is not at fault.',
    'The address of the end user, for keys with `allowedIps`, is read from the header named by the setting GATEWAY_IP_HEADER: of several addresses the last one. Without the setting such keys are refused.',
  ].join('\n\n'),
  tags: ['gateway'],
  security: [{ key: [] }, { key: [], gatewayRootKey: [] }],
  parameters: [
    headerParameter(requestHeaders.permissions, 'Permission query, as `permissions` of `keys.verifyKey`.', {
      type: 'string',
      maxLength: 1000,
    }),
    headerParameter(requestHeaders.cost, 'Credits to charge. Defaults to 1.', {
      ...count('Credits.'),
      minimum: 0,
      maximum: costMax,
    }),
    headerParameter(
      requestHeaders.limits,
      'Limits to check, comma-separated: `name` or `name=cost`. Percent-encode `,`, `=` and `%` in names.',
    ),
    headerParameter(
      requestHeaders.hold,
      'Holds the charges for this many milliseconds at most, as `hold.ttl` of `keys.verifyKey`, until the API settles them.',
      { ...count('Milliseconds.'), minimum: holdTtl.minimum, maximum: holdTtl.maximum },
    ),
  ],
  responses: {
    200: answer(
      `The request may pass. The headers \`${responseHeaders.meta}…\` hold the members of the key's metadata that the setting GATEWAY_META names. Values are percent-encoded.`,
      {
        schema: envelope(
          object({
            valid: truth('True: the request may pass.'),
            code: constant('VALID', 'Outcome, as `code` of `keys.verifyKey`.'),
            keyId: text('Id of the key.'),
          }),
        ),
        example: examples['gateway.check']?.response,
      },
      {
        headers: {
          ...verifiedHeaders,
          [responseHeaders.externalId]: headerObject('externalId of the key, or empty.'),
          [responseHeaders.holdId]: headerObject('Id of the hold for `keys.settleHold`, or empty.'),
        },
      },
    ),
    ...gatewayFailures(),
  },
};

const introspectFailure = (status: number): ResponseObject => {
  const [error, detail] = ['Code of RFC 6749.', 'Explanation for people. The wording may change.'].map(text);
  return answer(`\`${errorName(status)}\`.`, { schema: object({ error, error_description: detail }) });
};

const introspect: OperationObject = {
  operationId: 'introspect',
  summary: 'Introspect a key as a token of OAuth (RFC 7662). Charges, counts and changes nothing.',
  description:
    'For gateways and libraries of OAuth. Only `keys.verifyKey` and the gateway check enforce limits and credits. Unknown parameters are ignored. Requires `api.*.verify_key` or `api.<apiId>.verify_key`; a key of another API is not active.',
  tags: ['gateway'],
  security: [{ rootKeyBasic: [] }, { rootKey: [] }],
  requestBody: {
    required: true,
    content: {
      'application/x-www-form-urlencoded': { schema: object({ token: { ...text('The key.'), minLength: 1 } }) },
    },
  },
  responses: {
    200: answer('Success, also for a key that is unknown or refused. Only an active one has more than two members.', {
      schema: object(
        {
          active: truth('False if the key is unknown, disabled or expired, or has `allowedIps`.'),
          code: text('As `code` of `keys.explainKey`.'),
          token_type: constant('Bearer', 'How the key is sent.'),
          client_id: text('Id of the key.'),
          jti: text('Id of the key.'),
          sub: text('externalId of the key. Absent without one.'),
          aud: text('Id of its API.'),
          scope: text('Its permissions and those of its roles and plans, separated by spaces. Absent without any.'),
          iat: count('Time of its creation in Unix seconds.'),
          exp: count('Expiry time in Unix seconds. Absent without one.'),
        },
        ['token_type', 'client_id', 'jti', 'sub', 'aud', 'scope', 'iat', 'exp'],
      ),
      example: examples.introspect?.response,
    }),
    ...Object.fromEntries(
      [400, 401, 403, 413, 415, 429, 500, 503].map((status) => [status, introspectFailure(status)]),
    ),
  },
};

const meErrors: readonly ErrorCode[] = [
  'invalid_input',
  'malformed_request',
  'invalid_key',
  'ip_not_allowed',
  'too_many_requests',
  'headers_too_large',
  'internal',
  'store_unavailable',
];

const me: OperationObject = {
  operationId: 'me',
  summary: 'Read a key with the key itself: its limits, credits, open holds and usage. Charges and counts nothing.',
  description: [
    'For the holder of the key, from the backend or a page of your product. Only keys of workspaces whose setting `me` is on (`workspace.updateSettings`) are found: any other key is unknown.',
    'A key can be read twice a second on each server process. A browser shows the answer to pages of the origins in the setting.',
  ].join('\n\n'),
  tags: ['keys'],
  security: [{ key: [] }],
  responses: {
    200: answer(
      'Success.',
      { schema: envelope(plain(Holder)), example: examples.me?.response },
      { headers: { 'Cache-Control': headerObject('`no-store`.'), Vary: headerObject('`Origin`.') } },
    ),
    ...failuresOf(new Set(meErrors)),
  },
};
