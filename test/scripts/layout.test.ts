// src/scripts/layout.ts: its example is what Lua packs, stored bytes change only with the version of the data, and the
// library stays below the limits of Lua.

import { readFileSync, writeFileSync } from 'node:fs';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  dataVersion,
  keyFixed,
  limit,
  limitCheck,
  limitEnd,
  luaLiterals,
  verifyItem,
} from '../../src/scripts/layout.ts';
import { buildLibrary, isModule, readLua } from '../../src/scripts/library.ts';
import { library } from '../../src/scripts/loader.ts';
import { bytes, list, opaque, optional, Reader, rest, sized, struct, text, uint } from '../../src/scripts/struct.ts';
import { packDays } from '../../src/usage/days.ts';
import { snippets } from '../support/snippet.ts';

const snippet = snippets();

/** Stored records, created by the functions that store them. The key is the example of layout.ts. */
const make = `
  local window = new_window({ 1763596805257 }, { 3 }, 1)
  local limits = { limit_list.of({ name = 'minute', limit = 10, duration = 60000, autoApply = true }) }
  limits[1].id, limits[1].window = 'LimitId123456789', window
  local version = struct.pack(VERSION, 1763596800000, 7)
  local hour_counts = { 489900 }
  for outcome = 1, OUTCOMES_IN_TAIL do hour_counts[outcome + 1] = outcome == VALID and 3 or 0 end
  hour_counts[OUTCOMES_IN_TAIL + 2] = 3
  local usage = struct.pack(USAGE, unpack(hour_counts))
  local key = pack_state({ id = 'AbCdEfGh12345678ApiApi88', version = version, enabled = true, limited = true, refilled = true,
    expires = NEVER, refill_amount = 1000, refill_day = 0, link = 'Identity12345678user_1', limits = limits, balance = 100,
    refill_due = 1763683200000, last_used = 1763596805256, usage = usage })
  local identity = packed_identity.pack({ id16 = 'Identity12345678', version = version, limits = limits })
  local override = struct.pack(OVERRIDE, 'Override12345678', 10, 60000, 1763596800000)
  local stored = { key, identity, (usage_entry('user_1', usage, 0)), override, pack_id('AbCdEfGh12345678') }
  for index, packed in ipairs(stored) do
    stored[index] = string.gsub(packed, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
  end
  return stored`;

/** A day with two hours, one of them with credits, and a day before without its hours. */
const days = packDays({ rewrites: 1, week: 2916 }, [
  { day: 20412, externalId: '', sums: [70_000, 0, 3, 0, 0, 0, 0, 0], hours: undefined },
  {
    day: 20413,
    externalId: 'user_1',
    sums: [303, 2, 0, 0, 0, 0, 5, 0],
    hours: new Map([
      [7, [300, 2, 0, 0, 0, 0, 0, 0]],
      [23, [3, 0, 0, 0, 0, 0, 5, 0]],
    ]),
  },
]);

const stored = async () => {
  const [key, identity, hour, override, id] = (await snippet.run(make, 'tg:{none}', [])) as string[];
  return { key, identity, hour, days: days.toString('hex'), override, id };
};

test('the example in the comment of layout.ts is what Lua packs', async () => {
  const source = readFileSync(new URL('../../src/scripts/layout.ts', import.meta.url), 'utf8');
  const rows = source.matchAll(/^\/\/ {3}[a-z ]{8} {2}((?:[0-9a-f]{2} )*[0-9a-f]{2})(?: {2}|$)/gm);
  expect([...rows].map(([, hex]) => hex!.replaceAll(' ', '')).join('')).toBe((await stored()).key);
});

test('a temporary override is a permanent one and its end', async () => {
  const [permanent, temporary] = (await snippet.run(
    `local permanent = struct.pack(OVERRIDE, 'Override12345678', 10, 60000, 1763596800000)
    local packed = { permanent, permanent .. struct.pack(OVERRIDE_END, 1763600400000, 1, 5, 30000) }
    for index, text in ipairs(packed) do
      packed[index] = string.gsub(text, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
    end
    return packed`,
    'tg:{none}',
    [],
  )) as string[];
  expect(permanent).toBe((await stored()).override);
  expect(temporary).toBe(`${permanent}${['019a9ec67e80', '01', '00000000000005', '00000000007530'].join('')}`);
});

/**
 * Golden bytes by the version of the data. `UPDATE=1 npx vitest run test/scripts/layout.test.ts` adds those of a new
 * version.
 */
const goldenFile = new URL('golden.json', import.meta.url);

test('stored bytes change only with dataVersion', async () => {
  const golden = JSON.parse(readFileSync(goldenFile, 'utf8')) as Record<number, unknown>;
  if (process.env.UPDATE && !golden[dataVersion]) {
    golden[dataVersion] = await stored();
    writeFileSync(goldenFile, `${JSON.stringify(golden, undefined, 2)}\n`);
  }
  const message =
    'The layout of stored data changed: raise dataVersion in src/scripts/layout.ts, then run this test with UPDATE=1';
  expect(await stored(), message).toEqual(golden[dataVersion]);
  const changelog = readFileSync(new URL('../../CHANGELOG.md', import.meta.url), 'utf8');
  expect(changelog, 'CHANGELOG.md').toContain(`Stored data has version ${dataVersion}.`);
});

test('a restricted key has its extension after the limits, and FORBIDDEN is the last bit of an hour', async () => {
  const [plain, restricted, again, entry, counted] = (await snippet.run(
    `local hour_counts = { 489900 }
    for outcome = 1, OUTCOMES_IN_TAIL do hour_counts[outcome + 1] = outcome == VALID and 3 or 0 end
    hour_counts[OUTCOMES_IN_TAIL + 2] = 5
    local usage = struct.pack(USAGE, unpack(hour_counts))
    local state = { id = 'AbCdEfGh12345678ApiApi88', version = struct.pack(VERSION, 1763596800000, 7), enabled = true,
      expires = NEVER, refill_amount = 0, refill_day = 0, link = '', limits = {}, balance = 0, refill_due = 0, last_used = 0,
      usage = usage }
    local plain = pack_state(state)
    state.restricted, state.forbidden = true, 258
    local restricted = pack_state(state)
    local again = pack_state(read_state(restricted))
    local packed = { plain, restricted, again, (usage_entry('', usage, forbidden_of(restricted))) }
    for index, text in ipairs(packed) do
      packed[index] = string.gsub(text, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
    end
    packed[5] = { forbidden_of(plain), forbidden_of(restricted) }
    return packed`,
    'tg:{none}',
    [],
  )) as [string, string, string, string, number[]];
  // Flags (enabled, extended) after id16, version and api8; the extension before KEY_LIVE (19) and USAGE (35).
  const tailAt = plain.length - 2 * (19 + 35);
  const expected = `${plain.slice(0, 64)}41${plain.slice(66, tailAt)}0100000102ffffffffffff0000${plain.slice(tailAt)}`;
  expect([restricted, again]).toEqual([expected, expected]);
  expect(counted).toEqual([0, 258]);
  // Hour, bits of VALID (1), credits (64) and FORBIDDEN (128), their counts, no externalId.
  expect(entry).toBe(['000779ac', 'c1', '00000003', '00000000000005', '00000102', '00'].join(''));
});

test('a temporary limit has its end before its window, a flag in a key and a bit in an identity', async () => {
  const packed = (await snippet.run(
    `local version = struct.pack(VERSION, 1763596800000, 7)
    local limit = limit_list.of({ name = 'minute', limit = 10, duration = 60000, autoApply = true })
    limit.id, limit.window = 'LimitId123456789', new_window({ 1763596805257 }, { 3 }, 1)
    local function texts()
      local key = pack_state({ id = 'AbCdEfGh12345678ApiApi88', version = version, enabled = true, expires = NEVER,
        refill_amount = 0, refill_day = 0, link = '', limits = { limit }, balance = 0, refill_due = 0, last_used = 0,
        usage = NO_USAGE })
      local packed = { key, packed_identity.pack({ id16 = 'Identity12345678', version = version, limits = { limit } }) }
      for index, text in ipairs(packed) do
        packed[index] = string.gsub(text, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
      end
      return packed
    end
    local before = texts()
    limit.ends, limit.former = 1763600400000, { limit = 5, duration = 30000, autoApply = 0 }
    return { before, texts() }`,
    'tg:{none}',
    [],
  )) as string[][];
  const [[key, identity], [temporaryKey, temporaryIdentity]] = packed as [[string, string], [string, string]];
  const window = '0101';
  // Further values of the former limit are 0.
  const end = ['019a9ec67e80', '00000000000005', '00000000007530', '00'].join('').padEnd(2 * limitEnd.bytes, '0');
  const longer = (0x16 + limitEnd.bytes).toString(16).padStart(4, '0');
  const withEnd = (state: string, limitsAt: number) => {
    // After the switches of the limit, its window, and the length of that.
    const at = 2 * (limitsAt + 1 + limit.at.switches + 1);
    const windowAt = state.indexOf(window, at);
    const length = state.indexOf('0016', windowAt);
    const withSwitch = `${state.slice(0, at - 2)}05${state.slice(at, windowAt)}`;
    return `${withSwitch}${end}${state.slice(windowAt, length)}${longer}${state.slice(length + 4)}`;
  };
  // The last flag; the second bit of the version.
  expect(temporaryKey).toBe(withEnd(`${key.slice(0, 64)}81${key.slice(66)}`, keyFixed.bytes + 2));
  expect(key.slice(64, 66)).toBe('01');
  expect(temporaryIdentity).toBe(
    withEnd(`${identity.slice(0, 32)}41${identity.slice(34)}`, Number(luaLiterals.get('IDENTITY_LIMITS_AT')) - 1),
  );
});

/** Lua allows 60 upvalues in a function, and 200 locals at a time. */
const room = { upvalues: 46, names: 60 };

test(`Lua has room for more: ${room.upvalues} upvalues in any function, ${room.names} names in any module`, async () => {
  const { name, text } = library();
  /** Whether Redis loads the library with so many more upvalues in every function. */
  const fits = async (upvalues: number) => {
    const names = Array.from({ length: upvalues }, (_, index) => `room_${index}`).join(', ');
    // A function that uses a local of the frame has one more upvalue, even if that code never runs.
    const uses = ` if false then local _ = ${names} end`;
    const crowded = text.replace(/^(local )?function (?!load_modules).*\)$/gm, (head) => head + uses);
    expect(crowded.split(uses).length).toBeGreaterThan(80);
    const renamed = crowded
      .replace('function load_modules(is_dry)', `$& local ${names}`)
      .replaceAll('tollgate_', 'room_');
    // The name lacks the prefix of Tollgate's libraries, because a store that opens removes unused libraries with that
    // prefix.
    return snippet.redis.function('LOAD', 'REPLACE', renamed).then(
      () => true,
      ({ message }: Error) => {
        expect(message).toMatch(/upvalues/);
        return false;
      },
    );
  };
  let more = 0;
  while (more < 60 && (await fits(more + 1))) more++;
  expect(60 - more, 'upvalues of the largest function').toBeLessThanOrEqual(room.upvalues);
  // What exceeds the limits of Lua does not load, so the test does measure them.
  expect(more).toBeLessThan(40);
  await snippet.redis.function('DELETE', name.replace('tollgate_', 'room_'));

  // A script takes names as a module does; its own are locals of a function.
  const names = text.split(/^-- lua\//m).flatMap((module) => {
    const [, taken = ''] = /^(?:do|if not is_dry then) local ([\w, ]+) =/m.exec(module) ?? [];
    const own = [...module.matchAll(/^local (?:function (\w+)|([\w, ]+?)(?: =|$))/gm)];
    const counts = [taken.split(',').length, own.flatMap(([, one, some]) => one ?? some!.split(',')).length];
    return isModule(module) ? counts[0]! + counts[1]! : counts;
  });
  expect(Math.max(...names), 'names of the fullest module').toBeLessThanOrEqual(room.names);
  expect(Math.max(...names)).toBeGreaterThan(30);
});

const built = (lines: string) => buildLibrary(new Map([...readLua(), ['script', lines]]), undefined, ['script']);

test.each([
  [
    'another name',
    'local id, version = struct.unpack(IDENTITY_HEAD, packed)',
    'unpacked as id, version; its fields are id16, version',
  ],
  ['a name too few', 'local id16 = struct.unpack(IDENTITY_HEAD, packed)', 'unpacked as id16;'],
  ['a value too few', 'return struct.pack(IDENTITY_HEAD, id16)', 'packed from 1 values, and takes 2'],
  [
    'a value too many',
    'return struct.pack(IDENTITY_HEAD, f(id16, 1), version, { 1, 2 })',
    'packed from 3 values, and takes 2',
  ],
])('a script is not built that packs or unpacks a structure with %s', (_, line, problem) => {
  expect(() => built(`local packed\n${line}`)).toThrow(`lua/script.lua:2: IDENTITY_HEAD is ${problem}`);
});

test.each([
  'local id16, version, position = struct.unpack(IDENTITY_HEAD, packed)',
  's.id16, _ = struct.unpack(IDENTITY_HEAD, packed)',
  'return struct.pack(IDENTITY_HEAD, f(id16, 1), version)',
  'return struct.pack(KEY_TAIL, ...)',
])('%s is built', (line) => {
  expect(built(line)).not.toContain('IDENTITY_HEAD');
});

test('names in capitals become literals, but not in strings, and comments are left out', () => {
  expect(built("local a = 1\nreturn NEVER, 'NEVER' -- NEVER\n")).toContain(
    `\nreturn ${luaLiterals.get('NEVER')}, 'NEVER'\n`,
  );
});

const inner = struct({ time: uint(6), more: text(1) });
const everything = struct({
  one: uint(1),
  two: uint(2),
  four: uint(4),
  seven: uint(7),
  fixed: bytes(3),
  inner: opaque(inner),
  name: text(2),
  tail: rest,
});

test('written structures are read again, to the last byte', () => {
  const safe = fc.maxSafeNat();
  fc.assert(
    fc.property(
      fc.nat(255),
      fc.nat(65_535),
      fc.nat(2 ** 32 - 1),
      safe,
      fc.string({ unit: 'grapheme' }),
      (one, two, four, seven, name) => {
        const known = Buffer.concat([Buffer.alloc(6, one), Buffer.of(2), Buffer.from('ab')]).toString('latin1');
        const values = {
          one,
          two,
          four,
          seven,
          fixed: 'abc',
          inner: known,
          name: Buffer.from(name),
          tail: Buffer.from(name),
        };
        const buffer = Buffer.alloc(everything.bytes + 1000);
        const end = everything.write(buffer, 5, values);
        const read = everything.read(new Reader(buffer.subarray(5, end)));
        expect(read).toEqual({ ...values, name, tail: name });
        expect(everything.at.name).toBeUndefined();
      },
    ),
  );
});

test('lists, optional and sized texts are read as Lua packs them', () => {
  const of = struct({ length: uint(1), id: bytes(2), name: sized('length') });
  const read = struct({ meta: optional(2), none: optional(4), items: list(1, of) });
  const packed = Buffer.concat([
    Buffer.of(0, 3),
    Buffer.from('ä'),
    Buffer.alloc(4),
    Buffer.of(2, 1),
    Buffer.from('idx'),
    Buffer.of(2),
    Buffer.from('IDä'),
  ]);
  expect(read.read(new Reader(packed))).toEqual({
    meta: 'ä',
    none: undefined,
    items: [
      { length: 1, id: 'id', name: 'x' },
      { length: 2, id: 'ID', name: 'ä' },
    ],
  });
});

test('offsets end with the first field whose length differs', () => {
  expect(verifyItem.at).toMatchObject({ digest: 0, cost: 32, cached: 39 });
  expect(limitCheck.at).toEqual({ cost: 0, limit: 7, duration: 14, namespaceName: 21 });
});
