// Token introspection (RFC 7662): what a gateway or a library of OAuth asks about a token, which here is a key. The key
// is decided as by keys.verifyKey with a cost of 1, and nothing is charged, counted or changed. So limits and credits
// that are used up do not make it inactive; `code` has the outcome. Errors have the form of RFC 6749.

import querystring from 'node:querystring';
import { digestTextOf } from '../domain/keyString.ts';
import { ApiError, rootKeyRefusals } from '../errors.ts';
import type { Metrics } from '../metrics.ts';
import { decidedBy } from '../operations/keys/explainKey.ts';
import type { Store } from '../store.ts';
import type { CallLog } from './callLog.ts';
import { ConcurrencyLimiter } from './concurrencyLimiter.ts';
import { errorResponse, internalError } from './errorResponse.ts';
import { keyCharactersMax } from './gateway.ts';
import { type Handler, jsonType, notToBeStored, type Request, type Response } from './message.ts';
import { bearerToken, RootKeyReader } from './rootKey.ts';

export const introspectPath = '/v2/introspect';

/** A longer body is parsed after its root key was accepted only. A key is shorter by far. */
const formBytesMax = 32_767;
/** Codes of a key that is good, though this request might be refused. `precondition_failed`: it has too many holds. */
const activeCodes: ReadonlySet<string> = new Set(['VALID', 'RATE_LIMITED', 'USAGE_EXCEEDED', 'precondition_failed']);
const unknownKey = { active: false, code: 'NOT_FOUND' };

export function createIntrospection(store: Store, callLog: CallLog, metrics: Metrics, max: number): Handler {
  const calls = metrics.callsOf('introspect');
  const rootKeys = new RootKeyReader();
  // A key may have megabytes of permissions. Callers whose root key was not accepted recently share a limit.
  const limiter = new ConcurrencyLimiter({ atOnce: 8, max, waitMs: 7000, restMsMax: 50 });
  const ofUnknown = new ConcurrencyLimiter({ atOnce: 64, max, waitMs: 7000 });

  async function introspect(request: Request): Promise<Response> {
    const rootKey = rootKeys.read(readHead(request));
    const key = tokenOf(request.body as Buffer);
    const { workspaceId } = rootKey;
    const read = async () => {
      const caller = await store.rootKeys.authenticate(rootKey);
      if ('refused' in caller) throw rootKeyRefusals[caller.refused];
      const { grants } = caller;
      if (!grants.holdsAny('api', 'verify_key'))
        throw new ApiError('insufficient_permissions', 'The root key lacks api.*.verify_key.');
      if (key.length > keyCharactersMax) return unknownKey;
      const found = await store.explain(workspaceId, { digest: digestTextOf(key) }, { cost: 1 });
      return found.status === 'found' && grants.holds('api', found.apiId, 'verify_key') ? answerOf(found) : unknownKey;
    };
    const isKnown = store.rootKeys.wasAccepted(rootKey);
    return json(200, await (isKnown ? limiter.run(workspaceId, read) : ofUnknown.run('', read)));
  }

  return async (request) => {
    const startedAt = performance.now();
    metrics.begin();
    const response = await introspect(request).catch((cause) => {
      const error = cause instanceof ApiError ? cause : internalError(cause);
      callLog.failed('introspect', request, error, startedAt);
      return failed(request, error);
    });
    calls.count(response.status, performance.now() - startedAt);
    return response;
  };
}

/** Members that are undefined are absent from the response. */
async function answerOf(found: Parameters<typeof decidedBy>[0]) {
  const [code] = decidedBy(found);
  // The caller gets this code from keys.verifyKey, too, so it discloses nothing.
  if (!activeCodes.has(code)) return { active: false, code };
  const { keyId, apiId, externalId, createdAt, expires } = found;
  const names = { client_id: keyId, jti: keyId, sub: externalId, aud: apiId };
  const scope = (await found.slugs()).join(' ') || undefined;
  return { active: true, token_type: 'Bearer', ...names, scope, iat: seconds(createdAt), exp: seconds(expires), code };
}

const seconds = (ms: number | undefined) => ms && Math.floor(ms / 1000);

/** Checks everything before the body, in the order of docs/contract.md §1. Returns the string of the root key. */
function readHead({ method, authorization, contentType, contentEncoding = '', body, hasQuery }: Request): string {
  if (method !== 'POST') throw new ApiError('method_not_allowed', 'This path accepts POST only.');
  const rootKey = clientSecret(authorization);
  if (!rootKey) throw new ApiError('unauthorized', 'Authorization must be Basic or Bearer with a root key.');
  if (!/^application\/x-www-form-urlencoded *(;.*)?$/i.test(contentType) || !/^(identity)?$/i.test(contentEncoding))
    throw new ApiError('unsupported_media_type', 'The body must be application/x-www-form-urlencoded, uncompressed.');
  if (body === 'no_room') throw new ApiError('too_many_requests', 'The server is receiving too many large bodies.');
  if (body === 'too_large' || body.length > formBytesMax)
    throw new ApiError('body_too_large', `The body has more than ${formBytesMax} bytes.`);
  if (hasQuery) throw new ApiError('invalid_input', 'Parameters must be in the body, not in the URL.');
  return rootKey;
}

/** The password of Basic (RFC 6749, section 2.3.1), or the token after Bearer; undefined for any other header. */
function clientSecret(authorization: string): string | undefined {
  const basic = /^Basic +([a-z\d+/]+=*) *$/i.exec(authorization)?.[1];
  if (basic === undefined) return bearerToken(authorization);
  return querystring.unescape(/^[^:]*:(.*)$/s.exec(Buffer.from(basic, 'base64').toString())?.[1] ?? '');
}

function tokenOf(body: Buffer): string {
  const [token, ...others] = new URLSearchParams(body.toString()).getAll('token');
  if (token && others.length === 0) return token;
  throw new ApiError('invalid_input', `The parameter token is ${others.length > 0 ? 'repeated' : 'missing or empty'}.`);
}

const errorNames: Record<number, string> = { 401: 'invalid_client', 403: 'insufficient_scope', 500: 'server_error' };
/** The error of RFC 6749 or RFC 6750 for a status. */
export const errorName = (status: number): string =>
  errorNames[status] ?? (status < 429 ? 'invalid_request' : 'temporarily_unavailable');

function json(status: number, data: object, headers: Response['headers'] = []): Response {
  return { status, contentType: jsonType, headers: [...headers, notToBeStored], body: JSON.stringify(data) };
}

/** For OAuth a root key that is disabled or has expired is a client that cannot be authenticated: 401. */
function failed(request: Request, error: ApiError): Response {
  const known = error.code in rootKeyRefusals ? new ApiError('unauthorized', error.message) : error;
  const challenge = `${/^Bearer\b/i.test(request.authorization) ? 'Bearer' : 'Basic'} realm="Tollgate"`;
  const allow = error.code === 'method_not_allowed' ? { allow: 'POST' } : {};
  const { status, headers } = errorResponse(known, request, { challenge, ...allow });
  // RFC 6749 allows no other characters.
  const error_description = error.message.replace(/[^ !#-[\]-~]/g, "'");
  return json(status, { error: errorName(status), error_description }, headers);
}
