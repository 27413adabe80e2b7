// The values of a key that its record stores as text, converted as `keyRecordFields` of layout.ts declares.

import { keyRecordFields, type TextForm } from '../scripts/layout.ts';

type Declared = typeof keyRecordFields;
type Valued = { [Name in keyof Declared]: Declared[Name] extends { value: object } ? Name : never }[keyof Declared];
type With<Property extends 'given' | 'updated' | 'display'> = {
  [Name in Valued]: Declared[Name][Property] extends true ? Name : never;
}[Valued];
type Given<Name extends Valued> = Declared[Name]['value'] extends TextForm<infer Value, unknown> ? Value : never;
type Read<Name extends Valued> = Declared[Name]['value'] extends TextForm<never, infer Value> ? Value : never;

/** In a new key. */
export type GivenValues = { [Name in With<'given'>]?: Given<Name> | undefined };
/** In a change: null removes a value. */
export type UpdatedValues = { [Name in With<'updated'>]?: Given<Name> | null | undefined };
/** In what the store returns. */
type DisplayedValues = { [Name in With<'display'>]?: Read<Name> };

const forms = Object.entries(keyRecordFields).flatMap(([name, field]) =>
  'value' in field ? [[name, field.value as TextForm<unknown, unknown>] as const] : [],
);

/** The given values as text, except null. */
export function textsOf(values: GivenValues | UpdatedValues): Record<string, string> {
  const texts: Record<string, string> = {};
  for (const [name, { write }] of forms) {
    const value: unknown = values[name as keyof typeof values];
    if (value !== undefined && value !== null) texts[name] = write(value);
  }
  return texts;
}

/** The reverse of textsOf, of the fields of a reply. */
export function valuesOf(reply: object): DisplayedValues {
  const values: Record<string, unknown> = {};
  for (const [name, { read }] of forms) {
    const text = (reply as Record<string, string | undefined>)[name];
    if (text !== undefined) values[name] = read(text);
  }
  return values;
}
