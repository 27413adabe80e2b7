// The gateway check: keys.verifyKey for gateways that can only ask whether a request may pass, such as nginx with
// auth_request. They send headers and read a status and headers, so the operation's input is read from headers and its
// outcome is written to headers. The gateway check decides nothing itself.
//
// The status of a refusal depends on who is at fault. The end user: 401, 403, 429. The operator, for example with a
// wrong root key: 400, 412 or 500. Only a 200 lets a request pass.

import type { Logger } from 'pino';
import type { Static } from 'typebox';
import { TooManyHolds } from '../decide/holdErrors.ts';
import type { Verified } from '../decide/verification.ts';
import type { PresentedRootKey } from '../domain/caller.ts';
import { memberTextsOf } from '../domain/json.ts';
import { keyIdOf, metaOf, outcomeErrors } from '../domain/verification.ts';
import { ApiError, type ErrorCode, rootKeyRefusals } from '../errors.ts';
import { compileInput } from '../input/validate.ts';
import { type Calls, Metrics } from '../metrics.ts';
import { limitOf, limitsMax, prepareHeld, prepareVerification, verifyKey } from '../operations/keys/verifyKey.ts';
import type { Store } from '../store.ts';
import { endUserAddress } from './address.ts';
import { CallLog } from './callLog.ts';
import { errorResponse, internalError } from './errorResponse.ts';
import { type HeaderHandler, type HeadRequest, knownMethods, notToBeStored, type Response } from './message.ts';
import { bearerToken, RootKeyReader } from './rootKey.ts';

export const gatewayPath = '/v2/gateway/check';
export const gatewayPaths = [gatewayPath, `${gatewayPath}/*`];

/** Headers of a check, in addition to the header with the key. */
export const requestHeaders = {
  rootKey: 'X-Tollgate-Root-Key',
  permissions: 'X-Tollgate-Permissions',
  cost: 'X-Tollgate-Cost',
  limits: 'X-Tollgate-Limits',
  hold: 'X-Tollgate-Hold',
} as const;

/** Headers of the response, in addition to RateLimit, RateLimit-Policy, Retry-After and WWW-Authenticate. */
export const responseHeaders = {
  code: 'X-Tollgate-Code',
  keyId: 'X-Tollgate-Key-Id',
  apiId: 'X-Tollgate-Api-Id',
  externalId: 'X-Tollgate-External-Id',
  holdId: 'X-Tollgate-Hold-Id',
  /** Prefix of the headers with members of the key's metadata. */
  meta: 'X-Tollgate-Meta-',
} as const;

/** Length of an encoded header value. A longer one is left empty. */
const valueCharactersMax = 1024;
/** A longer key does not exist, see KeyString in operations/schemas.ts. */
export const keyCharactersMax = 512;

export interface GatewayOptions {
  store: Store;
  log: Logger;
  /** See PipelineOptions. */
  callLog?: CallLog;
  metrics?: Metrics;
  /** The header with the key: after `Bearer` in Authorization; in any other header the whole value. */
  keyHeader: string;
  /** The header with the address of the end user; '' for none. */
  ipHeader?: string;
  /** The root key of every check. If empty, each request must send one. */
  rootKey: string;
  /** Members of a key's metadata that are returned as headers. */
  meta: readonly string[];
}

type Input = Static<typeof verifyKey.input>;
/** A limit that was checked. `resetAtMs` is on Redis's clock. */
interface CheckedLimit {
  name: string;
  limit: number;
  duration: number;
  exceeded: boolean;
  remaining: number;
  resetAtMs: number;
}
type Headers = (readonly [name: string, value: string])[];

/** Whether it is the error of a root key that Redis does not accept. */
const isOfRootKey = (code: ErrorCode): boolean => code in rootKeyRefusals || code === 'insufficient_permissions';

export function createGateway(options: GatewayOptions): HeaderHandler {
  const gateway = new Gateway(options);
  return (request) => gateway.respond(request);
}

class Gateway {
  readonly #store: Store;
  readonly #metrics: Metrics;
  readonly #calls: Calls;
  readonly #callLog: CallLog;
  readonly #keyHeader: string;
  readonly #isBearer: boolean;
  readonly #ipHeader: string;
  readonly #rootKeys = new RootKeyReader();
  readonly #rootKey: PresentedRootKey | undefined;
  /** Members of the key's metadata, and the names of their headers in the same order. */
  readonly #metaMembers: readonly string[];
  readonly #metaHeaders: readonly string[];
  readonly #checkInput = compileInput(verifyKey.input);

  constructor({ store, log, callLog = new CallLog(log), metrics = new Metrics(), ...settings }: GatewayOptions) {
    const { keyHeader, ipHeader = '', rootKey, meta } = settings;
    this.#store = store;
    this.#metrics = metrics;
    this.#calls = metrics.callsOf('gateway.check', 'decides');
    this.#callLog = callLog;
    this.#keyHeader = keyHeader;
    this.#isBearer = isBearer(keyHeader);
    this.#ipHeader = ipHeader;
    this.#rootKey = rootKey === '' ? undefined : this.#rootKeys.read(rootKey);
    this.#metaMembers = meta;
    this.#metaHeaders = meta.map(metaHeader);
  }

  async respond(request: HeadRequest): Promise<Response> {
    const startedAt = performance.now();
    this.#metrics.begin();
    const response = await this.#check(request).catch((cause) => this.#failed(request, cause, startedAt));
    this.#calls.count(response.status, performance.now() - startedAt);
    return response;
  }

  async #check(request: HeadRequest): Promise<Response> {
    if (!knownMethods.has(request.method)) {
      const error = new ApiError('method_not_allowed', 'This path accepts standard HTTP methods only.');
      return errorResponse(error, request, { allow: 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS' });
    }
    // On a path below gatewayPath, the query string is that of the end user's request, which Envoy passes on.
    if (request.hasQuery && request.path === gatewayPath) {
      const detail = 'The gateway check accepts headers, not query parameters.';
      throw new ApiError('invalid_input', detail, { fields: [] });
    }
    const rootKey = this.#rootKey ?? this.#rootKeys.read(readRootKey(request));
    const key = keyIn(request, this.#keyHeader);
    if (key === undefined) {
      return this.#refuse(request, 'NOT_FOUND', `The header ${this.#keyHeader} holds no key, or is repeated.`, []);
    }
    const ip = endUserAddress(request, this.#ipHeader);
    const input = { ...readInput(request, key), ...(ip && { ip }) };
    this.#checkInput(input);
    const verified: Verified = input.hold
      ? await prepareHeld(input, input.hold, rootKey, this.#store).decide()
      : await prepareVerification(input, rootKey, this.#store).decide();
    if (verified.outcome === 'VALID') return this.#admit(request, verified, input);
    // Only a key with `allowedIps` needs the address.
    if (verified.outcome === 'FORBIDDEN' && ip === '') throw noAddressIn(this.#ipHeader);
    return this.#refuseVerified(request, verified.outcome, verified, input);
  }

  #failed(request: HeadRequest, cause: unknown, startedAt: number): Response {
    // The end user's fault: too many requests at a time, or an API that settles none of them.
    if (cause instanceof TooManyHolds)
      return this.#refuse(request, 'RATE_LIMITED', cause.message, [['Retry-After', '1']]);
    const error = gatewayError(cause, this.#ipHeader);
    this.#callLog.failed('gateway.check', request, error, startedAt);
    return errorResponse(error, request);
  }

  #admit(request: HeadRequest, verified: Verified, input: Input): Response {
    const snapshot = verified.snapshot!;
    const headers = verifiedHeaders(verified, checkedLimits(verified, input));
    // These headers are always present, if necessary with an empty value. So a gateway that sets them on the end user's
    // request replaces every header of the same name that the end user sent.
    headers.push(
      [responseHeaders.code, 'VALID'],
      [responseHeaders.externalId, headerText(snapshot.externalId ?? '')],
      [responseHeaders.holdId, verified.hold?.id ?? ''],
    );
    const values = memberTextsOf(metaOf(snapshot) ?? '{}', this.#metaMembers);
    for (const [index, name] of this.#metaHeaders.entries()) headers.push([name, metaHeaderValue(values[index])]);
    headers.push(notToBeStored);
    return {
      status: 200,
      contentType: 'application/json',
      headers,
      body: `{"meta":{"requestId":"${request.requestId}"},"data":{"valid":true,"code":"VALID","keyId":"${keyIdOf(snapshot)}"}}`,
    };
  }

  #refuseVerified(
    request: HeadRequest,
    outcome: keyof typeof outcomeErrors,
    verified: Verified,
    input: Input,
  ): Response {
    const limits = checkedLimits(verified, input);
    const headers = verifiedHeaders(verified, limits);
    const { detail } = outcomeErrors[outcome];
    if (outcome !== 'RATE_LIMITED') return this.#refuse(request, outcome, detail, headers);
    const exceeded = limits.filter((limit) => limit.exceeded);
    const names = exceeded.map(({ name }) => JSON.stringify(name)).join(', ');
    const costOf = (name: string) => input.ratelimits?.find((given) => given.name === name)?.cost ?? 1;
    // A cost above the limit is never admitted.
    if (exceeded.every(({ name, limit }) => costOf(name) <= limit))
      headers.push(['Retry-After', String(longestWait(exceeded, verified.atMs))]);
    return this.#refuse(request, outcome, `${detail}${names}.`, headers);
  }

  #refuse(request: HeadRequest, outcome: keyof typeof outcomeErrors, detail: string, headers: Headers): Response {
    const response = errorResponse(new ApiError(outcomeErrors[outcome].code, detail), request, {
      challenge: this.#isBearer ? 'Bearer' : `ApiKey header="${this.#keyHeader}"`,
    });
    return { ...response, headers: [...response.headers, ...headers, [responseHeaders.code, outcome], notToBeStored] };
  }
}

/** The headers of every response about a key that exists. */
function verifiedHeaders({ snapshot, atMs }: Verified, limits: readonly CheckedLimit[]): Headers {
  const headers: Headers = limits.length > 0 ? rateLimitHeaders(limits, atMs) : [];
  if (snapshot) headers.push([responseHeaders.keyId, keyIdOf(snapshot)], [responseHeaders.apiId, snapshot.apiId]);
  return headers;
}

const checkedLimits = ({ snapshot, ratelimits }: Verified, input: Input): CheckedLimit[] =>
  ratelimits.map((state) => {
    const { name, limit, duration } = limitOf(state, snapshot!, input.ratelimits);
    return { name, limit, duration, ...state };
  });

/** `plan_name` as `X-Tollgate-Meta-plan-name`: many servers drop headers with an underscore. */
export const metaHeader = (member: string): string => responseHeaders.meta + member.replaceAll('_', '-');

const isBearer = (header: string) => header.toLowerCase() === 'authorization';

/**
 * The key in a header: after `Bearer` in Authorization, else its whole value; undefined for none. A header that is
 * repeated is the end user's fault, like a wrong key: a gateway may pass it on as it is.
 */
export function keyIn({ headers }: HeadRequest, header: string): string | undefined {
  const values = headers.get(header.toLowerCase());
  const value = values?.length === 1 ? values[0]!.trim() : undefined;
  const key = isBearer(header) ? value && bearerToken(value) : value;
  return key && key.length <= keyCharactersMax ? key : undefined;
}

/** Returns the value of a header that must not be repeated; undefined if it is absent or empty. */
function readHeader(request: HeadRequest, name: string): string | undefined {
  const values = request.headers.get(name.toLowerCase());
  if (values === undefined) return undefined;
  if (values.length > 1) throw invalidHeader(name, 'must not be repeated');
  return values[0]!.trim() || undefined;
}

const invalidHeader = (name: string, message: string) =>
  new ApiError('invalid_input', `headers.${name} ${message}.`, { fields: [{ location: `headers.${name}`, message }] });

/** The error for a key with `allowedIps` where this header has no address. */
export const noAddressIn = (header: string) =>
  invalidHeader(header, 'ends with a value that is no IPv4 or IPv6 address, and the key has allowedIps');

function readRootKey(request: HeadRequest): string {
  const rootKey = readHeader(request, requestHeaders.rootKey);
  if (rootKey === undefined) {
    const detail = `There is no root key: the setting GATEWAY_ROOT_KEY and the header ${requestHeaders.rootKey} are both empty.`;
    throw new ApiError('gateway_misconfigured', detail);
  }
  return rootKey;
}

/** Returns the input of keys.verifyKey, to be checked by its schema. */
function readInput(request: HeadRequest, key: string): Input {
  const permissions = readHeader(request, requestHeaders.permissions);
  const cost = readHeader(request, requestHeaders.cost);
  const limits = readHeader(request, requestHeaders.limits);
  const hold = readHeader(request, requestHeaders.hold);
  return {
    key,
    ...(permissions !== undefined && { permissions }),
    ...(cost !== undefined && { credits: { cost: wholeNumber(cost, requestHeaders.cost) } }),
    ...(limits !== undefined && { ratelimits: readLimits(limits) }),
    ...(hold !== undefined && { hold: { ttl: wholeNumber(hold, requestHeaders.hold, 'a time in milliseconds') } }),
  };
}

/** Too many are refused before the schema does, as an error for each item takes long and the root key may be wrong. */
function readLimits(list: string): NonNullable<Input['ratelimits']> {
  const items = list.split(',', limitsMax + 1);
  if (items.length > limitsMax) throw invalidHeader(requestHeaders.limits, `must have at most ${limitsMax} items`);
  return items.map((item) => readLimit(item.trim()));
}

/** Reads `name` or `name=cost`. The name is percent-encoded. */
function readLimit(item: string): { name: string; cost?: number } {
  const [name = '', cost, ...more] = item.split('=', 3);
  if (more.length > 0)
    throw invalidHeader(requestHeaders.limits, 'must be a comma-separated list of `name` or `name=cost`');
  return {
    name: decoded(name.trim()),
    ...(cost !== undefined && { cost: wholeNumber(cost.trim(), requestHeaders.limits) }),
  };
}

function decoded(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    throw invalidHeader(requestHeaders.limits, 'has a name with invalid percent-encoding');
  }
}

function wholeNumber(text: string, header: string, what = 'a cost'): number {
  if (!/^\d{1,15}$/.test(text))
    throw invalidHeader(header, `must hold ${what} that is a whole number of at most 15 digits`);
  return Number(text);
}

/** Turns an error of the operation into one about headers. */
function gatewayError(cause: unknown, ipHeader: string): ApiError {
  const locate = (location: string) => headerOf(location, ipHeader);
  if (!(cause instanceof ApiError)) return internalError(cause);
  if (isOfRootKey(cause.code)) return new ApiError('gateway_misconfigured', cause.message);
  return new ApiError(cause.code, cause.message.replace(/^body\.\S+/, locate), {
    fields: cause.fields.map(({ location, ...field }) => ({ location: locate(location), ...field })),
    cause: cause.cause,
  });
}

function headerOf(location: string, ipHeader: string): string {
  if (location === 'body.ip') return `headers.${ipHeader}`;
  if (location.startsWith('body.permissions')) return `headers.${requestHeaders.permissions}`;
  if (location.startsWith('body.credits')) return `headers.${requestHeaders.cost}`;
  if (location.startsWith('body.hold')) return `headers.${requestHeaders.hold}`;
  if (location.startsWith('body.ratelimits')) return `headers.${requestHeaders.limits}`;
  return location;
}

/** Percent-encodes all but visible ASCII without `%`, `"` and `\`. decodeURIComponent returns the original. */
function headerText(value: string): string {
  const text = value.toWellFormed().replace(/[^!#$&-[\]-~]/gu, encodeURIComponent);
  return text.length <= valueCharactersMax ? text : '';
}

/** The header value for a member of the metadata. A JSON string is decoded; other values stay JSON. */
function metaHeaderValue(json: string | undefined): string {
  if (json === undefined || json === 'null') return '';
  return headerText(json.startsWith('"') ? (JSON.parse(json) as string) : json);
}

/** Largest integer of a structured field (RFC 9651). */
const fieldIntegerMax = 999_999_999_999_999;
const seconds = (ms: number) => Math.ceil(ms / 1000);

/** Seconds from the decision to the reset of a limit, both on Redis's clock: at least one. */
const wait = ({ resetAtMs }: CheckedLimit, atMs: number): number => Math.max(seconds(resetAtMs - atMs), 1);

const longestWait = (limits: readonly CheckedLimit[], atMs: number): number =>
  Math.max(...limits.map((limit) => wait(limit, atMs)));

/** draft-ietf-httpapi-ratelimit-headers-11: lists of the limits' names, each with its parameters. */
function rateLimitHeaders(limits: readonly CheckedLimit[], atMs: number): Headers {
  const integer = (value: number) => Math.min(value, fieldIntegerMax);
  const policies = limits.map(
    ({ name, limit, duration }) => `"${headerText(name)}";q=${integer(limit)};w=${seconds(duration)}`,
  );
  const states = limits.map(
    (limit) => `"${headerText(limit.name)}";r=${integer(limit.remaining)};t=${wait(limit, atMs)}`,
  );
  return [
    ['RateLimit-Policy', policies.join(', ')],
    ['RateLimit', states.join(', ')],
  ];
}
