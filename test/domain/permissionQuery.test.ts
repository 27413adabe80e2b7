// Permission queries (docs/contract.md §7): parsed in src/domain/permissionQuery.ts, evaluated in
// lua/include/permissions.lua. Both are compared with a tree that the test evaluates itself, and from which it prints
// the query.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { AND, OR, parsePermissionQuery, QuerySyntaxError } from '../../src/domain/permissionQuery.ts';
import { harness } from '../support/harness.ts';
import { snippets } from '../support/snippet.ts';

const h = harness();
const lua = snippets();

type Tree = { slug: string } | { and: Tree[] } | { or: Tree[] };

/** A few parts, so that slugs and grants match often. Some look like operators. */
const part = fc.constantFrom('docs', 'read', 'own', 'a', 'and', 'OR', 'android');
const slug = fc
  .array(part, { minLength: 1, maxLength: 4 })
  .map((parts) => parts.join('.'))
  .filter((text) => !/^(and|or)$/i.test(text));
const wildcard = fc.array(part, { minLength: 1, maxLength: 3 }).map((parts) => `${parts.join('.')}.*`);

const { tree: trees } = fc.letrec<{ tree: Tree }>((tie) => ({
  tree: fc.oneof(
    { maxDepth: 4, depthSize: 'small' },
    fc.oneof({ weight: 6, arbitrary: slug }, { weight: 1, arbitrary: wildcard }).map((text): Tree => ({ slug: text })),
    fc.array(tie('tree'), { minLength: 2, maxLength: 3 }).map((and): Tree => ({ and })),
    fc.array(tie('tree'), { minLength: 2, maxLength: 3 }).map((or): Tree => ({ or })),
  ),
}));

const space = fc.constantFrom(' ', '  ', '\t', '\n ', ' \r\n');
const anyCase = (word: string) =>
  fc.array(fc.boolean(), { minLength: word.length, maxLength: word.length }).map((uppers) => {
    return [...word].map((letter, index) => (uppers[index] ? letter.toUpperCase() : letter)).join('');
  });

/** The text of a tree: with parentheses where AND contains an OR, and some at random. */
function textOf(tree: Tree, within: 'and' | 'or' = 'or'): fc.Arbitrary<string> {
  if ('slug' in tree) return parenthesise(fc.constant(tree.slug), false);
  const kind = 'and' in tree ? 'and' : 'or';
  const operands = ('and' in tree ? tree.and : tree.or).map((operand) => textOf(operand, kind));
  const operators = operands.slice(1).map(() => fc.tuple(space, anyCase(kind), space).map((words) => words.join('')));
  const chain = fc
    .tuple(fc.tuple(...operands), fc.tuple(...operators))
    .map(([texts, between]) => texts.map((text, index) => text + (between[index] ?? '')).join(''));
  return parenthesise(chain, kind === 'or' && within === 'and');
}

const parenthesise = (text: fc.Arbitrary<string>, needed: boolean): fc.Arbitrary<string> =>
  fc
    .tuple(
      fc.oneof(
        { weight: needed ? 0 : 4, arbitrary: fc.constant(0) },
        { weight: 1, arbitrary: fc.integer({ min: 1, max: 3 }) },
      ),
      text,
      fc.constantFrom('', ' '),
    )
    .map(([depth, inner, pad]) => `${`(${pad}`.repeat(depth)}${inner}${`${pad})`.repeat(depth)}`);

const queries = trees.chain((tree) => textOf(tree).map((text) => ({ tree, text })));

/**
 * docs/contract.md §7: a permission covers itself, and `documents.*` covers everything that begins with `documents.`.
 */
const covers = (grant: string, wanted: string) =>
  grant === wanted || (grant.endsWith('.*') && wanted.startsWith(grant.slice(0, -1)));

function holds(tree: Tree, grants: readonly string[]): boolean {
  if ('slug' in tree) return grants.some((grant) => covers(grant, tree.slug));
  if ('and' in tree) return tree.and.every((operand) => holds(operand, grants));
  return tree.or.some((operand) => holds(operand, grants));
}

const grantLists = fc.array(fc.oneof(slug, wildcard), { maxLength: 6 });

describe('a query has the result of its tree', () => {
  test('when Redis evaluates it, on the permissions of a key and of its roles', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ query: queries, direct: grantLists, role: grantLists, unused: grantLists }), {
          minLength: 100,
          maxLength: 100,
        }),
        async (cases) => {
          const slugs = [...new Set(cases.flatMap(({ direct, role, unused }) => [...direct, ...role, ...unused]))];
          const numbers = (list: string[]) =>
            list.length === 0 ? '' : `,${list.map((one) => slugs.indexOf(one) + 1).join(',')},`;
          const found = await lua.run(
            `local slugs, cases, found = cjson.decode(ARGV[1]), cjson.decode(ARGV[2]), {}
             for number, slug in ipairs(slugs) do redis.call('HSET', name_of.permission_numbers(KEYS[1]), slug, number) end
             for index, case in ipairs(cases) do
               redis.call('DEL', name_of.role_permissions(KEYS[1]))
               redis.call('HSET', name_of.role_permissions(KEYS[1]), 1, case.unused, 2, case.role)
               local held = held_slugs(KEYS[1], case.query, case.direct, case.role ~= '' and ',2,' or '')
               found[index] = permits(case.query, held) and 1 or 0
             end
             redis.call('DEL', name_of.permission_numbers(KEYS[1]), name_of.role_permissions(KEYS[1]))
             return found`,
            `tg:{query${process.env.VITEST_POOL_ID}}`,
            [
              JSON.stringify(slugs),
              JSON.stringify(
                cases.map(({ query, direct, role, unused }) => ({
                  query: parsePermissionQuery(query.text),
                  direct: numbers(direct),
                  role: numbers(role),
                  unused: numbers(unused),
                })),
              ),
            ],
          );
          const said = cases.map(({ query }, index) => `${query.text}: ${(found as number[])[index] === 1}`);
          expect(said).toEqual(
            cases.map(({ query, direct, role }) => `${query.text}: ${holds(query.tree, [...direct, ...role])}`),
          );
        },
      ),
      { numRuns: 30 },
    );
  });

  test('when a key is verified', async () => {
    const { apiId } = await h.ok('apis.createApi', { name: 'query' });
    const permissions = fc.array(
      fc.oneof(slug, wildcard).filter((text) => text.length >= 3),
      { maxLength: 6 },
    );
    await fc.assert(
      fc.asyncProperty(permissions, fc.array(queries, { minLength: 12, maxLength: 12 }), async (grants, asked) => {
        const { key } = await h.createKey({ apiId, permissions: grants });
        const said = await Promise.all(
          asked.map(async ({ text }) => {
            const { code } = await h.ok('keys.verifyKey', { key, permissions: text });
            return `${text}: ${code}`;
          }),
        );
        expect(said).toEqual(
          asked.map(({ tree, text }) => `${text}: ${holds(tree, grants) ? 'VALID' : 'INSUFFICIENT_PERMISSIONS'}`),
        );
      }),
      { numRuns: 40 },
    );
  });
});

describe('parsing', () => {
  test.each([
    ['a', ['a']],
    ['a OR b AND c', ['a', 'b', 'c', AND, OR]],
    ['a AND b OR c', ['a', 'b', AND, 'c', OR]],
    ['(a OR b) AND c', ['a', 'b', OR, 'c', AND]],
    ['a or b oR c', ['a', 'b', OR, 'c', OR]],
    ['((a))', ['a']],
    ['(a)and(b)', ['a', 'b', AND]],
    ['android AND order', ['android', 'order', AND]],
    ['and.read OR or:b', ['and.read', 'or:b', OR]],
    ['a.*_:/-9', ['a.*_:/-9']],
    [' \t\r\na\n', ['a']],
  ])('%j', (query, postfix) => {
    expect(parsePermissionQuery(query)).toEqual(postfix);
  });

  test.each([
    ['', 0],
    ['   ', 3],
    ['AND', 0],
    ['or b', 0],
    ['a AND', 5],
    ['a OR ', 5],
    ['a AND OR b', 6],
    ['a b', 2],
    ['a (b)', 2],
    ['a AND AND', 6],
    ['()', 1],
    ['(a', 2],
    ['(a b)', 3],
    ['(a OR (b AND c)', 15],
    ['a)', 1],
    ['(a))', 3],
    ['a && b', 2],
    ['a AND "b"', 6],
    ['a AND ü', 6],
    ['a\u00a0OR 🔑', 5],
    ['a.b AND c,d', 9],
  ])('%j fails at position %i', (query, position) => {
    expect(positionOf(query)).toBe(position);
  });

  test('a character that cannot be in a query is named with its position', () => {
    fc.assert(
      fc.property(
        queries,
        fc.nat(),
        fc.constantFrom(...'!"#$%&\'+,;<=>?@[\\]^`{|}~ä€\u0000'),
        ({ text }, where, bad) => {
          const position = where % (text.length + 1);
          expect(positionOf(text.slice(0, position) + bad + text.slice(position))).toBe(position);
        },
      ),
      { numRuns: 500 },
    );
  });

  test('an invalid continuation of a query is reported at its position', () => {
    fc.assert(
      fc.property(queries, fc.constantFrom(')', ' x', ' (', ' ) AND y'), ({ text }, more) => {
        expect(positionOf(text + more)).toBe(text.length + more.search(/\S/));
      }),
      { numRuns: 500 },
    );
  });

  test('an incomplete query is reported at its end', () => {
    fc.assert(
      fc.property(queries, fc.nat(), ({ text }, where) => {
        const short = text.slice(0, where % (text.length + 1)).replace(/[^\s()]+$/, '');
        const position = positionOf(short);
        if (position !== undefined) expect(position).toBe(short.length);
      }),
      { numRuns: 500 },
    );
  });

  test('a hundred permissions parse; the position of the hundred and first is reported', () => {
    const hundred = Array.from({ length: 100 }, (_, index) => `p${index}`).join(' OR ');
    expect(parsePermissionQuery(hundred)).toHaveLength(199);
    expect(positionOf(`${hundred} OR more`)).toBe(hundred.length + 4);
  });

  test('a thousand characters of parentheses parse', () => {
    expect(parsePermissionQuery(`${'('.repeat(499)}ab${')'.repeat(499)}`)).toEqual(['ab']);
    expect(positionOf('('.repeat(1000))).toBe(1000);
  });

  test('the message has a whole character, also beyond 16 bits', () => {
    expect(() => parsePermissionQuery('a OR 🔑')).toThrow('Unexpected character "🔑"');
  });
});

function positionOf(query: string): number | undefined {
  try {
    parsePermissionQuery(query);
    return undefined;
  } catch (error) {
    if (!(error instanceof QuerySyntaxError)) throw error;
    return error.position;
  }
}

describe('of a request', () => {
  test('400 permissions_query_syntax has the position, for any key', async () => {
    const answer = await h.call('keys.verifyKey', { key: 'unknown', permissions: 'docs.read AND' });
    expect(answer).toMatchObject({ status: 400, code: 'permissions_query_syntax' });
    expect(answer.error.detail).toMatch(/position 13\b/);
    expect(answer.error.errors).toMatchObject([{ location: 'body.permissions' }]);
  });

  test('1000 characters are accepted, one more is 400', async () => {
    const { key } = await h.createKey({ permissions: ['deep.*'] });
    const deep = `deep${'.x'.repeat(498)}`;
    expect(await h.ok('keys.verifyKey', { key, permissions: deep.padEnd(1000) })).toMatchObject({ code: 'VALID' });
    const answer = await h.call('keys.verifyKey', { key, permissions: deep.padEnd(1001) });
    expect(answer).toMatchObject({ status: 400, code: 'invalid_input' });
  });

  test('a query of a hundred permissions is decided', async () => {
    const { key } = await h.createKey({ permissions: ['p_99'] });
    const permissions = Array.from({ length: 100 }, (_, index) => `p_${index}`).join(' OR ');
    expect(await h.ok('keys.verifyKey', { key, permissions })).toMatchObject({ code: 'VALID' });
  });
});
