// The limits of keys and identities. ARCHITECTURE.md has the recipe for another field of them.

/**
 * `window` admits at most `limit` units in any interval of `duration`. `concurrency` has `limit` slots, each of which
 * is taken for at most `duration`.
 */
export const limitTypes = ['window', 'concurrency'] as const;
export type LimitType = (typeof limitTypes)[number];
/** Of limits of type concurrency: a hold has their slots, and lasts as long at most (operations/keys/holdFields.ts). */
export const slotsMax = 10_000;
export const slotDurationMax = 86_400_000;

/**
 * What callers set of a limit besides its name, in the order of responses. src/scripts/layout.ts declares the bytes of
 * each. A boolean is false by default, a type `window`; Redis has both as 0 or 1.
 */
export const limitValues = { limit: 'number', duration: 'number', autoApply: 'boolean', type: 'type' } as const;

/** The bits of the values that are 0 or 1, which are stored together. 4 is free. */
export const limitSwitches = { autoApply: 1, type: 2 } as const;

export type LimitValueName = keyof typeof limitValues;
type ValueTypes = { number: number; boolean: boolean; type: LimitType };
type LimitValues = { [Name in LimitValueName]: ValueTypes[(typeof limitValues)[Name]] };
type RequiredValue = 'limit' | 'duration';

/** As responses have it. */
export interface Ratelimit extends Omit<LimitValues, 'type'> {
  /** '' for a limit that a request defines. */
  id: string;
  name: string;
  /** Absent for a window. */
  type?: 'concurrency';
}

/** As requests have it. */
export type NewLimit = { name: string } & Pick<LimitValues, RequiredValue> & Partial<Omit<LimitValues, RequiredValue>>;

/** The units that a window has counted: the end of each slice, in Unix milliseconds and ascending, and its units. */
export type UsedSlices = [end: number, units: number][];

/** As an export has it. */
export interface ExportedLimit {
  /** Without `rl_`. */
  keptId?: string | undefined;
  used?: UsedSlices | undefined;
}

/** One limit by its name. A null `limit` removes it; absent members are as before. */
export type LimitChange = { name: string; limit: number | null } & {
  [Name in Exclude<LimitValueName, 'limit'>]?: LimitValues[Name] | undefined;
};

/** A limit whose values are those that Redis has; of a reply they may be text. */
export const ratelimitOf = (
  id: string,
  name: string,
  stored: Readonly<Record<LimitValueName, number | string>>,
): Ratelimit => ({
  id,
  name,
  limit: Number(stored.limit),
  duration: Number(stored.duration),
  autoApply: Number(stored.autoApply) === 1,
  ...(Number(stored.type) === 1 && { type: 'concurrency' as const }),
});

/** The values of a limit that are stored together. */
export const switchesOf = (bits: number): Record<keyof typeof limitSwitches, number> => ({
  autoApply: bits & limitSwitches.autoApply ? 1 : 0,
  type: bits & limitSwitches.type ? 1 : 0,
});

/** A limit that a request defines for itself. */
export const adHocLimit = (name: string, limit: number, duration: number): Ratelimit =>
  ratelimitOf('', name, { limit, duration, autoApply: 0, type: 0 });

/** A limit as JSON without its closing brace, so that a response can add its state. */
export function limitText({ id, name, limit, duration, autoApply, type }: Ratelimit): string {
  const text = `{"id":"${id}","name":${JSON.stringify(name)},"limit":${limit},"duration":${duration},"autoApply":${autoApply}`;
  return type ? `${text},"type":"${type}"` : text;
}
