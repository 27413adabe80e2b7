// Examples of every field of a key, every input and every outcome of a verification. A new one does not compile until
// it has its examples; then the tests of all operations, of the import, of usage, of metrics and of the gateway check
// cover it, and test/model.test.ts generates it.

import { expect } from 'vitest';
import type { Outcome } from '../../src/domain/verification.ts';
import type { OperationName } from '../../src/operations/index.ts';
import type { newKeyFields } from '../../src/operations/keys/keyFields.ts';
import type { InputOf, OutputOf } from './harness.ts';
import { storedLimit } from './limits.ts';

export type NewKeyInput = Omit<InputOf<'keys.migrateKeys'>['keys'][number], 'hash'>;
type KeyChanges = Omit<InputOf<'keys.updateKey'>, 'keyId'>;
type KeyRecord = OutputOf<'keys.getKey'>;
type FieldName = keyof typeof newKeyFields;

interface FieldExample<Name extends FieldName> {
  /** Two values that differ. */
  values: readonly [Value<Name>, Value<Name>];
  /** The fields of the key's record, if they are not this field with its value. */
  record?: (value: Value<Name>) => { [Field in keyof KeyRecord]?: unknown };
  /** The value that updateKey takes to remove it, or for the default. */
  removed: KeyChanges[Name];
  /**
   * Values that createKey, migrateKeys, updateKey and imports refuse, and the location of the error below the field.
   */
  invalid: readonly (readonly [value: unknown, below?: string])[];
}
type Value<Name extends FieldName> = NonNullable<NewKeyInput[Name]>;

const hourMs = 3_600_000;
const limit = { name: 'requests', limit: 5, duration: hourMs };
const daily = { interval: 'daily', amount: 1 };
const monthly = { interval: 'monthly', amount: 1 };
const most = Number.MAX_SAFE_INTEGER;
const many = <Item>(count: number, item: (index: number) => Item) =>
  Array.from({ length: count }, (_, index) => item(index));

export const fieldExamples: { [Name in FieldName]: FieldExample<Name> } = {
  name: { values: ['Ada', 'Café 😀'], removed: null, invalid: [[''], ['x'.repeat(256)], [1]] },
  externalId: {
    values: ['ada', 'user_1.x-Y'],
    record: (externalId) => ({ externalId, identity: expect.objectContaining({ externalId }) }),
    removed: null,
    invalid: [[''], ['a b'], ['a:b'], ['x'.repeat(256)]],
  },
  meta: {
    values: [{ plan: 'pro' }, { '10': 1, '2': [null] }],
    removed: null,
    invalid: [
      ['text'],
      [[]],
      [Object.fromEntries(many(101, (index) => [index, index]))],
      // 10,241 bytes as JSON, once in fewer characters.
      [{ a: 'x'.repeat(10_233) }],
      [{ a: `é${'x'.repeat(10_231)}` }],
    ],
  },
  roles: {
    values: [['editor'], ['viewer', 'editor']],
    removed: [],
    invalid: [[[''], '[0]'], [['x'.repeat(129)], '[0]'], [many(101, (index) => `role${index}`)], [null]],
  },
  permissions: {
    values: [['documents.read'], ['pages.*']],
    removed: [],
    invalid: [
      [['a b'], '[0]'],
      [['x'.repeat(129)], '[0]'],
      [['a.b', 'a/b'], '[1]'],
      [many(1001, (index) => `bulk.${index}`)],
      [null],
    ],
  },
  expires: {
    values: [4_000_000_000_000, 4_102_444_800_000],
    removed: null,
    invalid: [[-1], [1.5], [4_102_444_800_001]],
  },
  enabled: { values: [false, true], removed: true, invalid: [[null], [1], ['true']] },
  credits: {
    values: [{ remaining: 3 }, { remaining: 9, refill: { interval: 'monthly', amount: 5, refillDay: 31 } }],
    removed: null,
    invalid: [
      [{ remaining: -1 }, '.remaining'],
      [{ remaining: most + 1 }, '.remaining'],
      [{ remaining: 0.5 }, '.remaining'],
      [{ remaining: 1, cost: 1 }, '.cost'],
      [{ remaining: null, refill: daily }, '.refill'],
      [{ remaining: 1, refill: { interval: 'daily' } }, '.refill.amount'],
      [{ remaining: 1, refill: { amount: 1 } }, '.refill.interval'],
      [{ remaining: 1, refill: { ...daily, amount: 0 } }, '.refill.amount'],
      [{ remaining: 1, refill: { ...daily, interval: 'yearly' } }, '.refill.interval'],
      [{ remaining: 1, refill: { ...daily, refillDay: 1 } }, '.refill.refillDay'],
      [{ remaining: 1, refill: { ...monthly, refillDay: 0 } }, '.refill.refillDay'],
      [{ remaining: 1, refill: { ...monthly, refillDay: 32 } }, '.refill.refillDay'],
    ],
  },
  ratelimits: {
    values: [[limit], [{ ...limit, name: 'tokens', autoApply: true }]],
    record: (limits) => ({ ratelimits: limits.map(storedLimit) }),
    removed: null,
    invalid: [
      [[limit, { ...limit, name: 'tokens', duration: 999 }], '[1].duration'],
      [[limit, { ...limit, limit: 2 }], '[1].name'],
      [[{ ...limit, name: 'ab' }], '[0].name'],
      [[{ ...limit, name: 'x'.repeat(129) }], '[0].name'],
      [[{ ...limit, limit: 0 }], '[0].limit'],
      [[{ ...limit, limit: most + 1 }], '[0].limit'],
      [[{ name: 'requests', duration: 1000 }], '[0].limit'],
      [[{ ...limit, cost: 1 }], '[0].cost'],
      [many(51, (index) => ({ ...limit, name: `limit${index}` }))],
    ],
  },
  allowedIps: {
    values: [
      ['203.0.113.7', '2001:DB8::1/29'],
      ['::/0', '::ffff:10.1.2.3/104', '0.0.0.0/0'],
    ],
    record: ([first]) => ({
      allowedIps: first === '::/0' ? ['::/0', '10.0.0.0/8', '0.0.0.0/0'] : ['203.0.113.7', '2001:db8::/29'],
    }),
    removed: null,
    invalid: [
      [[]],
      ['10.0.0.0/8'],
      [['10.0.0.0/8', '10.0.0.0/33'], '[1]'],
      [['010.0.0.1'], '[0]'],
      [many(101, (index) => `10.0.0.${index}`)],
    ],
  },
  planId: { values: ['pro', 'basic'], removed: null, invalid: [[''], ['a b'], ['x'.repeat(65)], [1]] },
};

export const fieldNames = Object.keys(fieldExamples) as FieldName[];

/** A key with every field. `choice` is the number of the value. */
export const keyWithAll = (choice: 0 | 1): NewKeyInput =>
  Object.fromEntries(Object.entries(fieldExamples).map(([name, { values }]) => [name, values[choice]]));

/** What a record has of these fields. */
export const recordOf = (input: NewKeyInput): object =>
  Object.assign({}, ...fieldNames.map((name) => (input[name] === undefined ? {} : recordOfField(name, input[name]))));

function recordOfField<Name extends FieldName>(name: Name, value: Value<Name>): object {
  const { record } = fieldExamples[name];
  return record ? record(value) : { [name]: value };
}

type VerifyInput = Omit<InputOf<'keys.verifyKey'>, 'key'>;

interface InputExample<Name extends keyof VerifyInput> {
  values: readonly NonNullable<VerifyInput[Name]>[];
  invalid: readonly (readonly [value: unknown, below?: string])[];
}

export const inputExamples: { [Name in keyof Required<VerifyInput>]: InputExample<Name> } = {
  permissions: { values: ['documents.read'], invalid: [[''], ['x'.repeat(1001)], ['a AND'], [['a.b']], [null]] },
  credits: {
    values: [{ cost: 0 }],
    invalid: [[{ cost: -1 }, '.cost'], [{ cost: 1e12 + 1 }, '.cost'], [{ cost: 0.5 }, '.cost'], [{}, '.cost'], [null]],
  },
  ratelimits: {
    values: [[{ name: 'own', limit: 5, duration: hourMs }]],
    invalid: [
      [[{ name: 'own', limit: 5 }], '[0].duration'],
      [[{ name: 'other' }, { name: 'own', duration: 1000 }], '[1].limit'],
      [[{ name: 'own' }, { name: 'other' }, { name: 'own' }], '[2].name'],
      [[{ name: 'own' }, { ...limit, name: 'own' }], '[1].name'],
      [[{ cost: 1 }], '[0].name'],
      [[{ name: 'ab' }], '[0].name'],
      [[{ name: 'x'.repeat(129) }], '[0].name'],
      [[{ name: 'own', cost: -1 }], '[0].cost'],
      [[{ name: 'own', cost: null }], '[0].cost'],
      [[{ name: 'own', other: 1 }], '[0].other'],
      [[{ ...limit, limit: 0 }], '[0].limit'],
      [[{ ...limit, duration: 999 }], '[0].duration'],
      [[{ ...limit, duration: 2_592_000_001 }], '[0].duration'],
      [many(51, (index) => ({ name: `limit${index}` }))],
      [null],
    ],
  },
  tags: { values: [['eu', 'us']], invalid: [[[''], '[0]'], [['a', 'x'.repeat(513)], '[1]'], [many(21, String)]] },
  // Its values are the ids of APIs, which the tests of it and the model make.
  keyspaces: {
    values: [],
    invalid: [[null], ['api_1'], [['api_1', 'an api'], '[1]'], [many(6, (index) => `api_${index}`)]],
  },
  ip: {
    values: ['203.0.113.7', '2001:db8::1', '::ffff:10.1.2.3'],
    invalid: [
      [''],
      [' 10.1.2.3'],
      ['10.1.2.3:80'],
      ['010.1.2.3'],
      ['fe80::1%eth0'],
      ['10.0.0.0/8'],
      ['0'.repeat(46)],
      [1],
    ],
  },
  hold: {
    values: [{ ttl: 60_000 }],
    invalid: [
      [{ ttl: 999 }, '.ttl'],
      [{ ttl: 60_000, id: 'a b' }, '.id'],
      [{ ttl: 60_000, onExpiry: 'x' }, '.onExpiry'],
    ],
  },
  migrationId: { values: ['m1'], invalid: [['x'.repeat(257)], [null]] },
};

interface OutcomeExample {
  key: NewKeyInput;
  request: VerifyInput;
}

/** A key and a request for each outcome of a known key. Two of them can be combined. */
export const outcomeExamples: Record<Exclude<Outcome, 'NOT_FOUND'>, OutcomeExample> = {
  VALID: { key: {}, request: {} },
  DISABLED: { key: { enabled: false }, request: {} },
  EXPIRED: { key: { expires: 0 }, request: {} },
  FORBIDDEN: { key: { allowedIps: ['203.0.113.0/24'] }, request: { ip: '198.51.100.7' } },
  INSUFFICIENT_PERMISSIONS: { key: {}, request: { permissions: 'not.held' } },
  RATE_LIMITED: {
    key: { ratelimits: [{ name: 'limited', limit: 1, duration: hourMs }] },
    request: { ratelimits: [{ name: 'limited', cost: 2 }] },
  },
  USAGE_EXCEEDED: { key: { credits: { remaining: 0 } }, request: {} },
};

export const combined = (...examples: readonly OutcomeExample[]): OutcomeExample => ({
  key: Object.assign({}, ...examples.map(({ key }) => key)),
  request: Object.assign({}, ...examples.map(({ request }) => request)),
});

/** Outcomes that are decided before limits and credits: all of a key's other values are as they would be with VALID. */
export const earlyRefusals = Object.entries(outcomeExamples).filter(
  ([outcome]) => !['VALID', 'RATE_LIMITED', 'USAGE_EXCEEDED'].includes(outcome),
);

/** The changes that repair a key whose fields cause a refusal. */
export const repairOf = ({ key }: OutcomeExample): KeyChanges =>
  Object.fromEntries((Object.keys(key) as FieldName[]).map((name) => [name, fieldExamples[name].removed]));

type Create = <Name extends OperationName>(operation: Name, input: InputOf<Name>) => Promise<unknown>;

/** Creates the records that the examples name and that a key does not create. */
export async function makeExampleRecords(create: Create) {
  for (const name of ['editor', 'viewer']) await create('permissions.createRole', { name });
  for (const planId of ['pro', 'basic']) await create('plans.createPlan', { planId });
}
