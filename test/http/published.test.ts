// The published schema of an input accepts exactly what the operation accepts, except for the rules that JSON Schema
// cannot state (test/faults/schemathesis/rules.json): the description of the operation states these. FC_RUNS and SEED
// choose another number of inputs of each operation and another seed.

import { readFileSync } from 'node:fs';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import fc from 'fast-check';
import { beforeAll, describe, expect, test } from 'vitest';
import type { OpenApiDocument } from '../../src/http/openapi.ts';
import type { AnyOperation } from '../../src/operation.ts';
import { type OperationName, operations } from '../../src/operations/index.ts';
import { arbitraryOf, bodiesFor, type Hints } from '../support/arbitrary.ts';
import { harness } from '../support/harness.ts';

/** What an operation refuses although the published schema accepts it. */
interface Rule {
  /** A part of the error. */
  refusal: string;
  /** Why JSON Schema cannot state it. */
  reason: string;
  /** A part of the document of each operation that has the rule. */
  stated: string;
  /**
   * The operations, for a rule that depends on what is stored or on the caller. All others have an example in this
   * file.
   */
  stateOf?: string[];
}
const rules: Rule[] = JSON.parse(readFileSync(new URL('../faults/schemathesis/rules.json', import.meta.url), 'utf8'));

const h = harness();
const all: readonly AnyOperation[] = operations;
const numRuns = Number(process.env.FC_RUNS ?? 60);
const seed = process.env.SEED === undefined ? undefined : Number(process.env.SEED);

let document: OpenApiDocument & { components: { schemas: Record<string, object> } };
let apiId: string;
const ajv = new Ajv2020({ strict: true, strictTypes: false, formats: { int64: true } });
beforeAll(async () => {
  const asAnybody = { method: 'GET', authorization: '', contentType: '', body: '' };
  document = (await h.send('/openapi.json', asAnybody)).json;
  // References are local to the document.
  ajv.addSchema({ $id: 'document', $defs: JSON.parse(withReferences(document.components.schemas)) });
  ({ apiId } = await h.ok('apis.createApi', { name: 'published' }));
});

const withReferences = (schema: object) =>
  JSON.stringify(schema).replaceAll('#/components/schemas/', 'document#/$defs/');

function publishedOf(name: string): ValidateFunction {
  const { content } = document.paths[`/v2/${name}`]!.post!.requestBody as {
    content: Record<string, { schema: object }>;
  };
  return ajv.compile(JSON.parse(withReferences(content['application/json']!.schema)));
}

/** The text of everything that the document has about an operation, with the schemas that it refers to. */
function textOf(name: string): string {
  const operation = Object.values(document.paths)
    .flatMap((path) => [path.post, path.get])
    .find((operation) => operation?.operationId === name);
  const text = JSON.stringify(operation);
  const named = Object.entries(document.components.schemas).filter(([schema]) => text.includes(`/${schema}"`));
  return text + JSON.stringify(named);
}

const ruleOf = (body: string) => rules.find(({ refusal }) => body.includes(JSON.stringify(refusal).slice(1, -1)));

/**
 * Sends a body. Returns the rule that refused it; undefined if it was accepted, or refused for another reason than
 * its input.
 */
async function refusalOf(name: string, text: string): Promise<{ body: string; rule: Rule | undefined } | undefined> {
  const { status, body } = await h.send(`/v2/${name}`, { body: text });
  return status === 400 || status === 412 ? { body: String(body), rule: ruleOf(String(body)) } : undefined;
}

const hash = (number: number) => Buffer.alloc(32, number).toString('base64');
const grants = ['*', 'api.*.read_key', 'apis.api_1.read_key', 'rbac.*.read_role', 'identity.id_1.read_identity'];
const wrongGrants = [
  'rbac.role_1.read_role',
  'api.*.read_role',
  'apis.*',
  'constructor.*.toString',
  'root_keys.*.read',
];
const either = (own: fc.Arbitrary<unknown>, ...values: unknown[]) => fc.oneof(own, fc.constantFrom(...values));

/** Values that are refused or accepted together with others. */
const hints: Hints = {
  apiId: (own) => either(own, 'api_none'),
  name: (own) => either(own, 'requests', 'other'),
  hash: (own) => either(own, hash(1), hash(2), hash(3)),
  interval: () => fc.constantFrom('daily', 'monthly'),
  start: (own) => either(own, 0, 'pay'),
  until: (own) => either(own, Date.UTC(2026, 0, 16)),
  ip: (own) => either(own, '203.0.113.7', '::ffff:10.1.2.3', '010.1.1.1'),
  allowedIps: (own) => either(own, ['203.0.113.7'], ['::/0', '10.0.0.0/8'], ['::/0', '10.0.0.0/33']),
};
const queries = ['a', 'a AND', '(a OR b.*) AND c', 'a)', '()', 'ż'];
function hintsOf(name: string): Hints {
  if (name.startsWith('rootKeys.')) {
    return { ...hints, permissions: () => fc.array(fc.constantFrom(...grants, ...wrongGrants), { maxLength: 2 }) };
  }
  return /verifyKey|explainKey/.test(name) ? { ...hints, permissions: (own) => either(own, ...queries) } : hints;
}

/**
 * Undefined for a text that is not JSON, or has half of a surrogate pair: these are refused whatever the operation.
 */
function parsed(text: string): { value: unknown } | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return /\\ud[89a-f]/.test(JSON.stringify(value)) ? undefined : { value };
  } catch {
    return undefined;
  }
}

/** Bodies for an operation; some have only what is required. */
function inputsOf({ name, input }: AnyOperation): fc.Arbitrary<string> {
  const { required = [] } = input as { required?: string[] };
  const isList = (input as { type?: string }).type === 'array';
  const least = arbitraryOf(input, hintsOf(name)).map((value) =>
    JSON.stringify(
      isList ? value : Object.fromEntries(required.map((of) => [of, (value as Record<string, unknown>)[of]])),
    ),
  );
  const any = bodiesFor(input, hintsOf(name)).map(({ text }) => text);
  return fc.oneof({ weight: 8, arbitrary: any }, { weight: 1, arbitrary: least });
}

describe('random inputs', () => {
  test.each(all.map((operation) => ({ operation, name: operation.name })))('$name', async ({ operation, name }) => {
    const published = publishedOf(name);
    await fc.assert(
      fc.asyncProperty(inputsOf(operation), async (text) => {
        const body = parsed(text);
        if (!body) return;
        const isPublished = published(body.value);
        const refused = await refusalOf(name, text);
        if (!refused) expect(isPublished, `the document refuses ${text}`).toBe(true);
        if (!refused || !isPublished) return;
        const { rule } = refused;
        expect(rule, `the document accepts ${text}, which is refused: ${refused.body}`).toBeDefined();
        expect(textOf(name), `${name} does not state that ${rule!.refusal}`).toContain(rule!.stated);
      }),
      { numRuns, ...(seed !== undefined && { seed }) },
    );
  });
});

type Example = [name: OperationName, input: object];

/** What each rule refuses that depends on the input alone. */
const examples: Record<string, () => Example[]> = {
  'is not a cursor of this list': () =>
    all
      .filter((operation) => operation.kind === 'manages' && operation.list)
      .map(({ name, input }) => {
        const { required = [] } = input as { required?: string[] };
        const needed = { apiId, keyId: 'key_1', namespace: 'n' } as Record<string, string>;
        return [
          name as OperationName,
          Object.fromEntries([...required.map((of) => [of, needed[of]]), ['cursor', 'x']]),
        ];
      }),
  permissions_query_syntax: () => [
    ['keys.verifyKey', { key: 'k', permissions: 'a AND' }],
    ['keys.explainKey', { key: 'k', permissions: '(a' }],
  ],
  'repeats ': () => {
    const ratelimits = [limitOf('requests', 1), limitOf('requests', 2)];
    return [
      ['keys.createKey', { apiId, ratelimits }],
      ['keys.updateKey', { keyId: 'key_1', ratelimits }],
      ['keys.migrateKeys', importOf({ hash: hash(1), ratelimits })],
      ['keys.verifyKey', { key: 'k', ratelimits: [{ name: 'requests' }, { name: 'requests', cost: 2 }] }],
      ['keys.explainKey', { key: 'k', ratelimits: [{ name: 'requests' }, { name: 'requests', cost: 2 }] }],
      ['identities.createIdentity', { externalId: 'repeats', ratelimits }],
      ['identities.updateIdentity', { identity: 'repeats', ratelimits }],
    ];
  },
  'address or CIDR range': () => {
    const allowedIps = ['10.0.0.0/8', '010.0.0.1'];
    return [
      ['keys.createKey', { apiId, allowedIps }],
      ['keys.updateKey', { keyId: 'key_1', allowedIps }],
      ['keys.migrateKeys', importOf({ hash: hash(1), allowedIps })],
    ];
  },
  'body.ip is not': () => [
    ['keys.verifyKey', { key: 'k', ip: '10.0.0.1:80' }],
    ['keys.explainKey', { key: 'k', ip: '::1%eth0' }],
  ],
  'appears twice in the call': () => [['keys.migrateKeys', importOf({ hash: hash(1) }, { hash: hash(1), name: 'x' })]],
  'items in their lists': () => [['keys.migrateKeys', importOf(...manyKeys(11, (slug) => `${slug}`))]],
  'different permissions; the maximum': () => [
    ['keys.migrateKeys', importOf(...manyKeys(2, (slug, key) => `${key}.${slug}`))],
  ],
  'bytes as JSON; the maximum is': () => {
    const meta = { long: 'x'.repeat(11_000) };
    return [
      ['keys.createKey', { apiId, meta }],
      ['keys.updateKey', { keyId: 'key_1', meta }],
      ['keys.migrateKeys', importOf({ hash: hash(1), meta })],
      ['identities.createIdentity', { externalId: 'long', meta }],
      ['identities.updateIdentity', { identity: 'long', meta }],
    ];
  },
  'counting a line break after each': () => {
    const permissions = Array.from({ length: 1000 }, (_, index) => `api.${`${index}`.padEnd(100, 'x')}.read_key`);
    return [
      ['rootKeys.createRootKey', { permissions }],
      ['rootKeys.updateRootKey', { rootKeyId: 'root_1', permissions }],
    ];
  },
  'is in the past': () => [
    ['keys.createKey', { apiId, expires: 1 }],
    ['rootKeys.createRootKey', { permissions: ['*'], expires: 1 }],
  ],
  'is a time in the 1970s': () => [
    ...periods({ end: 2e9 }, 'getVerifications', 'getRatelimits', 'getTop'),
    ['analytics.listCustomers', { start: 2e9 }],
    ['analytics.listRefusals', { start: 2e9 }],
    ['audit.listEvents', { end: 2e9 }],
    ['keys.listKeys', { expiresBefore: 2e9 }],
    ['keys.getAttention', { unusedSince: 2e9 }],
    ['ratelimits.listTemporary', { before: 2e9 }],
    ['keys.updateKey', { keyId: 'key_1', expires: 2e9 }],
    ['keys.changeKeys', { keyIds: [`key_${'1'.repeat(24)}`], change: { expires: 2e9 } }],
    ['keys.migrateKeys', importOf({ hash: hash(1), expires: 2e9 })],
    ['rootKeys.updateRootKey', { rootKeyId: 'root_1', expires: 2e9 }],
  ],
  'is more than ten years': () => [['keys.rerollKey', { keyId: 'key_1', expiration: 4e12 }]],
  'is allowed for monthly refills only': () =>
    credits({ remaining: 1, refill: { interval: 'daily', amount: 1, refillDay: 1 } }),
  'must be a number to ': () => [
    ['keys.updateCredits', { keyId: 'key_1', operation: 'increment', value: null }],
    ['identities.updateCredits', { identity: 'a', operation: 'decrement', value: null }],
  ],
  'for a concurrency limit': () =>
    [{ limit: 10_001 }, { duration: 86_400_001 }].flatMap((value): Example[] => {
      const ratelimit = { ...limitOf('requests', 1), type: 'concurrency', ...value };
      return [
        ['keys.createKey', { apiId, ratelimits: [ratelimit] }],
        ['keys.updateKey', { keyId: 'key_1', ratelimit }],
        ['identities.updateIdentity', { identity: 'a', ratelimit }],
      ];
    }),
  'ratelimit cannot be sent together with ratelimits': () => {
    const both = { ratelimits: [], ratelimit: limitOf('requests', 1) };
    return [
      ['keys.updateKey', { keyId: 'key_1', ...both }],
      ['identities.updateIdentity', { identity: 'a', ...both }],
    ];
  },
  'limit and duration go together': () => [
    ['keys.verifyKey', { key: 'k', ratelimits: [{ name: 'requests', duration: 1000 }] }],
    ['keys.explainKey', { key: 'k', ratelimits: [{ name: 'requests', limit: 1 }] }],
  ],
  'limit and period go together': () => [
    ['keys.verifyKey', { key: 'k', ratelimits: [{ name: 'requests', limit: 1, type: 'quota' }] }],
  ],
  'one with limit and duration is a window': () => [
    ['keys.verifyKey', { key: 'k', ratelimits: [{ ...limitOf('requests', 1), type: 'concurrency' }] }],
  ],
  'a limit has a duration, or as a quota a period': () => [
    ...withLimit({ name: 'requests', limit: 1 }),
    ['ratelimits.limit', { namespace: 'n', identifier: 'i', limit: 1 }],
    ['ratelimits.multiLimit', [{ namespace: 'n', identifier: 'i', limit: 1 }]],
    ['ratelimits.setOverride', { namespace: 'n', identifier: 'i', limit: 1 }],
  ],
  'is only of a quota': () => [
    ...withLimit({ ...limitOf('requests', 1), type: 'window', period: 'day' }),
    ...withLimit({ ...limitOf('requests', 1), anchor: 0 }),
    ['keys.updateKey', { keyId: 'key_1', ratelimit: { name: 'requests', limit: 1, type: 'window', anchor: 0 } }],
    ['keys.verifyKey', { key: 'k', ratelimits: [{ ...limitOf('requests', 1), anchor: 0 }] }],
  ],
  'or the length of one of its periods': () => [
    ...withLimit({ ...limitOf('requests', 1), period: 'month' }),
    ['keys.verifyKey', { key: 'k', ratelimits: [{ ...limitOf('requests', 1), period: 'month' }] }],
  ],
  'body must have either key or keyId': () => [
    ['keys.explainKey', {}],
    ['keys.explainKey', { key: 'k', keyId: 'key_1' }],
  ],
  'needs at least one of': () => [['keys.getAttention', {}]],
  'needs expiresBefore': () => [['keys.listKeys', { expiresAfter: 1 }]],
  'does not apply to': () => [
    ['analytics.getTop', { of: 'keys', namespace: 'n' }],
    ['analytics.getTop', { of: 'identifiers', tag: 't' }],
  ],
  'cannot be spentCredits': () => [['analytics.getTop', { of: 'namespaces', by: 'spentCredits' }]],
  'filters verifications, and namespace filters limit checks': () => [
    ['analytics.tail', { namespace: 'n', keyId: 'key_1' }],
  ],
  'cannot be sent together with': () => [
    ['ratelimits.listTemporary', { kinds: ['key'], apiId }],
    ['ratelimits.listTemporary', { apiId, namespace: 'n' }],
  ],
  'plaintext of a key is never stored': () => [
    ['apis.listKeys', { apiId, decrypt: true }],
    ['keys.getKey', { keyId: 'key_1', decrypt: true }],
    ['keys.createKey', { apiId, recoverable: true }],
  ],
  'SQL is not supported': () => [
    ['analytics.getVerifications', { query: 'SELECT 1' }],
    ['analytics.getRatelimits', { query: 'SELECT 1' }],
  ],
  'is not an origin as browsers send it': () => [
    ['workspace.updateSettings', { me: { origins: ['https://app.example.com', 'https://app.example.com:443'] } }],
  ],
  'must be another plan': () => [['plans.deletePlan', { planId: 'pro', replaceWith: 'pro' }]],
  'in the first step': () => prices([{ from: 1, price: '1' }]),
  'the step before': () => prices([step, step]),
  'has the unit, API and plan of': () => prices([step], [step]),
  'APIs before it': () => [['workspace.updateSettings', { prices: pricesOf(elevenApis) }]],
  'is after end': () => periods({ start: 2e12, end: 1e12 }, 'getVerifications', 'getRatelimits', 'getTop'),
  'results in more than': () => periods({ start: 0, end: 1e12 }, 'getVerifications', 'getRatelimits'),
};

const step = { from: 0, price: '1' };
const pricesOf = (rules: object[]) => ({ currency: 'EUR', decimals: 2, rules });
const prices = (...steps: object[][]): Example[] => [
  ['workspace.updateSettings', { prices: pricesOf(steps.map((ofRule) => ({ unit: 'credit', steps: ofRule }))) }],
];
const elevenApis = Array.from({ length: 11 }, (_, api) => ({ unit: 'credit', apiId: `api_${api}`, steps: [step] }));
const credits = (value: object): Example[] => [
  ['keys.createKey', { apiId, credits: value }],
  ['keys.updateKey', { keyId: 'key_1', credits: value }],
  ['identities.createIdentity', { externalId: 'a', credits: value }],
];
const withLimit = (limit: object): Example[] => [
  ['keys.createKey', { apiId, ratelimits: [limit] }],
  ['identities.createIdentity', { externalId: 'a', ratelimits: [limit] }],
];
const limitOf = (name: string, limit: number) => ({ name, limit, duration: 60_000 });
const importOf = (...keys: object[]) => ({ migrationId: 'import', apiId, keys });
const manyKeys = (count: number, slugOf: (slug: number, key: number) => string) =>
  Array.from({ length: count }, (_, key) => ({
    hash: hash(key),
    permissions: Array.from({ length: 1000 }, (_, slug) => slugOf(slug + 100, key)),
  }));
const periods = (period: object, ...of: ('getVerifications' | 'getRatelimits' | 'getTop')[]): Example[] =>
  of.map((name) => [`analytics.${name}`, name === 'getTop' ? { of: 'keys', ...period } : period]);

describe('what JSON Schema cannot state', () => {
  test.each(rules)('$refusal: $reason', async ({ refusal, stated, stateOf }) => {
    const found = stateOf ? [] : examples[refusal]!();
    expect(stateOf ?? found).not.toEqual([]);
    for (const [name, input] of found) {
      const accepts = publishedOf(name);
      expect(accepts(input), `${name}: ${JSON.stringify(accepts.errors)}`).toBe(true);
      const refused = await refusalOf(name, JSON.stringify(input));
      expect(refused?.rule?.refusal, `${name}: ${refused?.body}`).toBe(refusal);
    }
    for (const name of stateOf ?? found.map(([name]) => name)) expect(textOf(name), name).toContain(stated);
  });

  test('has an example for each rule, and no other', () => {
    const expected = rules.filter(({ stateOf }) => !stateOf).map(({ refusal }) => refusal);
    expect(Object.keys(examples).sort()).toEqual(expected.sort());
  });
});
