import Type, { type Static } from 'typebox';
import type { Prepared } from '../../decide/kind.ts';
import type { LimitState, Verified } from '../../decide/verification.ts';
import type { PresentedRootKey } from '../../domain/caller.ts';
import { packAddress } from '../../domain/ipRange.ts';
import { digestTextOf } from '../../domain/keyString.ts';
import { adHocLimit, limitText } from '../../domain/limit.ts';
import { type PostfixQuery, parsePermissionQuery, QuerySyntaxError } from '../../domain/permissionQuery.ts';
import { lengthOf, storedDuration } from '../../domain/quota.ts';
import { type Outcome, outcomes } from '../../domain/verification.ts';
import { ApiError } from '../../errors.ts';
import { decides, Printed } from '../../operation.ts';
import type { Store } from '../../store.ts';
import { checkNamesOnce, checkPeriod, invalid, requireData, requireQuotas } from '../rules.ts';
import {
  ApiId,
  costMax,
  Debt,
  DescribedFields,
  ExpiresAt,
  Fields,
  Ignored,
  Int,
  IpAddress,
  ignoredLimitFields,
  KeyString,
  Meta,
  may,
  OneOf,
  OptionalFlag,
  optional,
  orPeriod,
  out,
  periodFields,
  Tag,
  Text,
  VerifiedIdentity,
  VerifiedRatelimit,
} from '../schemas.ts';
import { HeldOutput, Hold, holdsSince } from './holdFields.ts';
import { verifiedKeyFields } from './keyFields.ts';

const NamedLimit = Fields({
  name: Text(3, 128, 'Name of a limit of the key or its identity, or of a limit defined by this request.'),
  ...optional({
    cost: Int(
      0,
      'Units to charge, or slots to take. 0 checks whether the count is within the limit without charging.',
      1,
    ),
    limit: Int(
      1,
      'Requires `duration`, and no `type` other than `window`; or `period`, which makes it a quota. Defines a limit for this request only, which replaces the limit of the key with this name. A limit of the identity with this name is still checked, at cost 1 if it has `autoApply`. A key has at most 1000 counters of such limits.',
    ),
    duration: Int([1000, 2_592_000_000], `Duration in milliseconds, at most 30 days. Only with \`limit\`. ${orPeriod}`),
  }),
  ...periodFields,
  id: Ignored(Type.String({ maxLength: 255 })),
  ...ignoredLimitFields,
});

/** Limits that a verification names. */
export const limitsMax = 50;

/** The input of a verification without its key. */
export const verificationFields = optional({
  permissions: Text(1, 1000, 'Permission query, such as `documents.read AND (billing.* OR admin)`.'),
  credits: DescribedFields('Charge of credits.', { cost: Int([0, costMax], 'Credits to charge. Defaults to 1.') }),
  ratelimits: Type.Array(NamedLimit, {
    maxItems: limitsMax,
    description: 'Limits to check in addition to those with `autoApply`, each of another name.',
  }),
  tags: Type.Array(Tag, { maxItems: 20, description: 'Tags to count the verification by in analytics.' }),
  keyspaces: Type.Array(ApiId, {
    maxItems: 5,
    description:
      'apiIds. The key is `NOT_FOUND` unless it is of one of these APIs. An empty list is ignored, as some clients send it.',
  }),
  ip: IpAddress,
  migrationId: Type.String({ maxLength: 256, description: 'Accepted and ignored.' }),
});

const input = Fields({ key: KeyString, ...verificationFields, hold: Type.Optional(Hold) });

/** Which optional fields are present depends on the key and the outcome. */
const output = Type.Object({
  valid: out.flag('True only if `code` is VALID.'),
  code: OneOf(outcomes, 'Outcome of the first check that fails, else VALID.'),
  keyId: may.text('Id of the key.'),
  keyspaceId: may.text('apiId of the key, if the request has `keyspaces`.'),
  enabled: OptionalFlag('False if the key is disabled.'),
  ...verifiedKeyFields,
  expires: Type.Optional(ExpiresAt),
  permissions: may.texts('Direct permissions, and those of its roles and plans.'),
  roles: may.texts('Names of its roles.'),
  identity: Type.Optional(VerifiedIdentity),
  plan: may.object('Plan of the key, or else of its identity.', {
    planId: out.text('Name of the plan.'),
    meta: Type.Optional(Meta),
  }),
  credits: may.int('Balance of the key after charging; that of its identity if the key has none.'),
  debt: Type.Optional(Debt),
  hold: Type.Optional(HeldOutput),
  ratelimits: Type.Optional(Type.Array(VerifiedRatelimit, { description: 'All limits that were checked.' })),
});

/** The checks in the order of docs/contract.md §6. */
const description = `The checks run in this order. The first that fails decides \`code\`. The HTTP status is 200, except for check 6 and where no hold or counter can be made:

1. The key exists, its API is not deleted and one of \`keyspaces\` if these are sent, and the root key may verify keys of that API. Else \`NOT_FOUND\`, with \`valid\` and \`code\` only.
2. The key is enabled. Else \`DISABLED\`.
3. The key has not reached \`expires\`. Else \`EXPIRED\`.
4. The key has no \`allowedIps\`, or one of them contains \`ip\`. Else \`FORBIDDEN\`, also without \`ip\`.
5. The permissions of the key and its roles satisfy the query. Else \`INSUFFICIENT_PERMISSIONS\`.
6. Every limit that the request names without \`limit\` and \`duration\` exists on the key or its identity. Else HTTP 412.
7. No limit would be exceeded, and every concurrency limit has a free slot: those with \`autoApply\`, and those that the request names. Else \`RATE_LIMITED\`.
8. The balance of the key and that of its identity, if there are any, are at least the cost. Else \`USAGE_EXCEEDED\`.

If all pass, the code is \`VALID\`, and \`valid\` is true. Only then are credits and limits charged, once for each open hold with an \`id\`. A verification that takes a slot of a concurrency limit makes a hold, also if \`hold\` is not sent; its end frees the slot. \`keys.explainKey\` returns the result of each check.`;

export const verifyKey = decides({
  name: 'keys.verifyKey',
  summary: 'Verify a key, and charge its credits and limits: all of them or none.',
  description,
  input,
  output,
  errors: ['permissions_query_syntax', 'precondition_failed', 'conflict'],
  needs: { api: ['verify_key'] },

  prepare(input, rootKey, store) {
    const { ratelimits, hold, keyspaces } = input;
    const prepared = hold ? prepareHeld(input, hold, rootKey, store) : prepareVerification(input, rootKey, store);
    const print = ratelimits ? (verified: Verified) => printVerified(verified, ratelimits) : printPlain;
    return new Printed(prepared, keyspaces?.length ? (verified) => withKeyspace(print(verified), verified) : print);
  },
});

/** Prepares a verification with a hold, also for the gateway check. Throws as prepareVerification does. */
export function prepareHeld(
  { key, ...verification }: Static<typeof input>,
  { ttl, onExpiry = 'release', id = '' }: Static<typeof Hold>,
  rootKey: PresentedRootKey,
  store: Store,
): Prepared<Verified> {
  const request = { digest: digestTextOf(key), ...verificationOf(verification) };
  requireData(store, holdsSince, 'hold');
  requireQuotas(verification.ratelimits, store);
  return store.decide.holds.prepare(rootKey, request, { ttlMs: ttl, onExpiry, id });
}

/**
 * Prepares a verification, also for the gateway check. Throws if input breaks a rule that the schema cannot express.
 */
export function prepareVerification(
  { key, ...verification }: Static<typeof input>,
  rootKey: PresentedRootKey,
  store: Store,
): Prepared<Verified> {
  const request = { digest: digestTextOf(key), ...verificationOf(verification) };
  requireQuotas(verification.ratelimits, store);
  return store.decide.verifications.prepare(rootKey, request);
}

/** The request to the store. Throws if the input breaks a rule that the schema cannot express. */
export function verificationOf(given: Omit<Static<typeof input>, 'key'>) {
  const { permissions, credits, ratelimits, tags, keyspaces, ip } = given;
  const query = permissions === undefined ? undefined : parseQuery(permissions);
  if (ratelimits) checkRatelimits(ratelimits);
  return {
    cost: credits?.cost ?? 1,
    query,
    ratelimits: ratelimits?.map(({ cost = 1, ...rest }) => ({ cost, ...rest })),
    tags,
    keyspaces: keyspaces?.length ? keyspaces : undefined,
    ip: ip === undefined ? undefined : parseIp(ip),
  };
}

function parseIp(text: string): string {
  const ip = packAddress(text);
  if (ip === undefined)
    throw invalid('body.ip', 'is not an IPv4 or IPv6 address', 'Send the address without port, brackets and zone.');
  return ip;
}

function parseQuery(permissions: string): PostfixQuery {
  try {
    return parsePermissionQuery(permissions);
  } catch (error) {
    if (!(error instanceof QuerySyntaxError)) throw error;
    const message = `${error.message} at position ${error.position}`;
    throw new ApiError('permissions_query_syntax', `${message}.`, {
      fields: [{ location: 'body.permissions', message }],
      cause: error,
    });
  }
}

type NamedLimits = Static<typeof NamedLimit>[];

function checkRatelimits(ratelimits: NamedLimits) {
  checkNamesOnce(ratelimits);
  for (const [index, { limit, ...rest }] of ratelimits.entries()) {
    const { duration, period, type } = rest;
    // A quota of the key, sent as it was read.
    if (limit === undefined && duration === undefined && type === 'quota') continue;
    if ((limit === undefined) !== (duration === undefined && period === undefined)) {
      const length = type === 'quota' ? 'period' : 'duration';
      const missing = limit === undefined ? 'limit' : length;
      throw invalid(`body.ratelimits[${index}].${missing}`, `is missing: limit and ${length} go together`);
    }
    const given = { ...rest, type: type === 'concurrency' ? undefined : type };
    if (limit !== undefined) checkPeriod(given, `body.ratelimits[${index}]`);
    if (type === 'concurrency' && limit !== undefined) {
      const problem = 'is of a limit of the key or its identity: one with limit and duration is a window';
      throw invalid(`body.ratelimits[${index}].type`, problem, 'Leave out limit and duration, or type.');
    }
  }
}

/** The last reset time as text: many windows are reset at the same time, and printing a large number takes long. */
let lastReset = { ms: 0, text: '0' };

function resetText(ms: number): string {
  if (lastReset.ms !== ms) lastReset = { ms, text: `${ms}` };
  return lastReset.text;
}

const creditsText = (balance: number): string =>
  balance < 0 ? `,"credits":0,"debt":${-balance}` : `,"credits":${balance}`;

/** Prints a response. */
function printVerified(verified: Verified, requested: NamedLimits | undefined): string {
  const text = printDecision(verified, requested);
  const { hold } = verified;
  return hold === undefined ? text : `${text.slice(0, -1)},"hold":${JSON.stringify(hold)}}`;
}

/** Prints a response without its hold. The text of the snapshot was printed when its version was first used. */
function printDecision(
  { outcome, snapshot, credits, identityCredits, ratelimits }: Verified,
  requested: NamedLimits | undefined,
): string {
  if (!snapshot) return `{"valid":false,"code":"${outcome}"}`;
  // Joined from few parts, because each costs time and memory.
  let text = heads[outcome] + snapshot.fields;
  // The identity is the last of the fields.
  if (identityCredits !== undefined) text = `${text.slice(0, -1)}${creditsText(identityCredits)}}`;
  const balance = credits ?? identityCredits;
  if (balance !== undefined) text += creditsText(balance);
  const last = ratelimits.length - 1;
  if (last < 0) return `${text}}`;
  text += ',"ratelimits":[';
  for (let index = 0; index <= last; index++) {
    const { exceeded, remaining, resetAtMs } = ratelimits[index]!;
    text += textOfLimit(ratelimits[index]!, snapshot, requested);
    text += (exceeded ? ',"exceeded":true,"remaining":' : ',"exceeded":false,"remaining":') + remaining;
    text += `,"reset":${resetText(resetAtMs)}`;
    text += index === last ? '}]}' : '},';
  }
  return text;
}

/** Adds the API of the key. Responses to other requests would be 37 bytes longer with it, and no SDK requires it. */
const withKeyspace = (text: string, { snapshot }: Verified): string =>
  snapshot ? `${text.slice(0, -1)},"keyspaceId":${JSON.stringify(snapshot.apiId)}}` : text;

/** Prints the response to a request without limits of its own. */
const printPlain = (verified: Verified): string => printVerified(verified, undefined);

const heads = Object.fromEntries(
  outcomes.map((outcome) => [outcome, `{"valid":${outcome === 'VALID'},"code":"${outcome}",`]),
) as Record<Outcome, string>;

/** Prints a limit as domain/verification.ts does, without its closing brace. */
function textOfLimit(
  { of, index, resetAtMs }: LimitState,
  snapshot: NonNullable<Verified['snapshot']>,
  requested: NamedLimits | undefined,
): string {
  if (of === 'key') return snapshot.keyLimits[index]!.text;
  if (of === 'identity') return snapshot.identityLimits[index]!.text;
  const { name, limit, ...rest } = requested![index]!;
  return limitText(adHocLimit(name, limit!, storedDuration(rest), resetAtMs - 1));
}

/** Returns the limit that a state belongs to. `requested` are the limits of the request. */
export function limitOf(
  { of, index, resetAtMs }: LimitState,
  snapshot: NonNullable<Verified['snapshot']>,
  requested: NamedLimits | undefined,
): { name: string; limit: number; duration: number } {
  if (of === 'request') {
    const { name, limit, ...rest } = requested![index]!;
    return { name, limit: limit!, duration: lengthOf(storedDuration(rest), resetAtMs - 1) };
  }
  const { name, limit, duration } = (of === 'key' ? snapshot.keyLimits : snapshot.identityLimits)[index]!;
  return { name, limit, duration: lengthOf(duration, resetAtMs - 1) };
}
