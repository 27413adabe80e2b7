// lua/include/starts.lua: the index finds what a comparison with all keys finds, after any changes, and leaves nothing
// behind.

import { afterEach, expect, test } from 'vitest';
import { packId } from '../../../src/domain/keyString.ts';
import { random, seed } from '../../support/random.ts';
import { snippets } from '../../support/snippet.ts';

const snippet = snippets();
const workspace = `tg:{starts${process.env.VITEST_POOL_ID}}`;
const api8 = 'ApiApi88';

interface Key {
  start: string;
  id: Buffer;
}

afterEach(async () => {
  const names = await snippet.redis.keysBuffer(`${workspace}*`);
  if (names.length > 0) await snippet.redis.del(names);
});

const changes = {
  index: `
    local entries = {}
    for index = 1, #ARGV, 2 do
      if ARGV[index] ~= '' then entries[#entries + 1] = start_entry(ARGV[index], ARGV[index + 1] .. 'the digest') end
    end
    indexing_starts(KEYS[1], '${api8}', entries)()`,
  unindex: `
    for index = 1, #ARGV, 2 do
      unindexing_start(KEYS[1], '${api8}', ARGV[index], ARGV[index + 1] .. 'the digest')()
    end`,
};
const change = (name: keyof typeof changes, keys: readonly Key[]) =>
  snippet.run(
    changes[name],
    workspace,
    keys.flatMap(({ start, id }) => [start, id]),
  );

/** Packed ids as text, in order; undefined if they are in too many leaves. */
async function find(start: string, leavesMax: number): Promise<string[] | undefined> {
  const reply = (await snippet.run(
    `local ids = ids_with_start(KEYS[1], '${api8}', ARGV[1], tonumber(ARGV[2]))
     for index, id in ipairs(ids or {}) do
       ids[index] = string.gsub(id, '.', function(byte) return string.format('%02x', string.byte(byte)) end)
     end
     return ids`,
    workspace,
    [start, leavesMax],
  )) as string[] | null;
  return reply?.sort();
}

const expected = (keys: readonly Key[], start: string) =>
  keys
    .filter((key) => key.start !== '' && (key.start.startsWith(start) || start.startsWith(key.start)))
    .map(({ id }) => id.toString('hex'))
    .sort();

const base58 = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';
const everything = 1e6;

test(`finds what a comparison finds (seed ${seed})`, { timeout: 60_000 }, async () => {
  const pick = random(seed);
  const one = <Item>(items: ArrayLike<Item>) => items[pick(0, items.length - 1)]!;
  const letters = (count: number) => Array.from({ length: count }, () => one(base58)).join('');
  let sequence = 0;
  const someId = () => packId(`1oTP${letters(4)}${`${++sequence}`.replaceAll('0', 'z').padStart(8, '1')}`);
  const someStart = () => {
    const prefix = one(['pay_', 'pay_', 'pay_', 'admin_', '', 'pay_live_']);
    // Most as they are made, some as they are imported.
    return one([
      ...Array(9).fill(prefix + letters(4)),
      one(['', 'p', 'pay_', 'pay_F', 'é', 'same', 'same', 'pay_\0x']),
    ]) as string;
  };
  let keys: Key[] = [];
  for (let round = 0; round < 12; round++) {
    const added = Array.from({ length: pick(100, 700) }, () => ({ start: someStart(), id: someId() }));
    // The same key twice, as after an import of a key that was deleted.
    if (round === 3) added.push({ ...added[0]! }, { ...added[0]! });
    await change('index', added);
    keys.push(...added);
    const removals = pick(0, Math.min(300, keys.length >> 1));
    const removed = Array.from({ length: removals }, () => keys.splice(pick(0, keys.length - 1), 1)[0]!);
    await change('unindex', removed);
    const sample = [one(keys).start, one(keys).start, one(removed.length > 0 ? removed : keys).start];
    const queries = sample.filter((start) => start !== '');
    const cut = queries.flatMap((start) => [1, 4, 5, 6].map((length) => start.slice(0, length)));
    for (const start of [...queries, ...queries.map((start) => `${start}9zz`), ...cut, 'p', 'same', 'sames', 'x']) {
      expect(await find(start, everything), `round ${round}: ${start}`).toEqual(expected(keys, start));
    }
  }
  const leaves = (await snippet.redis.keys(`${workspace}:sl:*`)).length;
  expect(leaves).toBeGreaterThan(8);
  expect(await snippet.redis.zcard(`${workspace}:sb:${api8}`)).toBe(leaves);
  for (const name of await snippet.redis.keysBuffer(`${workspace}:sl:*`)) {
    expect(await snippet.redis.llen(name)).toBeLessThanOrEqual(256);
  }
  expect(await find('pay_', leaves - 1)).not.toBeUndefined();
  expect(await find('pay_', 2)).toBeUndefined();

  while (keys.length > 0) {
    await change('unindex', keys.slice(0, 1000));
    keys = keys.slice(1000);
  }
  expect(await snippet.redis.keys(`${workspace}*`)).toEqual([]);
});

test('many keys with the same start, in order of creation, are in leaves that are at least half full', async () => {
  const keys = Array.from({ length: 3000 }, (_, index) => {
    const id = Buffer.from('019a9e8f9000000000000000', 'hex');
    id.writeUInt32BE(index, 8);
    return { start: 'sk_live_', id };
  });
  for (let from = 0; from < keys.length; from += 1000) await change('index', keys.slice(from, from + 1000));
  const leaves = (await snippet.redis.keys(`${workspace}:sl:*`)).length;
  expect(leaves).toBeLessThanOrEqual(3000 / 120);
  expect(await find('sk_live_ABCD', everything)).toHaveLength(3000);
  expect(await find('sk_test_', everything)).toEqual([]);
});

test('the leaves of a deleted API are removed in steps', async () => {
  const keys = Array.from({ length: 1000 }, (_, index) => ({ start: `k${index}`, id: packId('1oTPP4VGVSsCMaBB') }));
  await change('index', keys);
  const remove = () => snippet.run(`return remove_starts(KEYS[1], '${api8}', 4)`, workspace, []);
  expect(await remove()).toBeNull();
  expect((await snippet.redis.keys(`${workspace}*`)).length).toBeGreaterThan(0);
  while (!(await remove()));
  expect(await snippet.redis.keys(`${workspace}*`)).toEqual([]);
});
