import type { TSchema } from 'typebox';

/** A copy of a response's schema that refuses unknown members. */
export const closed = (output: TSchema): object =>
  JSON.parse(JSON.stringify(output), (_name, value) =>
    value?.type === 'object' && value.properties && value.additionalProperties === undefined
      ? { ...value, additionalProperties: false }
      : value,
  );
