// lua/include/state.lua and limit_list.replace: packed values are read back exactly, and replacing a key's limits loses
// no id and no count.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { limitValues } from '../../../src/domain/limit.ts';
import { keyFlags, keyMarks, keyTimes, limit, never, usage } from '../../../src/scripts/layout.ts';
import { snippets } from '../../support/snippet.ts';

const { run } = snippets();

const hex = (text: string) => Buffer.from(text, 'latin1').toString('hex');
/** Bytes are passed as hex, because cjson needs text. */
const bytesOfHex = `local function bytes(hex) return (string.gsub(hex, '..', function(c) return string.char(tonumber(c, 16)) end)) end
  local function hex(bytes) return (string.gsub(bytes, '.', function(c) return string.format('%02x', string.byte(c)) end)) end`;

const anyByte = fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code));
const bytes = (minLength: number, maxLength: number) => fc.string({ unit: anyByte, minLength, maxLength });
const safeInteger = fc.oneof(
  fc.maxSafeNat(),
  fc.constantFrom(0, 1, 255, 256, 65_535, 2 ** 32, Number.MAX_SAFE_INTEGER),
);
const time = fc.oneof(fc.integer({ min: 0, max: 4_102_444_800_000 }), fc.constantFrom(0, 4_102_444_800_000));

/** The values of a limit, each of which fits its bytes. */
const values = Object.fromEntries(
  Object.entries(limitValues).map(([name, { kind }]) => [
    name,
    kind === 'number'
      ? safeInteger.map((number) => number % 256 ** limit.fields[name as 'limit' | 'duration'].bytes)
      : fc.constantFrom(0, 1),
  ]),
);
const permanent = { id: bytes(16, 16), name: bytes(3, 512), ...values, window: bytes(0, 2048) };
const { type: _type, ...formerValues } = values;
/** A former limit is at least 1. */
const former = fc.record({ ...formerValues, limit: fc.integer({ min: 1, max: 2 ** 40 }) });
const limits = fc.array(
  fc.oneof(
    fc.record(permanent),
    fc.record({ ...permanent, of_plan: fc.constant(true) }),
    fc.record({ ...permanent, ends: time }),
    fc.record({ ...permanent, ends: time, former }),
  ),
  { maxLength: 50, size: 'medium' },
);
const derived: readonly string[] = ['extended', 'temporary'];
const states = fc.record({
  id: bytes(24, 24),
  version: bytes(8, 8),
  // `extended` follows from the fields of the extension, and `temporary` from the limits.
  ...Object.fromEntries(keyFlags.filter((flag) => !derived.includes(flag)).map((flag) => [flag, fc.boolean()])),
  ...Object.fromEntries(keyMarks.map((mark) => [mark, fc.boolean()])),
  forbidden: fc.integer({ min: 0, max: 3 }),
  holds_due: fc.oneof(time, fc.constant(never)),
  ...Object.fromEntries(Object.keys(keyTimes).map((name) => [name, time])),
  balance: fc.oneof(safeInteger, fc.integer({ min: -Number.MAX_SAFE_INTEGER, max: -1 })),
  refill_amount: safeInteger,
  refill_day: fc.integer({ min: 0, max: 31 }),
  refill_due: time,
  last_used: time,
  balances: fc.constant(0),
  usage: bytes(usage.bytes, usage.bytes),
  link: fc.oneof(fc.constant(''), bytes(17, 271)),
  limits,
});

/** Strings as hex and numbers as decimal text, as the snippets expect and return them. */
const asText = (value: unknown): unknown => {
  if (typeof value === 'string') return hex(value);
  if (typeof value === 'number') return String(value);
  if (Array.isArray(value)) return value.map(asText);
  if (typeof value === 'object')
    return Object.fromEntries(Object.entries(value as object).map(([k, v]) => [k, asText(v)]));
  return value;
};

const textToLua = `
  local texts = { id = true, version = true, usage = true, link = true, id16 = true, name = true, window = true }
  local function from_text(t)
    for field, value in pairs(t) do
      if texts[field] then t[field] = bytes(value)
      elseif type(value) == 'table' then from_text(value)
      elseif type(value) == 'string' then t[field] = tonumber(value) end
    end
    return t
  end
  local function to_text(t)
    for field, value in pairs(t) do
      if texts[field] then t[field] = hex(value)
      elseif type(value) == 'table' then to_text(value)
      elseif type(value) == 'number' then t[field] = int(value) end
    end
    return t
  end`;

test('a key state is read as it was packed', async () => {
  await fc.assert(
    fc.asyncProperty(states, async (state) => {
      const [read, again] = (await run(
        `${bytesOfHex} ${textToLua}
         local packed = pack_state(from_text(cjson.decode(ARGV[1])))
         return { cjson.encode(to_text(read_state(packed))), pack_state(read_state(packed)) == packed and 1 or 0 }`,
        'tg:{none}',
        [JSON.stringify(asText(state))],
      )) as [string, number];
      const { limits, extended: _, temporary, ...rest } = JSON.parse(read) as Record<string, unknown>;
      expect(temporary).toBe(state.limits.some((limit) => 'ends' in limit));
      // cjson prints an empty list as an empty object.
      expect({ ...rest, limits: state.limits.length === 0 ? [] : limits }).toEqual(asText(state));
      expect(again).toBe(1);
    }),
    { numRuns: 300 },
  );
});

/** The highest bits of the time in a version are those of a balance, of temporary limits and of a plan. */
const version = bytes(8, 8).map((text) => String.fromCharCode(text.charCodeAt(0) & 31) + text.slice(1));
const [has_balance, has_plan] = [fc.boolean(), fc.boolean()];
const identities = fc.record({ id16: bytes(16, 16), version, has_balance, has_plan, limits });

test('an identity is read as it was packed', async () => {
  await fc.assert(
    fc.asyncProperty(identities, async (identity) => {
      const read = await run(
        `${bytesOfHex} ${textToLua}
         return cjson.encode(to_text(packed_identity.read(packed_identity.pack(from_text(cjson.decode(ARGV[1]))))))`,
        'tg:{none}',
        [JSON.stringify(asText(identity))],
      );
      const { limits, ...rest } = JSON.parse(read as string) as { limits: unknown };
      expect({ ...rest, limits: identity.limits.length === 0 ? [] : limits }).toEqual(asText(identity));
    }),
    { numRuns: 100 },
  );
});

/** Replaces the limits several times, and charges some counters in between: these get a window. */
const replacements = fc.array(
  fc.record({
    wanted: fc.uniqueArray(
      fc.record({
        name: fc.constantFrom('one', 'two', 'three', 'four'),
        limit: fc.integer({ min: 1, max: 1000 }),
        duration: fc.constantFrom(1000, 60_000, Number.MAX_SAFE_INTEGER),
        autoApply: fc.boolean(),
      }),
      { selector: ({ name }) => name },
    ),
    charged: fc.array(fc.constantFrom('one', 'two', 'three', 'four'), { maxLength: 3 }),
  }),
  { minLength: 1, maxLength: 12 },
);

let workspaces = 0;

test('replacing limits keeps the id of a name, and the count of a name and duration, also of one that was removed meanwhile', async () => {
  await fc.assert(
    fc.asyncProperty(replacements, async (steps) => {
      const found = (await run(
        `${bytesOfHex}
         local ids = 0
         local function next_id()
           ids = ids + 1
           return string.format('%016d', ids)
         end
         local limits, found = {}, {}
         for index, step in ipairs(cjson.decode(ARGV[1])) do
           local counters
           limits, counters = limit_list.replace(KEYS[1], 'owner', limits, step.wanted, index)
           limit_list.name(limits, next_id)
           limit_list.keep_counters(KEYS[1], 'owner', KEYS[1] .. ':k:owner', counters, index)
           local row = {}
           for at, l in ipairs(limits) do
             row[at] = { l.id, l.name, int(l.limit), int(l.duration), l.autoApply, l.window }
             for _, name in ipairs(step.charged) do
               if name == l.name then l.window = 'charged in step ' .. index .. ' ' .. name end
             end
           end
           for _, l in ipairs(limits) do
             -- Its window is in the record now, and nowhere else.
             if redis.call('EXISTS', name_of.window_at(KEYS[1], 'owner', name_of.window_member(l.duration, l.name))) == 1 then row = 'left behind' end
           end
           limits = read_limits((pack_limits(limits)), 1, 0)
           found[index] = row
         end
         return found`,
        `tg:{state${process.env.VITEST_POOL_ID}_${++workspaces}}`,
        [JSON.stringify(steps)],
      )) as string[][][];

      let lastId = 0;
      let ids = new Map<string, string>();
      const windows = new Map<string, string>();
      const expected = steps.map(({ wanted, charged }, index) => {
        const idOf = ({ name }: { name: string }) => ids.get(name) ?? String(++lastId).padStart(16, '0');
        const rows = wanted.map((limit) => {
          const window = windows.get(`${limit.name} ${limit.duration}`) ?? '';
          return [idOf(limit), limit.name, `${limit.limit}`, `${limit.duration}`, limit.autoApply ? 1 : 0, window];
        });
        ids = new Map(rows.map(([id, name]) => [name as string, id as string]));
        for (const { name, duration } of wanted) {
          if (charged.includes(name)) windows.set(`${name} ${duration}`, `charged in step ${index + 1} ${name}`);
        }
        return rows;
      });
      expect(found).toEqual(expected);
    }),
    { numRuns: 300 },
  );
});
