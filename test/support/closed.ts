import type { TSchema } from 'typebox';

/** The schema of an answer, which then refuses members that it does not name. */
export const closed = (output: TSchema): object =>
  JSON.parse(JSON.stringify(output), (_name, value) =>
    value?.type === 'object' && value.properties && value.additionalProperties === undefined
      ? { ...value, additionalProperties: false }
      : value,
  );
