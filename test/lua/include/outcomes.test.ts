// lua/include/outcomes.lua holds the outcomes that src/domain/verification.ts lists, and the layouts that count them hold as many.

import { expect, test } from 'vitest';
import { outcomes } from '../../../src/domain/verification.ts';
import { snippets } from '../../support/snippet.ts';

const { run } = snippets();

test('the outcomes have the numbers of their places in the list', async () => {
  const numbers = await run(['outcomes'], `return { ${outcomes.join(', ')} }`, 'tg:{none}', []);
  expect(numbers).toEqual(outcomes.map((_, index) => index + 1));
});

test('all but NOT_FOUND are counted: as many as a state has counts for, and a history bits', async () => {
  expect(await run(['outcomes'], 'return OUTCOMES_COUNTED', 'tg:{none}', [])).toBe(outcomes.length - 1);
  const includes = ['clock', 'names', 'ids', 'calendar', 'outcomes', 'state', 'window', 'permissions', 'keys', 'usage'];
  // An hour, a count of each outcome, and credits spent: each of them another number, and no byte is left over.
  const body = `
    local numbers = { 7 }
    for outcome = 1, OUTCOMES_COUNTED do numbers[outcome + 1] = 10 + outcome end
    numbers[OUTCOMES_COUNTED + 2] = 99
    local usage = struct.pack(USAGE, unpack(numbers))
    local read = { struct.unpack(LIVE_USAGE, struct.pack(LIVE, 1, 2, 3) .. usage) }
    return { #usage - USAGE_BYTES, #NO_USAGE - USAGE_BYTES, read[5], read[7], (usage_entry('', usage)) }`;
  const [left, unlikeNone, valid, spent, entry] = (await run(includes, body, 'tg:{none}', [])) as [
    number,
    number,
    number,
    number,
    string,
  ];
  expect([left, unlikeNone, valid, spent]).toEqual([0, 0, 11, 99]);
  // hour (4), bits (1), six counts (4 each), credits (7), an externalId of no bytes (1)
  const bytes = Buffer.from(entry, 'latin1');
  expect(bytes).toHaveLength(5 + 4 * (outcomes.length - 1) + 7 + 1);
  expect(bytes[4]).toBe(2 ** outcomes.length - 1);
});
