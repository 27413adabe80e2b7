// The gateway check: keys.verifyKey for those who can only ask whether a request may pass, such as nginx's auth_request.
// They send headers and read a status and headers, and so the operation's input is read from headers, and its answer told
// in them. Nothing is decided here.
//
// Whose fault a refusal is decides its status. The end user's: 401, 403, 429. The operator's, such as a root key that is
// wrong: 400, 412 or 500, never what an end user could take for his own. Whatever it is, only 200 lets a request pass.

import type { Logger } from 'pino';
import type { Static } from 'typebox';
import { memberText } from '../domain/json.ts';
import type { Outcome } from '../domain/verification.ts';
import { ApiError, type ErrorCode } from '../errors.ts';
import { createMetrics, type Metrics } from '../metrics.ts';
import { printVerified, verify, verifyKey } from '../operations/keys/verifyKey.ts';
import type { Verified } from '../store/decide.ts';
import type { Store } from '../store/store.ts';
import { CallLog } from './callLog.ts';
import { causeOf, errorResponse, internalError } from './errorResponse.ts';
import { type AnswerHead, type HeadRequest, knownMethods, type Response } from './message.ts';
import { bearerToken, RootKeyReader } from './rootKey.ts';
import { compileInput } from './validate.ts';

export const gatewayPath = '/v2/gateway/check';

/** What a check is asked with, beside the header that holds the key. */
export const askedBy = {
  rootKey: 'X-Tollgate-Root-Key',
  permissions: 'X-Tollgate-Permissions',
  cost: 'X-Tollgate-Cost',
  limits: 'X-Tollgate-Limits',
} as const;

/** What a check is answered with, beside RateLimit, RateLimit-Policy, Retry-After and WWW-Authenticate. */
export const answeredBy = {
  code: 'X-Tollgate-Code',
  keyId: 'X-Tollgate-Key-Id',
  apiId: 'X-Tollgate-Api-Id',
  externalId: 'X-Tollgate-External-Id',
  /** Begins the name of the header of a member of the key's metadata. */
  meta: 'X-Tollgate-Meta-',
} as const;

/** Characters of a header's value, when encoded. A longer one is left empty. */
const valueCharactersMax = 1024;

export interface GatewayOptions {
  store: Store;
  log: Logger;
  metrics?: Metrics;
  /** The header that holds the key; after `Bearer` where it is Authorization, else the whole of it. */
  keyHeader: string;
  /** The root key of every check. Empty: each request brings one. */
  rootKey: string;
  /** Members of a key's metadata that are answered as headers. */
  meta: readonly string[];
}

type Verification = Static<typeof verifyKey.output>;
type Limits = NonNullable<Verification['ratelimits']>;
type Headers = (readonly [name: string, value: string])[];

const refusals: Record<Exclude<Outcome, 'VALID'>, { code: ErrorCode; detail: string }> = {
  NOT_FOUND: { code: 'invalid_key', detail: 'The key is unknown.' },
  DISABLED: { code: 'key_disabled', detail: 'The key is disabled.' },
  EXPIRED: { code: 'key_expired', detail: 'The key has expired.' },
  INSUFFICIENT_PERMISSIONS: { code: 'key_lacks_permission', detail: 'The key lacks a permission that this needs.' },
  RATE_LIMITED: { code: 'rate_limited', detail: 'A limit is exceeded: ' },
  USAGE_EXCEEDED: { code: 'usage_exceeded', detail: 'The key has too few credits left.' },
};

/** What the script says of a root key that it refuses. */
const rootKeyRefusals: readonly ErrorCode[] = [
  'unauthorized',
  'root_key_disabled',
  'root_key_expired',
  'insufficient_permissions',
];

export function createGateway(options: GatewayOptions): AnswerHead {
  const { store, log, keyHeader, metrics = createMetrics() } = options;
  const calls = metrics.callsOf('gateway.check');
  const callLog = new CallLog(log);
  const checkInput = compileInput(verifyKey.input);
  const rootKeys = new RootKeyReader();
  const ownRootKey = options.rootKey === '' ? undefined : rootKeys.read(options.rootKey);
  const metaHeaders = options.meta.map((member) => [member, metaHeader(member)] as const);
  const isBearer = keyHeader.toLowerCase() === 'authorization';
  const scheme = isBearer ? 'Bearer' : `ApiKey header="${keyHeader}"`;

  return async function counted(request): Promise<Response> {
    const startedAt = performance.now();
    metrics.begin();
    const response = await check(request, startedAt);
    calls.count(response.status, performance.now() - startedAt);
    return response;
  };

  async function check(request: HeadRequest, startedAt: number): Promise<Response> {
    if (!knownMethods.has(request.method)) {
      const error = new ApiError('method_not_allowed', 'This path takes the methods of HTTP only.');
      return errorResponse(error, request, { allow: 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS' });
    }
    try {
      if (request.hasQuery && request.path === gatewayPath) {
        // Below the path it is the end user's, as Envoy passes it on.
        throw new ApiError('invalid_input', 'The gateway check takes no query parameters, but headers.', {
          fields: [],
        });
      }
      const rootKey = ownRootKey ?? rootKeys.read(readRootKey(request));
      const key = readKey(request);
      if (key === undefined) return refuse(request, 'NOT_FOUND', `The header ${keyHeader} holds no key.`, []);
      const input = readInput(request, key);
      checkInput(input);
      const verified = await verify(input, rootKey, store);
      return tell(request, printVerified(verified, input.ratelimits), verified);
    } catch (cause) {
      const error = gatewayError(cause);
      if (error.status >= 500) {
        callLog.write(error.code, 'error', {
          requestId: request.requestId,
          operation: 'gateway.check',
          status: error.status,
          code: error.code,
          cause: causeOf(error),
          durationMs: Math.round((performance.now() - startedAt) * 1000) / 1000,
        });
      }
      return errorResponse(error, request);
    }
  }

  function readKey(request: HeadRequest): string | undefined {
    const value = readHeader(request, keyHeader);
    const key = isBearer ? value && bearerToken(value) : value;
    // Longer than a key can be: unknown, as any other that is made up.
    return key && key.length <= 512 ? key : undefined;
  }

  /** The answer of keys.verifyKey, as a status and headers. */
  function tell(request: HeadRequest, text: string, { shown, atMs }: Verified): Response {
    const verification = JSON.parse(text) as Verification;
    const { code, keyId = '', identity, ratelimits = [] } = verification;
    const headers: Headers = ratelimits.length > 0 ? rateLimitHeaders(ratelimits, atMs) : [];
    if (shown) headers.push([answeredBy.keyId, keyId], [answeredBy.apiId, shown.apiId]);
    if (code !== 'VALID') {
      const exceeded = ratelimits.filter((limit) => limit.exceeded);
      if (code === 'RATE_LIMITED') headers.push(['Retry-After', String(longestWait(exceeded, atMs))]);
      const { detail } = refusals[code as keyof typeof refusals];
      const names = exceeded.map(({ name }) => JSON.stringify(name)).join(', ');
      return refuse(
        request,
        code as keyof typeof refusals,
        code === 'RATE_LIMITED' ? `${detail}${names}.` : detail,
        headers,
      );
    }
    // All of them are there for every key, empty where it has none: a gateway that lets them replace what the end user
    // sent then leaves nothing of that.
    headers.push([answeredBy.code, code], [answeredBy.externalId, headerText(identity?.externalId ?? '')]);
    for (const [member, name] of metaHeaders) {
      headers.push([name, headerText(metaValue(text, verification, member))]);
    }
    headers.push(notToBeStored);
    return {
      status: 200,
      contentType: 'application/json',
      headers,
      body: `{"meta":{"requestId":"${request.requestId}"},"data":{"valid":true,"code":"VALID","keyId":"${keyId}"}}`,
    };
  }

  function refuse(request: HeadRequest, outcome: keyof typeof refusals, detail: string, headers: Headers): Response {
    const response = errorResponse(new ApiError(refusals[outcome].code, detail), request);
    const challenge = outcome === 'NOT_FOUND' ? [['WWW-Authenticate', scheme] as const] : [];
    return {
      ...response,
      headers: [...response.headers, ...headers, ...challenge, [answeredBy.code, outcome], notToBeStored],
    };
  }
}

const notToBeStored = ['Cache-Control', 'no-store'] as const;

/** `plan_name` as `X-Tollgate-Meta-plan-name`: many servers drop headers with an underscore. */
export const metaHeader = (member: string): string => answeredBy.meta + member.replaceAll('_', '-');

/** The value of a header that may come once; undefined when it is absent or empty. */
function readHeader(request: HeadRequest, name: string): string | undefined {
  const values = request.headers.get(name.toLowerCase());
  if (values === undefined) return undefined;
  if (values.length > 1) throw invalidHeader(name, 'may come once');
  return values[0]!.trim() || undefined;
}

const invalidHeader = (name: string, message: string) =>
  new ApiError('invalid_input', `headers.${name} ${message}.`, { fields: [{ location: `headers.${name}`, message }] });

function readRootKey(request: HeadRequest): string {
  const rootKey = readHeader(request, askedBy.rootKey);
  if (rootKey === undefined) {
    const detail = `There is no root key: the setting GATEWAY_ROOT_KEY is empty, and so is the header ${askedBy.rootKey}.`;
    throw new ApiError('gateway_misconfigured', detail);
  }
  return rootKey;
}

/** The input of keys.verifyKey. What its schema says is not said here again. */
function readInput(request: HeadRequest, key: string): Static<typeof verifyKey.input> {
  const permissions = readHeader(request, askedBy.permissions);
  const cost = readHeader(request, askedBy.cost);
  const limits = readHeader(request, askedBy.limits);
  return {
    key,
    ...(permissions !== undefined && { permissions }),
    ...(cost !== undefined && { credits: { cost: wholeNumber(cost, askedBy.cost) } }),
    ...(limits !== undefined && { ratelimits: limits.split(',').map((item) => readLimit(item.trim())) }),
  };
}

/** `name`, or `name=cost`; what would be misread in a name is percent-encoded. */
function readLimit(item: string): { name: string; cost?: number } {
  const [name = '', cost, ...more] = item.split('=');
  if (more.length > 0)
    throw invalidHeader(askedBy.limits, 'must be names of limits, or name=cost, with commas between');
  return {
    name: decoded(name.trim()),
    ...(cost !== undefined && { cost: wholeNumber(cost.trim(), askedBy.limits) }),
  };
}

function decoded(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    throw invalidHeader(askedBy.limits, 'has a name that is not percent-encoded as it should be');
  }
}

function wholeNumber(text: string, header: string): number {
  if (!/^\d{1,15}$/.test(text)) throw invalidHeader(header, 'must hold a cost that is a whole number');
  return Number(text);
}

/** An error of the operation, as one of the check: of headers instead of a body, and not the end user's fault. */
function gatewayError(cause: unknown): ApiError {
  if (!(cause instanceof ApiError)) return internalError(cause);
  if (rootKeyRefusals.includes(cause.code)) return new ApiError('gateway_misconfigured', cause.message);
  return new ApiError(cause.code, cause.message.replace(/^body\.\S+/, headerOf), {
    fields: cause.fields.map(({ location, ...field }) => ({ location: headerOf(location), ...field })),
    cause: cause.cause,
  });
}

function headerOf(location: string): string {
  if (location.startsWith('body.permissions')) return `headers.${askedBy.permissions}`;
  if (location.startsWith('body.credits')) return `headers.${askedBy.cost}`;
  if (location.startsWith('body.ratelimits')) return `headers.${askedBy.limits}`;
  return location;
}

/** Safe in a header whatever it is, and given back by decodeURIComponent: visible ASCII but for `%`, `"` and `\`. */
function headerText(value: string): string {
  const text = value.toWellFormed().replace(/[^!#$&-[\]-~]/gu, encodeURIComponent);
  return text.length <= valueCharactersMax ? text : '';
}

/** A member of the key's metadata: a string as it is, anything else as the JSON it was stored as. */
function metaValue(text: string, { meta }: Verification, member: string): string {
  if (meta === undefined || !Object.hasOwn(meta, member)) return '';
  const value = meta[member];
  if (value === null) return '';
  return typeof value === 'string' ? value : memberText(text, ['meta', member])!;
}

/** The greatest integer of a structured field (RFC 9651). */
const fieldIntegerMax = 999_999_999_999_999;
const seconds = (ms: number) => Math.ceil(ms / 1000);

/** Seconds from the decision to a limit's reset, both on Redis's clock: at least one. */
const wait = ({ reset }: Limits[number], now: number): number => Math.max(seconds(reset - now), 1);

const longestWait = (limits: Limits, now: number): number => Math.max(...limits.map((limit) => wait(limit, now)));

/** draft-ietf-httpapi-ratelimit-headers-11: lists of the limits' names, each with its parameters. */
function rateLimitHeaders(limits: Limits, now: number): Headers {
  const integer = (value: number) => Math.min(value, fieldIntegerMax);
  const policies = limits.map(
    ({ name, limit, duration }) => `"${headerText(name)}";q=${integer(limit)};w=${seconds(duration)}`,
  );
  const states = limits.map(
    (limit) => `"${headerText(limit.name)}";r=${integer(limit.remaining)};t=${wait(limit, now)}`,
  );
  return [
    ['RateLimit-Policy', policies.join(', ')],
    ['RateLimit', states.join(', ')],
  ];
}
