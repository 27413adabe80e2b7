// Rules that a JSON schema cannot express (docs/contract.md §4), and errors that several operations throw.

import type { Action } from '../domain/grants.ts';
import { slotDurationMax, slotsMax } from '../domain/limit.ts';
import { hasLength, type Periodic } from '../domain/quota.ts';
import type { RecordName } from '../domain/records.ts';
import { ApiError, existing, type FieldError, notFound } from '../errors.ts';
import type { Context, ManageContext } from '../operation.ts';
import type { LimitRefusal } from '../records/keys.ts';
import type { Store } from '../store.ts';
import { lastsBound, planLimitsMax, ratelimitsMax, slugLengths } from './schemas.ts';

export const invalid = (location: string, message: string, fix?: string): ApiError =>
  new ApiError('invalid_input', `${location} ${message}.`, {
    fields: [{ location, message, ...(fix && { fix }) } satisfies FieldError],
  });

/** Times that were probably sent in seconds: 2001 to 5138. In milliseconds they are in 1970 to 1973. */
const [secondsMin, secondsMax] = [1e9, 1e11];
const inMilliseconds = 'Send Unix time in milliseconds, not in seconds.';

/** Refuses times in seconds, each by its name in the input. */
export function checkMilliseconds(times: Readonly<Record<string, number | null | undefined>>, at = 'body') {
  for (const [name, time] of Object.entries(times)) {
    if (typeof time !== 'number' || time < secondsMin || time >= secondsMax) continue;
    throw invalid(`${at}.${name}`, 'is a time in the 1970s, as it is read in milliseconds', inMilliseconds);
  }
}

/** The error for a new key that has expired already. */
export const expiredBefore = () =>
  invalid('body.expires', 'is in the past; it is a time in milliseconds', inMilliseconds);

interface CreditFields {
  remaining?: number | null | undefined;
  refill?: { interval: string; refillDay?: number | undefined } | null | undefined;
}

/** `refillDay` requires a monthly refill, and a refill requires a balance. `without` is an owner without one. */
export function checkCredits(
  credits: CreditFields | null | undefined,
  location = 'body.credits',
  without = 'an unlimited key',
) {
  if (!credits?.refill) return;
  if (credits.refill.refillDay !== undefined && credits.refill.interval !== 'monthly') {
    throw invalid(
      `${location}.refill.refillDay`,
      'is allowed for monthly refills only',
      'Leave it out, or set interval to monthly.',
    );
  }
  if (credits.remaining === null) throw nothingToRefill(without, 'Set remaining to a number.', location);
}

/** The error for a refill without a balance. */
export const nothingToRefill = (without: string, fix: string, location = 'body.credits') =>
  invalid(`${location}.refill`, `needs a balance: ${without} has nothing to refill`, fix);

/** Refuses the fields of Unkey that ask for the plaintext of a key. */
export function refusePlaintext(fields: Readonly<Record<string, unknown>>) {
  for (const [name, isAsked] of Object.entries(fields)) {
    if (isAsked) throw invalid(`body.${name}`, 'cannot be true: the plaintext of a key is never stored');
  }
}

/**
 * Refuses slugs that are too short or too long for a permission that would be created. The workspace may have such
 * slugs from an import. Most calls have none, and read nothing.
 */
export async function checkSlugs(
  slugs: readonly string[] | undefined,
  { store, caller }: Pick<ManageContext, 'store' | 'caller'>,
) {
  const { minLength, maxLength } = slugLengths;
  const odd = (slugs ?? []).filter(({ length }) => length < minLength || length > maxLength);
  if (odd.length === 0) return;
  const [unknown] = await store.permissions.unknownOf(caller.workspaceId, odd);
  if (unknown === undefined) return;
  throw invalid(
    `body.permissions[${slugs!.indexOf(unknown)}]`,
    `must be ${minLength} to ${maxLength} characters, unless the workspace has this permission`,
  );
}

export function checkNamesOnce(items: readonly { name: string }[] | null | undefined, location = 'body.ratelimits') {
  const seen = new Set<string>();
  for (const [index, { name }] of (items ?? []).entries()) {
    if (seen.has(name))
      throw invalid(
        `${location}[${index}].name`,
        `repeats ${JSON.stringify(name)}`,
        'Give each limit a name of its own.',
      );
    seen.add(name);
  }
}

interface GivenLimit extends Periodic {
  name: string;
  limit: number | null;
  type?: string | undefined;
  until?: number | null | undefined;
}

const slotsProblem = `must be at most ${slotsMax} for a concurrency limit`;
const slotDurationProblem = `must be at most ${slotDurationMax} for a concurrency limit: holds last no longer`;

/** A hold has the slots of a concurrency limit. */
export function checkSlots({ limit, duration = 0, type }: GivenLimit, location: string) {
  if (type !== 'concurrency') return;
  if (limit !== null && limit > slotsMax) throw invalid(`${location}.limit`, slotsProblem);
  if (duration > slotDurationMax) throw invalid(`${location}.duration`, slotDurationProblem);
}

const periodProblems = {
  length: 'must be left out of a quota, or the length of one of its periods, as it was read',
  none: 'is required: a limit has a duration, or as a quota a period',
  other: 'is only of a quota, which has a period',
};

/**
 * A quota has a period, others a duration. A change of a limit may have neither (keep_type of
 * lua/include/limitList.lua).
 */
export function checkPeriod(
  { duration, type, period, anchor }: Omit<GivenLimit, 'name' | 'limit'>,
  location: string,
  isChange = false,
) {
  const isOther = type !== undefined && type !== 'quota';
  if (period !== undefined) {
    if (isOther) throw invalid(`${location}.period`, periodProblems.other, 'Leave it out, or send type `quota`.');
    if (duration !== undefined && !hasLength(period, duration))
      throw invalid(`${location}.duration`, periodProblems.length);
    return;
  }
  if (anchor !== undefined && (isOther || !isChange || duration !== undefined))
    throw invalid(`${location}.anchor`, periodProblems.other, 'Send its period as well.');
  if (isChange) return;
  if (type === 'quota') throw invalid(`${location}.period`, periodProblems.none);
  if (duration === undefined) throw invalid(`${location}.duration`, periodProblems.none);
}

/** Limits of a key or an identity. */
export function checkLimits(limits: readonly GivenLimit[] | null | undefined, location = 'body.ratelimits') {
  checkNamesOnce(limits, location);
  for (const [index, limit] of (limits ?? []).entries()) {
    checkPeriod(limit, `${location}[${index}]`);
    checkSlots(limit, `${location}[${index}]`);
  }
}

/** The first version of the data that can store concurrency limits. */
export const concurrencySince = 6;
export const hasConcurrency = (limits: readonly { type?: string | undefined }[] | null | undefined): boolean =>
  (limits ?? []).some(({ type }) => type === 'concurrency');

/** Since which version data can store temporary limits and overrides. */
export const temporarySince = 6;
export const hasEnd = (limits: readonly { until?: number | null | undefined }[] | null | undefined): boolean =>
  (limits ?? []).some(({ until }) => until !== undefined && until !== null);

/** Since which version data can store quotas. */
export const quotasSince = 8;
export const hasQuota = (limits: readonly { period?: unknown }[] | null | undefined): boolean =>
  (limits ?? []).some(({ period }) => period !== undefined);
/** Refuses a quota while servers of an earlier release may take it for a window of very long. */
export const requireQuotas = (
  limits: readonly { period?: unknown }[] | undefined,
  store: Pick<Store, 'dataVersion'>,
) => {
  if (hasQuota(limits)) requireData(store, quotasSince, 'a limit with a period');
};

/** Since which version data can store plans. */
export const plansSince = 8;

/** The error for a key or an identity with a plan that would have too many limits of its own. */
export const tooManyOwnLimits = () =>
  new ApiError(
    'precondition_failed',
    `With a plan, a key or an identity has at most ${planLimitsMax} limits of its own.`,
  );

interface LimitFields {
  ratelimit?: GivenLimit | undefined;
  ratelimits?: readonly GivenLimit[] | null | undefined;
}

/**
 * Refuses quotas, concurrency limits and temporary ones while servers of an earlier release may verify keys: they would
 * take the first two for windows, and could not read the last.
 */
export function requireLimits({ ratelimit, ratelimits }: LimitFields, store: Pick<Store, 'dataVersion'>) {
  requireQuotas([...(ratelimits ?? []), ...(ratelimit ? [ratelimit] : [])], store);
  if (hasConcurrency(ratelimits) || (ratelimit && hasConcurrency([ratelimit])))
    requireData(store, concurrencySince, 'a limit of type concurrency');
  if (hasEnd(ratelimits) || (ratelimit && hasEnd([ratelimit])))
    requireData(store, temporarySince, 'a limit with until');
}

/** A single limit to change, and a list that replaces all, contradict each other. */
export function checkOneOfRatelimits({ ratelimit, ratelimits }: LimitFields) {
  if (ratelimit) {
    checkPeriod(ratelimit, 'body.ratelimit', true);
    checkSlots(ratelimit, 'body.ratelimit');
  }
  if (ratelimit === undefined || ratelimits === undefined) return;
  throw invalid('body.ratelimit', 'cannot be sent together with ratelimits', 'Leave one of them out.');
}

const endProblems = {
  ended: 'must be in the future; it is a time in milliseconds',
  too_late: `must be ${lastsBound}`,
};

/** The error for a limit of this location that cannot end at that time. */
export const endRefused = (refused: keyof typeof endProblems, location: string) =>
  invalid(`${location}.until`, endProblems[refused]);

/**
 * The error for a single limit, or a list of them, that was not changed. `at` is the index in the list, '' for none.
 */
export function limitRefused(refused: LimitRefusal, { ratelimit }: LimitFields, at: string) {
  const location = ratelimit ? 'body.ratelimit' : `body.ratelimits[${at}]`;
  const keptType = 'Without type, a limit keeps the type that it has.';
  switch (refused) {
    case 'new_limit':
      return invalid(
        'body.ratelimit.duration',
        `is required: there is no limit ${JSON.stringify(ratelimit?.name)} yet`,
        'Send the duration of the new limit.',
      );
    case 'too_many_limits':
      return invalid('body.ratelimit', `would be one more than the ${ratelimitsMax} limits that are allowed`);
    case 'slots_limit':
      return invalid(`${location}.limit`, slotsProblem, keptType);
    case 'quota_period':
      return invalid(`${location}.period`, periodProblems.none, 'Send its period, such as `month`.');
    case 'quota_duration':
      return invalid(`${location}.duration`, periodProblems.length, 'Send type `window` to make it a window.');
    case 'not_quota':
      return invalid(`${location}.duration`, periodProblems.none);
    case 'slots_duration':
      return invalid(`${location}.duration`, slotDurationProblem, keptType);
    case 'ended':
    case 'too_late':
      return endRefused(refused, location);
    case 'type_of_former':
      return invalid(
        `${location}.type`,
        'must be that of the limit that is in force again after `until`',
        'Leave it out, or change the limit without until first.',
      );
  }
}

/** Checks the size of a metadata object, and returns its text in the request. Returns undefined and null unchanged. */
export function metaText(
  value: object | null | undefined,
  context: Pick<Context, 'text' | 'limits'>,
  ...path: (string | number)[]
): string | null | undefined {
  if (value === null || value === undefined) return value;
  const text = context.text(...path)!;
  const bytes = Buffer.byteLength(text);
  const { metaBytesMax } = context.limits;
  const location = path.reduce<string>(
    (at, step) => (typeof step === 'number' ? `${at}[${step}]` : `${at}.${step}`),
    'body',
  );
  if (bytes > metaBytesMax) throw invalid(location, `has ${bytes} bytes as JSON; the maximum is ${metaBytesMax}`);
  // Empty metadata is not stored, as responses omit it.
  return text === '{}' ? undefined : text;
}

/** Why data of this version cannot store something; undefined if it can. */
export function tooOld({ dataVersion }: Pick<Store, 'dataVersion'>, version: number, what: string): string | undefined {
  const { current } = dataVersion;
  if (current >= version) return undefined;
  return `${what} needs version ${version} of the stored data, and it has version ${current} until all servers are upgraded and it is migrated`;
}

/** Refuses values that data of an earlier version cannot store. */
export function requireData(store: Pick<Store, 'dataVersion'>, version: number, what: string) {
  const problem = tooOld(store, version, what);
  if (problem !== undefined) throw new ApiError('precondition_failed', `${problem}.`);
}

export const lacks = (grant: string) => new ApiError('insufficient_permissions', `The root key lacks ${grant}.`);
/** Refuses callers that lack one of these actions, where an input needs more than its operation. */
export function requireRbac({ grants }: Pick<ManageContext['caller'], 'grants'>, actions: readonly Action<'rbac'>[]) {
  const missing = actions.find((action) => !grants.holds('rbac', '*', action));
  if (missing !== undefined) throw lacks(`rbac.*.${missing}`);
}
/** Does not repeat a key that was sent as an id: after its prefix a key string has at least 22 characters. */
export const apiNotFound = (apiId: string) =>
  new ApiError(
    'api_not_found',
    /^api_\w{1,16}$/.test(apiId) ? `There is no API "${apiId}".` : 'There is no such API. The id of an API is api_….',
  );
/** The error for a change that the store refused because of a record. */
export function refusalError({
  refused,
  name,
}: {
  refused: `${RecordName}_not_found` | 'create_permission';
  /** '' if the caller sent an id only. */
  name: string;
}): ApiError {
  if (refused === 'create_permission') return mayNotCreate(name);
  return notFound(refused.slice(0, -'_not_found'.length) as RecordName, name === '' ? undefined : name);
}
const mayNotCreate = (slug: string) =>
  new ApiError(
    'insufficient_permissions',
    `The permission ${JSON.stringify(slug)} does not exist, and the root key lacks rbac.*.create_permission to create it.`,
  );

/** `load` and `scope` of operations that take a reference to a record: its id or its name. */
export const byReference = <Member extends RecordName, Found extends { id: string }>(
  member: Member,
  find: (store: Store, workspaceId: string, reference: string) => Promise<Found | undefined>,
) => ({
  load: async (input: Record<Member, string>, { store, caller }: ManageContext): Promise<Found> =>
    existing(await find(store, caller.workspaceId, input[member]), member, input[member]),
  scope: (_input: unknown, found: Found): string => found.id,
});
