// Schemas as they are published: in the API reference, and as inputs of tools for a model.

import { absentByNull, type ObjectSchema } from './validate.ts';

/** Any object of a document, and JSON Schema 2020-12. */
export type Json = { [member: string]: unknown };

/**
 * Returns a schema in the form that generators of clients read (docs/clients.md): they take an integer without format
 * as one of 32 bits, and support neither a constant boolean nor a list as a default.
 */
export const published = ({ nullIsAbsent, ...schema }: Json): Json => ({
  ...schema,
  ...(nullIsAbsent === true && { properties: withNulls(schema as unknown as ObjectSchema) }),
  ...(Array.isArray(schema.enum) && { type: schema.type ?? 'string' }),
  ...([schema.type].flat().includes('integer') && { format: 'int64' }),
  ...(schema.type === 'boolean' && { const: undefined }),
  ...(Array.isArray(schema.default) && { default: undefined }),
});

function withNulls(schema: ObjectSchema): ObjectSchema['properties'] {
  const nulls = absentByNull(schema).map((name) => [name, schema.properties[name]!] as const);
  const nullable = nulls.map(([name, { type, ...rest }]) => [
    name,
    { ...rest, type: [type, 'null'].flat() as string[] },
  ]);
  return { ...schema.properties, ...Object.fromEntries(nullable) };
}

/**
 * Returns a schema as it is published, with each of its parts as `publishedPart` returns it. The keywords in
 * `documented` are added: the operation checks these rules itself, with a better message.
 */
export function partsOf<Value extends object>(value: Value, publishedPart: <Part>(part: Part) => Part): Value {
  if (Array.isArray(value)) return value.map(publishedPart) as unknown as Value;
  const { documented, isSecret: _, ...rest } = published(value as Json) as Json & { documented?: object };
  return Object.fromEntries(
    Object.entries({ ...rest, ...documented }).map(([key, member]) => [key, publishedPart(member)]),
  ) as Value;
}

/** Returns a schema as it is published, without references. */
export const publishedWhole = <Value>(value: Value): Value =>
  typeof value === 'object' && value !== null ? partsOf(value, publishedWhole) : value;
