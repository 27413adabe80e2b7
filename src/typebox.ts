// TypeBox's builders for the kinds of schema that Tollgate uses. Only its types come from the package: loading its 370 modules
// took a third of the processor time of a server's start.

import type { Type as TypeBox } from 'typebox';

type Schema = object & { '~optional'?: true };
type Options = object | undefined;

const builders = {
  Array: (items: Schema, options: Options) => ({ type: 'array', items, ...options }),
  Boolean: (options: Options) => ({ type: 'boolean', ...options }),
  Enum: (values: readonly unknown[], options: Options) => ({ enum: values, ...options }),
  Integer: (options: Options) => ({ type: 'integer', ...options }),
  Object(properties: Record<string, Schema>, options: Options) {
    const required = Object.keys(properties).filter((name) => !properties[name]!['~optional']);
    return { type: 'object', ...(required.length > 0 && { required }), properties, ...options };
  },
  /** The mark is not enumerable, because it is no keyword of JSON Schema. */
  Optional: (schema: Schema) => Object.defineProperty({ ...schema }, '~optional', { value: true }),
  /** The keys are any strings. */
  Record: (_keys: Schema, values: Schema, options: Options) => ({
    type: 'object',
    patternProperties: { '^.*$': values },
    ...options,
  }),
  String: (options: Options) => ({ type: 'string', ...options }),
  Unknown: (options: Options) => ({ ...options }),
  Unsafe: (schema: Schema) => schema,
};

const Type = builders as unknown as Pick<typeof TypeBox, keyof typeof builders>;
export default Type;
