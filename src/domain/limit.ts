// The limits of keys and identities. ARCHITECTURE.md has the recipe for another field of them.

/**
 * `window` admits at most `limit` units in any interval of `duration`. `concurrency` has `limit` slots, each of which
 * is taken for at most `duration`.
 */
export const limitTypes = ['window', 'concurrency'] as const;
export type LimitType = (typeof limitTypes)[number];
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
/** The bit of a temporary limit, next to them. */
export const temporarySwitch = 4;

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
  type?: 'concurrency';
  /** The end of a temporary limit, Unix milliseconds. Absent for a permanent one. */
  until?: number;
  /** The limit in force again from `until` on. If absent, the limit is removed then. */
  former?: FormerLimit;
}

type FormerLimit = Pick<LimitValues, FormerValueName>;

/** As requests have it. */
export type NewLimit = { name: string; until?: number | null | undefined } & Pick<LimitValues, RequiredValue> &
  Partial<Omit<LimitValues, RequiredValue>>;

/** The units that a window has counted: the end of each slice, in Unix milliseconds and ascending, and its units. */
export type UsedSlices = [end: number, units: number][];

/** As an export has it. */
export interface ExportedLimit {
  /** Without `rl_`. */
  keptId?: string | undefined;
  used?: UsedSlices | undefined;
  /** The former limit of a temporary one, which may have ended; null for none. */
  keptFormer?: Pick<NewLimit, FormerValueName> | null | undefined;
}

/** One limit by its name. A null `limit` removes it; absent members are as before. */
export type LimitChange = { name: string; limit: number | null; until?: number | null | undefined } & {
  [Name in Exclude<LimitValueName, 'limit'>]?: LimitValues[Name] | undefined;
};

/** The end of a limit as Redis has it; of a reply the values may be text. */
export type StoredEnd = Record<'ends' | `former${Capitalize<FormerValueName>}`, number | string>;

/** `formerLimit` is 0 or undefined without one: no limit is 0. */
const endOf = ({ ends, ...former }: StoredEnd): Pick<Ratelimit, 'until' | 'former'> => ({
  until: Number(ends),
  ...(Number(former.formerLimit ?? 0) > 0 && {
    former: {
      limit: Number(former.formerLimit),
      duration: Number(former.formerDuration),
      autoApply: Number(former.formerAutoApply) === 1,
    },
  }),
});

/** A limit whose values are those that Redis has; of a reply they may be text. */
export const ratelimitOf = (
  id: string,
  name: string,
  stored: Readonly<Record<LimitValueName, number | string>> & Partial<StoredEnd>,
): Ratelimit => ({
  id,
  name,
  limit: Number(stored.limit),
  duration: Number(stored.duration),
  autoApply: Number(stored.autoApply) === 1,
  ...(Number(stored.type) === 1 && { type: 'concurrency' as const }),
  ...(stored.ends !== undefined && endOf(stored as StoredEnd)),
});

/** The values of a limit that are stored together. */
export const switchesOf = (bits: number): Record<keyof typeof limitSwitches, number> => ({
  autoApply: bits & limitSwitches.autoApply ? 1 : 0,
  type: bits & limitSwitches.type ? 1 : 0,
});

/** A limit that a request defines for itself. */
export const adHocLimit = (name: string, limit: number, duration: number): Ratelimit =>
  ratelimitOf('', name, { ...defaultValues, limit, duration });

/** A limit in a cached snapshot: what decisions of this process need of it. */
export interface PrintedLimit {
  name: string;
  limit: number;
  duration: number;
  /** Undefined for a window. */
  type: Ratelimit['type'] | undefined;
  /** The limit as JSON without its closing brace: the response continues it with the state of the limit. */
  text: string;
}

export const printLimit = (limit: Ratelimit): PrintedLimit => ({
  name: limit.name,
  limit: limit.limit,
  duration: limit.duration,
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
export function limitText({ id, name, limit, duration, autoApply, type, until, former }: Ratelimit): string {
  let text = `{"id":"${id}","name":${JSON.stringify(name)},"limit":${limit},"duration":${duration},"autoApply":${autoApply}`;
  if (type) text += `,"type":"${type}"`;
  if (until !== undefined) text += `,"until":${until}`;
  return former ? `${text},"former":${JSON.stringify(former)}` : text;
}
