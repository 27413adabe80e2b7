// Grants of root keys (docs/contract.md §5): tests src/domain/grants.ts by tables, and compares
// lua/include/rootGrants.lua with it.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { actions, Grants, grantsText, parseGrant, type Resource } from '../../src/domain/grants.ts';
import { snippets } from '../support/snippet.ts';
import { unitMs } from '../support/unit.ts';

const lua = snippets();
const grantsOf = (...grants: string[]) => new Grants(grantsText(grants));

describe('parseGrant', () => {
  test.each([
    ['*', '*'],
    ['api.*.verify_key', 'api.*.verify_key'],
    ['apis.*.verify_key', 'api.*.verify_key'],
    ['api.api_2bX.read_key', 'api.api_2bX.read_key'],
    ['ratelimits.rlns_abc.limit', 'ratelimit.rlns_abc.limit'],
    ['ratelimit.*.create_namespace', 'ratelimit.*.create_namespace'],
    ['identity.id_abc.update_identity', 'identity.id_abc.update_identity'],
    ['rbac.*.create_role', 'rbac.*.create_role'],
    ['root_key.*.delete_root_key', 'root_key.*.delete_root_key'],
    ['audit.*.read_audit', 'audit.*.read_audit'],
  ])('%s is the grant %s', (grant, spelling) => {
    expect(parseGrant(grant)).toBe(spelling);
  });

  test.each([
    '',
    '**',
    'api',
    'api.*',
    'api.*.*',
    'api..verify_key',
    'api.*.verify_key.more',
    'api.*.limit',
    'api.*.VERIFY_KEY',
    'API.*.verify_key',
    'identities.*.read_identity',
    'rbac.role_1.read_role',
    'root_key.root_1.read_root_key',
    'audit.x_1.read_audit',
    'audits.*.read_audit',
    'constructor.*.name',
    'api.a-b.verify_key',
    'api.ab.verify_key',
    `api.${'a'.repeat(256)}.verify_key`,
    'api.*.verify_key\n',
    ' api.*.verify_key',
    'api.a\nb.verify_key',
  ])('%j is not a grant', (grant) => {
    expect(parseGrant(grant)).toBeUndefined();
  });

  test('every action of every resource can be granted on all ids', () => {
    for (const [resource, names] of Object.entries(actions)) {
      for (const action of names) {
        expect(parseGrant(`${resource}.*.${action}`)).toBe(`${resource}.*.${action}`);
      }
    }
  });
});

describe('holds', () => {
  test.each([
    [['*'], 'api', 'api_1', 'verify_key', true],
    [['*'], 'rbac', '*', 'create_role', true],
    [['api.*.verify_key'], 'api', 'api_1', 'verify_key', true],
    [['api.*.verify_key'], 'api', '*', 'verify_key', true],
    [['api.*.verify_key'], 'api', 'api_1', 'read_key', false],
    [['api.*.read_api'], 'ratelimit', '*', 'read_api', false],
    [['api.api_1.verify_key'], 'api', 'api_1', 'verify_key', true],
    [['api.api_1.verify_key'], 'api', 'api_12', 'verify_key', false],
    [['api.api_12.verify_key'], 'api', 'api_1', 'verify_key', false],
    [['api.api_1.verify_key'], 'api', '*', 'verify_key', false],
    [[], 'api', 'api_1', 'verify_key', false],
  ] as const)('%j: %s.%s.%s: %j', (grants, resource, id, action, held) => {
    expect(grantsOf(...grants).holds(resource, id, action)).toBe(held);
  });

  test.each([
    [['api.api_1.verify_key'], 'api', 'verify_key', true],
    [['api.api_1.verify_key'], 'api', 'read_key', false],
    [['api.*.read_key'], 'api', 'read_key', true],
    [['*'], 'identity', 'read_identity', true],
    [['identity.id_1.read_identity'], 'api', 'read_identity', false],
    [['rbac.*.remove_permission_from_role'], 'rbac', 'remove_permission', false],
    [[], 'api', 'read_key', false],
  ] as const)('%j holds some %s.….%s: %j', (grants, resource, action, held) => {
    expect(grantsOf(...grants).holdsAny(resource, action)).toBe(held);
  });

  test.each([
    [['*'], true],
    [['api.*.read_analytics', 'api.api_1.read_analytics'], true],
    [
      ['api.api_1.read_analytics', 'api.api_2.read_analytics', 'api.api_3.read_key'],
      ['api_1', 'api_2'],
    ],
    [['ratelimit.rlns_1.read_analytics'], []],
  ] as const)('%j may read the analytics of: %j', (grants, ids) => {
    expect(grantsOf(...grants).idsFor('api', 'read_analytics')).toEqual(ids);
  });
});

test('grants are stored each once', () => {
  expect(grantsText(['*', 'api.*.read_key', '*'])).toBe('\n*\napi.*.read_key\n');
});

/** Only one resource has this action. holds_any searches for the action alone, so it works for such actions only. */
const ofOneResource = (action: string) =>
  Object.values(actions).filter((names) => (names as readonly string[]).includes(action)).length === 1;

test('decide.lua calls holds_any for actions of one resource only', () => {
  expect(['verify_key', 'limit'].filter(ofOneResource)).toEqual(['verify_key', 'limit']);
});

test('lua/include/rootGrants.lua returns the same', async () => {
  const pairs = Object.entries(actions).flatMap(([resource, names]) =>
    names.map((action) => ({ resource: resource as Resource, action: action as string })),
  );
  const id = fc.constantFrom('*', 'api_1', 'api_12', '1api_1');
  const grant = fc.oneof(
    { weight: 20, arbitrary: fc.tuple(fc.constantFrom(...pairs), id) },
    { weight: 1, arbitrary: fc.constant(undefined) },
  );
  const lists = fc.array(grant, { minLength: 1, maxLength: 8 }).map((grants) => ({
    grants: grants.map((one) => (one ? `${one[0].resource}.${one[1]}.${one[0].action}` : '*')),
    first: grants[0]?.[0],
  }));
  // Half of the questions are about the resource and action of the first grant, some with another id.
  const question = fc
    .record({ list: lists, other: fc.constantFrom(...pairs), id, about: fc.boolean() })
    .map(({ list: { grants, first }, other, id, about }) => ({ grants, id, ...(about && first ? first : other) }));
  await fc.assert(
    fc.asyncProperty(fc.array(question, { minLength: 50, maxLength: 50 }), async (asked) => {
      const answers = await lua.run(
        `local answers = {}
           for index, q in ipairs(cjson.decode(ARGV[1])) do
             answers[index] = { root_grants.holds(q.text, q.resource, q.id, q.action) and 1 or 0, root_grants.holds_any(q.text, q.action) and 1 or 0 }
           end
           return answers`,
        'tg:{none}',
        [JSON.stringify(asked.map((q) => ({ ...q, text: grantsText(q.grants) })))],
      );
      expect(
        (answers as [number, number][]).map(([held, any], index) => [held, ofOneResource(asked[index]!.action) && any]),
      ).toEqual(
        asked.map(({ grants, resource, id, action }) => [
          Number(grantsOf(...grants).holds(resource, id, action)),
          ofOneResource(action) && Number(grantsOf(...grants).holdsAny(resource, action)),
        ]),
      );
    }),
    { numRuns: 40 },
  );
});

/**
 * The time of some Lua in Redis, in milliseconds. The tests' bounds are far above it, and far below that of a slow
 * algorithm.
 */
async function tookMs(body: string, args: string[]): Promise<number> {
  const timed = `local before = redis.call('TIME')
    ${body}
    local after = redis.call('TIME')
    return (after[1] - before[1]) * 1000000 + after[2] - before[2]`;
  return Number(await lua.run(timed, 'tg:{none}', args)) / 1000;
}

test('holds_any searches the text of the grants once, also if it is long', async () => {
  // A pattern that tries every length of every id would take 1 s.
  const long = Array.from({ length: 1000 }, (_, index) => `api.api_${index}${'x'.repeat(240)}.read_analytics`);
  const search = `for _ = 1, 100 do if root_grants.holds_any(ARGV[1], 'verify_key') then error('held') end end`;
  expect(await tookMs(search, [grantsText(long)])).toBeLessThan(300 * unitMs());
});

test('lacking_grant looks up each grant once', async () => {
  // A search of the text for each grant would take 6 s.
  const many = Array.from({ length: 20_000 }, (_, index) => `api.api_${index}.read_key`);
  const compare = `if lacking_grant(grant_set(ARGV[1]), ARGV[2]) then error('not covered') end`;
  expect(await tookMs(compare, [grantsText(many), grantsText(many.toReversed())])).toBeLessThan(1000 * unitMs());
});

test.each([
  [['api.*.read_key'], ['api.api_1.read_key'], 1],
  [['api.api_1.read_key'], ['api.*.read_key'], 0],
  [['api.api_1.read_key', 'api.api_2.read_key'], ['api.api_2.read_key', 'api.api_1.read_key'], 1],
  [['api.api_1.read_key'], ['api.api_1.read_key', 'ratelimit.*.limit'], 0],
  [['api.*.read_analytics'], ['ratelimit.api_1.read_analytics'], 0],
  [['api.*.read_key'], ['*'], 0],
  [['*'], ['*', 'api.*.read_key'], 1],
])('Redis: %j covers %j: %j', async (grants, others, covered) => {
  const body = 'return lacking_grant(grant_set(ARGV[1]), ARGV[2]) and 0 or 1';
  const args = [grantsText(grants), grantsText(others)];
  expect(await lua.run(body, 'tg:{none}', args)).toBe(covered);
});
