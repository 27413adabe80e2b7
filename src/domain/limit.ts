// The limits of keys and identities. ARCHITECTURE.md has the recipe for another field of them.

import { lengthOf, type Periodic, type Quota, quotaOf, storedDuration } from './quota.ts';

/**
 * `window` admits at most `limit` units in any interval of `duration`. `concurrency` has `limit` slots, each of which
 * is taken for at most `duration`. `quota` admits `limit` units in each period; it is stored as a window whose duration
 * is its code (quota.ts).
 */
export const limitTypes = ['window', 'concurrency', 'quota'] as const;
type LimitType = (typeof limitTypes)[number];
/** Bounds of concurrency limits: a hold has their slots, and lasts as long at most (operations/keys/holdFields.ts). */
export const slotsMax = 10_000;
export const slotDurationMax = 86_400_000;
/** The longest time from now until a temporary limit or override ends. */
export const lastsMax = 366 * 86_400_000;

/**
 * The values of a limit that callers set, besides its name, in the order of responses. src/scripts/layout.ts declares
 * the bytes of each. `default`, as Redis has it, is that of a limit without the value; one without a default is
 * required. Redis has a boolean and a type as 0 or 1, and 0 is `window`.
 */
export const limitValues = {
  limit: { kind: 'number' },
  duration: { kind: 'number' },
  autoApply: { kind: 'boolean', default: 0 },
  type: { kind: 'type', default: 0 },
} as const satisfies Record<string, { kind: 'number' | 'boolean' | 'type'; default?: number }>;

/** The bits of the values that are 0 or 1, which are stored together. */
export const limitSwitches = { autoApply: 1, type: 2 } as const;
/** The bits of a temporary limit, of a quota and of a limit of a plan, next to them. */
export const temporarySwitch = 4;
export const quotaSwitch = 8;
export const planSwitch = 16;

export type LimitValueName = keyof typeof limitValues;
type ValueTypes = { number: number; boolean: boolean; type: LimitType };
type LimitValues = { [Name in LimitValueName]: ValueTypes[(typeof limitValues)[Name]['kind']] };
type RequiredValue = 'limit' | 'duration';
/** The values that a temporary limit keeps of the permanent one that it replaced. Both have the same name and type. */
export type FormerValueName = Exclude<LimitValueName, 'type'>;

/** The values of a limit that has only those that are required; these are 0. */
export const defaultValues = Object.fromEntries(
  Object.entries(limitValues).map(([name, value]) => [name, 'default' in value ? value.default : 0]),
) as Record<LimitValueName, number>;

/** As responses have it. */
export interface Ratelimit extends Omit<LimitValues, 'type'> {
  /** '' for a limit that a request defines. */
  id: string;
  name: string;
  /** Absent for a window. */
  type?: Exclude<LimitType, 'window'>;
  /** Of a quota. Its `duration` is the length of its present period. */
  period?: Quota['period'];
  anchor?: number;
  /** The end of a temporary limit, Unix milliseconds. Absent for a permanent one. */
  until?: number;
  /** The limit in force again from `until` on. If absent, the limit is removed then. */
  former?: FormerLimit;
  /** It is one of a plan of its owner, in the snapshot of a key. */
  ofPlan?: true;
}

type FormerLimit = Pick<LimitValues, FormerValueName> & Partial<Quota>;

/** As requests have it. */
export type NewLimit = { name: string; until?: number | null | undefined } & Periodic &
  Pick<LimitValues, 'limit'> &
  Partial<Omit<LimitValues, RequiredValue>>;

/** The units that a window has counted: the end of each slice, in Unix milliseconds and ascending, and its units. */
export type UsedSlices = [end: number, units: number][];

/** As an export has it. */
export interface ExportedLimit {
  /** Without `rl_`. */
  keptId?: string | undefined;
  used?: UsedSlices | undefined;
  /** The former limit of a temporary one, which may have ended; null for none. */
  keptFormer?: Pick<NewLimit, FormerValueName | keyof Quota> | null | undefined;
}

/** One limit by its name. A null `limit` removes it; absent members are as before. */
export type LimitChange = { name: string; limit: number | null; until?: number | null | undefined } & Periodic & {
    [Name in Exclude<LimitValueName, RequiredValue>]?: LimitValues[Name] | undefined;
  };

/** The end of a limit as Redis has it; of a reply the values may be text. */
export type StoredEnd = Record<'ends' | `former${Capitalize<FormerValueName>}`, number | string>;

/** A limit as responses have it: a quota with the length of its period at a time. */
export function presented<Amount extends Periodic & { former?: Periodic }>(limit: Amount, atMs: number): Amount {
  if (limit.period === undefined) return limit;
  const { former } = limit;
  return {
    ...limit,
    duration: lengthOf(storedDuration(limit), atMs),
    ...(former && { former: presented(former, atMs) }),
  };
}

/** The same of a stored duration. */
export const presentedDuration = (duration: number, atMs: number): { duration: number } & Partial<Quota> => ({
  duration: lengthOf(duration, atMs),
  ...quotaOf(duration),
});

/** `formerLimit` is 0 or undefined without one: no limit is 0. */
const endOf = ({ ends, ...former }: StoredEnd, atMs: number): Pick<Ratelimit, 'until' | 'former'> => ({
  until: Number(ends),
  ...(Number(former.formerLimit ?? 0) > 0 && {
    former: {
      limit: Number(former.formerLimit),
      ...presentedDuration(Number(former.formerDuration), atMs),
      autoApply: Number(former.formerAutoApply) === 1,
    },
  }),
});

/** A limit whose values are those that Redis has at a time; of a reply they may be text. */
export function ratelimitOf(
  id: string,
  name: string,
  stored: Readonly<Record<LimitValueName, number | string>> & Partial<StoredEnd>,
  atMs: number,
): Ratelimit {
  const { duration, ...quota } = presentedDuration(Number(stored.duration), atMs);
  const type = Number(stored.type) === 1 ? 'concurrency' : quota.period && 'quota';
  return {
    id,
    name,
    limit: Number(stored.limit),
    duration,
    autoApply: Number(stored.autoApply) === 1,
    ...(type && { type }),
    ...quota,
    ...(stored.ends !== undefined && endOf(stored as StoredEnd, atMs)),
  };
}

/** The values of a limit that are stored together. */
export const switchesOf = (bits: number): Record<keyof typeof limitSwitches, number> => ({
  autoApply: bits & limitSwitches.autoApply ? 1 : 0,
  type: bits & limitSwitches.type ? 1 : 0,
});

/** A limit that a request defines for itself. `duration` is that which is stored. */
export const adHocLimit = (name: string, limit: number, duration: number, atMs: number): Ratelimit =>
  ratelimitOf('', name, { ...defaultValues, limit, duration }, atMs);

/** A limit in a cached snapshot: what decisions of this process need of it. */
export interface PrintedLimit {
  name: string;
  limit: number;
  /** That which is stored. */
  duration: number;
  /** Undefined for a window. */
  type: Ratelimit['type'] | undefined;
  /** The limit as JSON without its closing brace: the response continues it with the state of the limit. */
  text: string;
}

export const printLimit = (limit: Ratelimit): PrintedLimit => ({
  name: limit.name,
  limit: limit.limit,
  duration: storedDuration(limit),
  type: limit.type,
  text: limitText(limit),
});

/**
 * The units that a verification charges to a limit of the key or its identity, as in
 * lua/decide/verification/charge.lua.
 */
export const chargedUnits = (
  { name }: PrintedLimit,
  requested: readonly { name: string; cost: number; limit?: number }[] | undefined,
): number => requested?.find((each) => each.name === name && each.limit === undefined)?.cost ?? 1;

/** A limit as JSON without its closing brace, so that a response can add its state. */
export function limitText(ratelimit: Ratelimit): string {
  const { id, name, limit, duration, autoApply, type, period, anchor, until, former } = ratelimit;
  let text = `{"id":"${id}","name":${JSON.stringify(name)},"limit":${limit},"duration":${duration},"autoApply":${autoApply}`;
  if (type) text += `,"type":"${type}"`;
  if (period) text += `,"period":"${period}","anchor":${anchor}`;
  if (until !== undefined) text += `,"until":${until}`;
  return former ? `${text},"former":${JSON.stringify(former)}` : text;
}
