// lua/include/ids.lua: the rules for ids and versions, for any behaviour of the clock.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { packId, unpackId } from '../../../src/domain/keyString.ts';
import { snippets } from '../../support/snippet.ts';

const { run } = snippets();
const base58 = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';
const noonMs = Date.UTC(2026, 0, 15, 12);

interface Take {
  now: number;
  ids: number;
  versions: number;
}

let workspaces = 0;
/** A script of more would hold up the Redis of all test files for seconds on a busy machine. */
const takesOfScript = 20;
/** Takes many stamps in a new workspace whose sequence starts at `sequence`. */
async function take(sequence: number, takes: readonly Take[]) {
  const workspace = `tg:{ids${process.env.VITEST_POOL_ID}_${++workspaces}}`;
  const all = { ids: [] as string[], versions: [] as string[] };
  for (let from = 0; from === 0 || from < takes.length; from += takesOfScript) {
    const some = takes.slice(from, from + takesOfScript);
    const [ids, versions] = (await run(
      `redis.call('HSETNX', KEYS[1], 'sequence', ARGV[1])
       local ids, versions = {}, {}
       for index = 3, #ARGV, 3 do
         local next_id, next_version = take_stamps(KEYS[1], tonumber(ARGV[index]), ARGV[index + 1] + ARGV[index + 2])
         for _ = 1, ARGV[index + 1] do ids[#ids + 1] = next_id() end
         for _ = 1, ARGV[index + 2] do
           versions[#versions + 1] = string.gsub(next_version(), '.', function(c) return string.format('%02x', string.byte(c)) end)
         end
       end
       if ARGV[2] == 'last' then redis.call('UNLINK', KEYS[1]) end
       return { ids, versions }`,
      workspace,
      [
        sequence,
        from + takesOfScript < takes.length ? 'more' : 'last',
        ...some.flatMap(({ now, ids, versions }) => [now, ids, versions]),
      ],
    )) as [string[], string[]];
    all.ids.push(...ids);
    all.versions.push(...versions);
  }
  return all;
}

/** A clock that mostly advances slowly, and sometimes jumps ahead or back. */
const histories = fc
  .array(
    fc.record({
      step: fc.oneof(
        { weight: 4, arbitrary: fc.integer({ min: 0, max: 2 }) },
        { weight: 1, arbitrary: fc.integer({ min: -100_000, max: 100_000 }) },
      ),
      ids: fc.integer({ min: 0, max: 5 }),
      versions: fc.integer({ min: 0, max: 5 }),
    }),
    { maxLength: 60 },
  )
  .map((steps) => {
    let now = noonMs;
    return steps.map(({ step, ids, versions }): Take => {
      now += step;
      return { now, ids, versions };
    });
  });

/**
 * Start values of a workspace's sequence (src/records/workspaces.ts), including those just before the lower digits roll
 * over.
 */
const sequences = fc.oneof(
  fc.integer({ min: 0, max: 2 ** 46 }),
  fc.integer({ min: 1, max: 2 ** 14 }).map((n) => n * 65_536 - 3),
  fc.integer({ min: 1, max: 2 ** 14 }).map((n) => n * 58 ** 4 - 3),
);

test('ids ascend with creation and versions never repeat, also when the clock steps back', async () => {
  await fc.assert(
    fc.asyncProperty(sequences, histories, async (sequence, takes) => {
      const { ids, versions } = await take(sequence, takes);
      for (const id of ids) expect(id).toMatch(/^[1-9A-HJ-NP-Za-km-z]{16}$/);
      // Byte order, which is the order of the lists in Redis.
      for (const [index, id] of ids.entries()) if (index > 0) expect(id > ids[index - 1]!).toBe(true);
      expect(new Set(versions).size).toBe(versions.length);
      for (const version of versions) expect(version).toMatch(/^[0-9a-f]{16}$/);
    }),
    { numRuns: 300 },
  );
});

test('no version repeats while the clock stops or is behind, for any number of versions', async () => {
  for (const sequence of [0, 65_530]) {
    const takes = Array.from({ length: 280 }, (_, index) => ({ now: noonMs - index, ids: 0, versions: 500 }));
    const { versions } = await take(sequence, takes);
    expect(versions.length).toBe(140_000);
    expect(new Set(versions).size).toBe(versions.length);
  }
});

const timeOf = (id: string) => [...id.slice(0, 8)].reduce((sum, digit) => sum * 58 + base58.indexOf(digit), 0);

test('the first half of an id is the time of its creation, in base58', async () => {
  const { ids } = await take(7, [{ now: noonMs, ids: 2, versions: 0 }]);
  expect(ids.map(timeOf)).toEqual([noonMs, noonMs]);
});

/** Packs ids and unpacks them again, with the time in each; false for a text that is no id. */
async function pack(ids: readonly string[]) {
  const hex = `string.gsub(packed, '.', function(c) return string.format('%02x', string.byte(c)) end)`;
  return (await run(
    `local rows = {}
     for index, id in ipairs(ARGV) do
       local packed = pack_id(id)
       rows[index] = packed and { (${hex}), unpack_id(packed), int(time_in(id)) } or false
     end
     return rows`,
    'unused',
    ids,
  )) as [hex: string, unpacked: string, time: string][];
}

test('an id packed in twelve bytes sorts like the id, and TypeScript and Lua read it', async () => {
  const anyId = fc.string({ unit: fc.constantFrom(...base58), minLength: 16, maxLength: 16 });
  await fc.assert(
    fc.asyncProperty(fc.array(anyId, { minLength: 2, maxLength: 50 }), async (some) => {
      const ids = [...some, '1111111111111111', 'zzzzzzzzzzzzzzzz'].sort();
      const rows = await pack(ids);
      const packed = rows.map(([hex]) => hex);
      for (const hex of packed) expect(hex).toMatch(/^[0-9a-f]{24}$/);
      expect([...packed].sort()).toEqual(packed);
      expect(rows.map(([_, unpacked]) => unpacked)).toEqual(ids);
      expect(packed.map((hex) => unpackId(Buffer.from(hex, 'hex')))).toEqual(ids);
      expect(ids.map((id) => packId(`${id}more`).toString('hex'))).toEqual(packed);
      // No character that is not base58 makes the id of another key.
      for (const wrong of ['0', 'l', 'é', ' ']) {
        expect(packId(ids[0]!.slice(0, 15) + wrong)).toEqual(Buffer.alloc(12));
      }
      expect(rows.map(([_, __, time]) => Number(time))).toEqual(ids.map(timeOf));
    }),
    { numRuns: 50 },
  );
});

test('a string that is no id is not packed', async () => {
  const id = '1pA8QDz9JfovSVsy';
  for (const at of [0, 7, 8, 15]) expect(await pack([`${id.slice(0, at)}0${id.slice(at + 1)}`])).toEqual([null]);
});
