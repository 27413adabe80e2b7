// src/typebox.ts builds what the package builds, whose types it has.

import TypeBox from 'typebox';
import { expect, test } from 'vitest';
import Type from '../src/typebox.ts';

type Builders = Pick<typeof TypeBox, keyof typeof Type>;

const schemas: Record<keyof Builders, (type: Builders) => object[]> = {
  Array: (type) => [type.Array(type.Integer()), type.Array(type.String(), { maxItems: 3, description: 'List.' })],
  Boolean: (type) => [type.Boolean(), type.Boolean({ default: true })],
  Enum: (type) => [type.Enum(['asc', 'desc']), type.Enum(['asc', 'desc'], { default: 'asc' })],
  Integer: (type) => [type.Integer(), type.Integer({ minimum: 1 })],
  Object: (type) => [
    type.Object({}),
    type.Object({ a: type.String(), b: type.Boolean() }, { additionalProperties: false }),
  ],
  Optional: (type) => {
    const optional = type.Optional(type.String({ minLength: 1 }));
    return [optional, type.Object({ optional }), type.Object({ a: type.String(), optional, c: type.Integer() })];
  },
  Record: (type) => [type.Record(type.String(), type.Unknown(), { maxProperties: 5 })],
  String: (type) => [type.String(), type.String({ pattern: '^a$' })],
  Unknown: (type) => [type.Unknown(), type.Unknown({ description: 'Anything.' })],
  Unsafe: (type) => [type.Unsafe<string | null>({ type: ['string', 'null'] })],
};

test.each(Object.keys(Type) as (keyof Builders)[])('%s', (name) => {
  const text = (type: Builders) => schemas[name](type).map((schema) => JSON.stringify(schema));
  expect(text(Type)).toEqual(text(TypeBox));
});

test('a schema that is made optional is not itself changed', () => {
  const name = Type.String();
  Type.Optional(name);
  expect(Type.Object({ name })).toMatchObject({ required: ['name'] });
});
