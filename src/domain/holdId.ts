// The ids of holds: `hold_`, the id of the key without `key_`, and the suffix of the hold, which is `.` and a number,
// or `_` and the id that its caller gave.

const form = /^hold_([1-9A-HJ-NP-Za-km-z]{24})(\.\d{1,15}|_[\w.-]{3,64})$/;

export const holdIdOf = (id24: string, suffix: string): string => `hold_${id24}${suffix}`;

/** The parts of the id of a hold; undefined if no hold has it. */
export function parseHoldId(holdId: string): { id24: string; suffix: string } | undefined {
  const [, id24, suffix] = form.exec(holdId) ?? [];
  return suffix === undefined ? undefined : { id24: id24!, suffix };
}
