// Checks input against the schema of an operation. Valid input costs one compiled check. Invalid input of a small body
// is checked again by a validator that continues after the first failure, to name every field. A megabyte of `{}` has
// 1.4 million failures, so for a larger body the error names only the first one.

import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv';
import type { TSchema } from 'typebox';
import { ApiError, type FieldError } from '../errors.ts';

const fieldsMax = 20;
/** Maximum length of an unknown field's name in an error. */
const nameCharactersMax = 100;
/** All errors are listed for bodies of at most this size. */
export const explainedBytesMax = 8192;
/**
 * Schemas are not checked at every start: to compile the schema of schemas took a tenth of it. A test checks all of
 * them.
 */
const options = { strict: true, allowUnionTypes: true, meta: false, validateSchema: false };
const fast = new Ajv(options);
const thorough = new Ajv({ ...options, allErrors: true });
for (const ajv of [fast, thorough]) {
  ajv.addVocabulary(['documented', 'isSecret']);
  // Runs before the fields are checked.
  const place = { keyword: 'nullIsAbsent', type: 'object', before: 'properties' } as const;
  ajv.addKeyword({
    ...place,
    modifying: true,
    errors: false,
    compile: (_, schema) => removing(schema as ObjectSchema),
  });
}

export interface ObjectSchema {
  properties: Record<string, { type?: string | string[] }>;
  required?: string[];
}

/** The fields of an object with `nullIsAbsent` in which null means that they are absent. */
export const absentByNull = ({ properties, required = [] }: ObjectSchema): string[] =>
  Object.keys(properties).filter((name) => !required.includes(name) && !properties[name]!.type?.includes('null'));

function removing(schema: ObjectSchema) {
  const names = absentByNull(schema);
  return (fields: Record<string, unknown>) => {
    for (const name of names) if (fields[name] === null) delete fields[name];
    return true;
  };
}

export type CheckInput = (input: unknown, bodyBytes?: number) => void;

/**
 * Returns a check that throws `invalid_input`. The error names up to twenty fields of a small body, one of a larger
 * body.
 */
export function compileInput(schema: TSchema): CheckInput {
  const accepts = fast.compile(schema);
  let explains: ValidateFunction | undefined;
  return (input, bodyBytes = 0) => {
    if (accepts(input)) return;
    let { errors } = accepts;
    if (bodyBytes <= explainedBytesMax) {
      explains ??= thorough.compile(schema);
      explains(input);
      ({ errors } = explains);
    }
    const fields = (errors ?? []).slice(0, fieldsMax).map(fieldError);
    const [first] = fields;
    throw new ApiError('invalid_input', first ? `${first.location} ${first.message}.` : 'The body is not valid.', {
      fields,
    });
  };
}

/** The same, but compiled by the first check. Compiling the schemas of all operations takes 0.2 s. */
export function compileInputLater(schema: TSchema): CheckInput {
  let check: CheckInput | undefined;
  return (input, bodyBytes) => {
    check ??= compileInput(schema);
    check(input, bodyBytes);
  };
}

/** Converts `/ratelimits/0/name` to `body.ratelimits[0].name`. */
const locationOf = (pointer: string): string =>
  pointer
    .split('/')
    .slice(1)
    .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce((location, step) => location + (/^\d+$/.test(step) ? `[${step}]` : `.${step}`), 'body');

function fieldError({ keyword, instancePath, params, message }: ErrorObject): FieldError {
  const location = locationOf(instancePath);
  switch (keyword) {
    case 'additionalProperties':
      return {
        location: `${location}.${shortened(params.additionalProperty)}`,
        message: 'is not a field of this operation',
        fix: 'Leave it out.',
      };
    case 'required':
      return { location: `${location}.${params.missingProperty}`, message: 'is required' };
    case 'enum':
      return { location, message: `must be one of ${params.allowedValues.join(', ')}` };
    case 'type':
      return { location, message: `must be ${[params.type].flat().join(' or ')}` };
    case 'maximum': {
      const isBalance = params.limit === Number.MAX_SAFE_INTEGER && location.endsWith('.remaining');
      const fix = 'For an unlimited key, send null or leave credits out.';
      return { location, message: `must be at most ${params.limit}`, ...(isBalance && { fix }) };
    }
    default:
      return { location, message: words[keyword]?.(params) ?? message ?? 'is not valid' };
  }
}

const count = (limit: number, noun: string) => `${limit} ${noun}${limit === 1 ? '' : 's'}`;

/** Messages for other keywords of JSON Schema, by what the caller has to send. */
const words: Readonly<Record<string, (params: ErrorObject['params']) => string>> = {
  minLength: ({ limit }) => `must have at least ${count(limit, 'character')}`,
  maxLength: ({ limit }) => `must have at most ${count(limit, 'character')}`,
  minItems: ({ limit }) => `must have at least ${count(limit, 'item')}`,
  maxItems: ({ limit }) => `must have at most ${count(limit, 'item')}`,
  minProperties: ({ limit }) => `must have at least ${count(limit, 'field')}`,
  maxProperties: ({ limit }) => `must have at most ${count(limit, 'field')}`,
  minimum: ({ limit }) => `must be at least ${limit}`,
  pattern: ({ pattern }) => describePattern(pattern),
};

/** A pattern in words: `^[a-zA-Z0-9_.-]+$` as "letters, digits, _ . -". */
function describePattern(pattern: string): string {
  const [, prefix] = /^\^(\w+_)\[/.exec(pattern) ?? [];
  if (prefix !== undefined) return `must be an id that begins with ${prefix}`;
  const [, set] = /^\^\[([^\]]+)\][+*]\$$/.exec(pattern) ?? [];
  if (set === undefined) return 'must have the form of this field';
  const classes = [/a-zA-Z|A-Za-z/.test(set) && 'letters', set.includes('0-9') && 'digits'].filter(Boolean);
  const others = set
    .replace(/a-z|A-Z|0-9/g, '')
    .split('')
    .join(' ');
  return `must have only ${[...classes, others].filter(Boolean).join(', ')}`;
}

/** A name can be as long as the body. */
const shortened = (name: string): string =>
  name.length > nameCharactersMax ? `${name.slice(0, nameCharactersMax).toWellFormed()}…` : name;
