// lua/include/overrides.lua: compares wildcards with a regular expression, and measures parsing one.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { snippets } from '../../support/snippet.ts';

const { run } = snippets();
const matches = `local answers = {}
  for index = 1, #ARGV, 2 do
    answers[#answers + 1] = matches_wildcard(wildcard_of(ARGV[index]), ARGV[index + 1]) and 1 or 0
  end
  return answers`;

const regexpOf = (pattern: string) => new RegExp(`^${pattern.replaceAll('*', '.*')}$`);

test('a wildcard matches like its regular expression', async () => {
  const text = fc.string({ unit: fc.constantFrom('a', 'b'), maxLength: 8 });
  const pattern = fc
    .array(text, { minLength: 2, maxLength: 5 })
    .map((parts) => parts.map((part) => part.slice(0, 3)).join('*'));
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(pattern, text), { minLength: 200, maxLength: 200 }), async (pairs) => {
      const answers = await run(matches, 'tg:{none}', pairs.flat());
      expect(answers).toEqual(pairs.map(([wildcard, identifier]) => Number(regexpOf(wildcard).test(identifier))));
    }),
    { numRuns: 20 },
  );
});

test('a long wildcard is parsed in one pass, with stars anywhere', async () => {
  // A pattern that tries every length after the last star would take 3 s.
  const body = `local before = redis.call('TIME')
    for _ = 1, 1000 do wildcard_of(ARGV[1]) end
    local after = redis.call('TIME')
    return (after[1] - before[1]) * 1000 + (after[2] - before[2]) / 1000`;
  for (const wildcard of [`*${'a'.repeat(511)}`, `${'a'.repeat(255)}*${'a'.repeat(256)}`, `**${'a'.repeat(510)}`]) {
    expect(Number(await run(body, 'tg:{none}', [wildcard]))).toBeLessThan(500);
  }
});
