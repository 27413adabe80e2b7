// The limits of keys and identities. ARCHITECTURE.md has the recipe for another field of them.

/**
 * What callers set of a limit besides its name, in the order of responses. src/scripts/layout.ts declares the bytes of
 * each. A boolean is false by default, and Redis has it as 0 or 1.
 */
export const limitValues = { limit: 'number', duration: 'number', autoApply: 'boolean' } as const;

export type LimitValueName = keyof typeof limitValues;
type LimitValues = { [Name in LimitValueName]: (typeof limitValues)[Name] extends 'boolean' ? boolean : number };
type RequiredValue = 'limit' | 'duration';

/** As responses have it. */
export interface Ratelimit extends LimitValues {
  /** '' for a limit that a request defines. */
  id: string;
  name: string;
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

const names = Object.keys(limitValues) as LimitValueName[];

/** A limit whose values are those that Redis has; of a reply they may be text. */
export function ratelimitOf(
  id: string,
  name: string,
  stored: Readonly<Record<LimitValueName, number | string>>,
): Ratelimit {
  const limit: Record<string, unknown> = { id, name };
  for (const value of names) {
    const number = Number(stored[value]);
    limit[value] = limitValues[value] === 'boolean' ? number === 1 : number;
  }
  return limit as unknown as Ratelimit;
}

/** A limit that a request defines for itself. */
export const adHocLimit = (name: string, limit: number, duration: number): Ratelimit => ({
  ...noValues,
  id: '',
  name,
  limit,
  duration,
});
const zeros = Object.fromEntries(names.map((value) => [value, 0])) as Record<LimitValueName, number>;
const noValues = ratelimitOf('', '', zeros);

/** A limit as JSON without its closing brace, so that a response can add its state. */
export function limitText(limit: Ratelimit): string {
  let text = `{"id":"${limit.id}","name":${JSON.stringify(limit.name)}`;
  for (const value of names) text += `,"${value}":${limit[value]}`;
  return text;
}
