import { Ajv } from 'ajv';
import Type from 'typebox';
import { describe, expect, test } from 'vitest';
import { ApiError, type FieldError } from '../../src/errors.ts';
import { compileInput, explainedBytesMax } from '../../src/input/validate.ts';
import { operations } from '../../src/operations/index.ts';
import { ExternalId, Fields, Int, Nullable } from '../../src/operations/schemas.ts';

const check = compileInput(
  Fields({
    name: Type.String({ minLength: 1, maxLength: 3 }),
    count: Type.Optional(Int(0)),
    externalId: Type.Optional(ExternalId),
    expires: Type.Optional(Nullable(Int(0))),
    items: Type.Optional(
      Type.Array(Fields({ interval: Type.Enum(['daily', 'monthly']), on: Type.Optional(Type.Boolean()) }), {
        maxItems: 2,
      }),
    ),
    free: Type.Optional(Type.Record(Type.String(), Type.Unknown(), { maxProperties: 2 })),
  }),
);

function refusal(input: unknown): ApiError {
  try {
    check(input);
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error('accepted');
}

test.each(operations.map((operation) => [operation.name, operation] as const))(
  '%s has valid schemas',
  (_, operation) => {
    const ajv = new Ajv({ strict: true, allowUnionTypes: true }).addVocabulary([
      'documented',
      'isSecret',
      'nullIsAbsent',
    ]);
    for (const schema of [operation.input, operation.output])
      expect([ajv.validateSchema(schema), ajv.errors]).toEqual([true, null]);
  },
);

test('no message has a regular expression, or the words of the validator', () => {
  const input = {
    permissions: 'a b!',
    namespaceId: 'x',
    hash: '^',
    list: [1, 1, 1],
    few: [],
    fields: {},
    number: -1,
    large: 1e300,
  };
  const explain = compileInput(
    Fields({
      permissions: Type.String({ pattern: '^[a-zA-Z0-9_:.*-]+$' }),
      namespaceId: Type.String({ pattern: '^rlns_[1-9A-HJ-NP-Za-km-z]{16}$' }),
      hash: Type.String({ pattern: '^(?:a|b)$' }),
      list: Type.Array(Type.Integer(), { maxItems: 2 }),
      few: Type.Array(Type.Integer(), { minItems: 1 }),
      fields: Type.Record(Type.String(), Type.Unknown(), { minProperties: 1 }),
      number: Type.Integer({ minimum: 0 }),
      large: Type.Number({ maximum: 5 }),
    }),
  );
  let fields: readonly FieldError[] = [];
  try {
    explain(input);
  } catch (error) {
    ({ fields } = error as ApiError);
  }
  expect(Object.fromEntries(fields.map(({ location, message }) => [location.slice(5), message]))).toEqual({
    permissions: 'must have only letters, digits, _ : . * -',
    namespaceId: 'must be an id that begins with rlns_',
    hash: 'must have the form of this field',
    list: 'must have at most 2 items',
    few: 'must have at least 1 item',
    fields: 'must have at least 1 field',
    number: 'must be at least 0',
    large: 'must be at most 5',
  });
});

describe('which bodies are accepted', () => {
  test.each([
    [{ name: 'abc' }],
    [{ name: '😀😀😀' }],
    [{ name: 'a', count: 0 }],
    [{ name: 'a', count: Number.MAX_SAFE_INTEGER }],
    [JSON.parse('{"name":"a","count":1.0}')],
    [JSON.parse('{"name":"a","count":1e3}')],
    [{ name: 'a', expires: null }],
    [{ name: 'a', items: [] }],
    [{ name: 'a', items: [{ interval: 'daily', on: false }] }],
    [{ name: 'a', free: { any: { thing: [null] }, 'a/b~c': 1 } }],
  ])('%j', (input) => {
    expect(() => check(input)).not.toThrow();
  });

  test('nothing is added or changed', () => {
    const input = { name: 'a', items: [{ interval: 'daily' }] };
    check(input);
    expect(input).toEqual({ name: 'a', items: [{ interval: 'daily' }] });
  });
});

describe('invalid inputs and the location of the error', () => {
  test.each<[unknown, FieldError[]]>([
    [{}, [{ location: 'body.name', message: 'is required' }]],
    [[], [{ location: 'body', message: 'must be object' }]],
    [null, [{ location: 'body', message: 'must be object' }]],
    ['text', [{ location: 'body', message: 'must be object' }]],
    [{ name: null }, [{ location: 'body.name', message: 'must be string' }]],
    [{ name: 1 }, [{ location: 'body.name', message: 'must be string' }]],
    [{ name: '' }, [{ location: 'body.name', message: 'must have at least 1 character' }]],
    [
      { name: 'a', externalId: 'ada@example.com' },
      [{ location: 'body.externalId', message: 'must have only letters, digits, _ . -' }],
    ],
    [{ name: '😀😀😀😀' }, [{ location: 'body.name', message: 'must have at most 3 characters' }]],
    [{ name: 'a', count: '1' }, [{ location: 'body.count', message: 'must be integer' }]],
    [{ name: 'a', count: 1.5 }, [{ location: 'body.count', message: 'must be integer' }]],
    [{ name: 'a', count: null }, [{ location: 'body.count', message: 'must be integer' }]],
    [{ name: 'a', count: -1 }, [{ location: 'body.count', message: 'must be at least 0' }]],
    [{ name: 'a', count: 2 ** 53 }, [{ location: 'body.count', message: 'must be at most 9007199254740991' }]],
    [{ name: 'a', expires: 'x' }, [{ location: 'body.expires', message: 'must be integer or null' }]],
    [
      { name: 'a', items: [{ interval: 'daily' }, { interval: 'weekly' }] },
      [{ location: 'body.items[1].interval', message: 'must be one of daily, monthly' }],
    ],
    [{ name: 'a', items: [{}] }, [{ location: 'body.items[0].interval', message: 'is required' }]],
    [{ name: 'a', free: { a: 1, b: 2, c: 3 } }, [{ location: 'body.free', message: 'must have at most 2 fields' }]],
    [
      { name: 'a', apiId: 'api_1' },
      [{ location: 'body.apiId', message: 'is not a field of this operation', fix: 'Leave it out.' }],
    ],
    [
      { name: 'a', items: [{ interval: 'daily', 'a/b': 1 }] },
      [{ location: 'body.items[0].a/b', message: 'is not a field of this operation', fix: 'Leave it out.' }],
    ],
    [
      JSON.parse('{"name":"a","__proto__":1}'),
      [{ location: 'body.__proto__', message: 'is not a field of this operation', fix: 'Leave it out.' }],
    ],
  ])('%j', (input, fields) => {
    const error = refusal(input);
    expect(error.code).toBe('invalid_input');
    expect(error.fields).toEqual(fields);
    expect(error.message).toBe(`${fields[0]!.location} ${fields[0]!.message}.`);
  });

  test('a pattern with a line break after it', () => {
    expect(refusal({ name: 'a', externalId: 'user\n' }).fields).toMatchObject([{ location: 'body.externalId' }]);
  });

  test('every failed field, up to twenty', () => {
    const locations = refusal({ count: -1, externalId: 'a b', more: 1 }).fields.map(({ location }) => location);
    expect(locations.sort()).toEqual(['body.count', 'body.externalId', 'body.more', 'body.name']);
    const many = Object.fromEntries(Array.from({ length: 30 }, (_, index) => [`field${index}`, 1]));
    expect(refusal(many).fields).toHaveLength(20);
  });
});

describe('a large body', () => {
  const multi = compileInput(Type.Array(Fields({ name: Type.String(), count: Type.String() }), { maxItems: 10_000 }));
  const fieldsOf = (input: unknown, bytes: number) => {
    try {
      multi(input, bytes);
    } catch (error) {
      return (error as ApiError).fields;
    }
    throw new Error('accepted');
  };

  test('gets its first error only', () => {
    const items = Array.from({ length: 100 }, () => ({}));
    expect(fieldsOf(items, explainedBytesMax)).toHaveLength(20);
    expect(fieldsOf(items, explainedBytesMax + 1)).toEqual([{ location: 'body[0].name', message: 'is required' }]);
  });

  test('is not repeated in the error', () => {
    const [error] = fieldsOf([{ name: '', count: '', [`${'n'.repeat(99)}😀${'n'.repeat(100_000)}`]: 1 }], 100_000);
    expect(error!.location.length).toBeLessThan(120);
    expect(error!.location.isWellFormed()).toBe(true);
  });
});

test.each(operations.map((operation) => [operation.name, operation] as const))(
  '%s: the schema compiles and refuses a field it does not know, and another shape',
  (_name, operation) => {
    const checkInput = compileInput(operation.input);
    expect(() => checkInput({ nonsense: 1 })).toThrow(ApiError);
    expect(() => checkInput('text')).toThrow(ApiError);
  },
);
