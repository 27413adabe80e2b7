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
for (const ajv of [fast, thorough]) ajv.addKeyword('documented');

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
      return { location, message: message ?? 'is too large', ...(isBalance && { fix }) };
    }
    default:
      return { location, message: message ?? 'is not valid' };
  }
}

/** A name can be as long as the body. */
const shortened = (name: string): string =>
  name.length > nameCharactersMax ? `${name.slice(0, nameCharactersMax).toWellFormed()}…` : name;
