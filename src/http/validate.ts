// Input against an operation's own schema. A good input costs one compiled check; a bad one is checked again by a
// validator that goes on after the first failure, to name every field.

import { Ajv, type ErrorObject, type ValidateFunction } from 'ajv';
import type { TSchema } from 'typebox';
import { ApiError, type FieldError } from '../errors.ts';

const fieldsMax = 20;
const fast = new Ajv({ strict: true, allowUnionTypes: true });
const thorough = new Ajv({ strict: true, allowUnionTypes: true, allErrors: true });
for (const ajv of [fast, thorough]) ajv.addKeyword('documented');

/** Answers a check that throws `invalid_input`, naming up to twenty failed fields. */
export function compileInput(schema: TSchema): (input: unknown) => void {
  const accepts = fast.compile(schema);
  let explains: ValidateFunction | undefined;
  return (input) => {
    if (accepts(input)) return;
    explains ??= thorough.compile(schema);
    explains(input);
    const fields = (explains.errors ?? []).slice(0, fieldsMax).map(fieldError);
    const [first] = fields;
    throw new ApiError('invalid_input', first ? `${first.location} ${first.message}.` : 'The body is not valid.', {
      fields,
    });
  };
}

/** `/ratelimits/0/name` as `body.ratelimits[0].name`. */
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
        location: `${location}.${params.additionalProperty}`,
        message: 'is not a field of this operation',
        fix: 'Leave it out.',
      };
    case 'required':
      return { location: `${location}.${params.missingProperty}`, message: 'is required' };
    case 'enum':
      return { location, message: `must be one of ${params.allowedValues.join(', ')}` };
    case 'type':
      return { location, message: `must be ${[params.type].flat().join(' or ')}` };
    default:
      return { location, message: message ?? 'is not valid' };
  }
}
