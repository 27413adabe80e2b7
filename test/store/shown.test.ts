// What is remembered of keys, by itself; that it never answers stale is tested where it counts, with keys.verifyKey.

import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { ShownCache } from '../../src/store/shown.ts';

const idOf = (index: number) => `ws_${createHash('sha256').update(`${index}`).digest().toString('latin1')}`;

/** As lua/decide.lua packs a plain key with this name. */
function packed(version: number, name: string): Buffer {
  const head = Buffer.alloc(9);
  head.writeUInt32BE(version, 4);
  const expires = Buffer.from('ffffffffffff', 'hex');
  const nameBytes = Buffer.alloc(2);
  nameBytes.writeUInt16BE(name.length + 1);
  const rest = Buffer.alloc(4 + 4 + 1); // No meta, permissions, roles or limits.
  return Buffer.concat([head, Buffer.from('1'.repeat(24)), Buffer.of(1), expires, nameBytes, Buffer.from(name), rest]);
}

test('a key is held from the second time on, with its version', () => {
  const cache = new ShownCache();
  expect(cache.add(idOf(1), packed(7, 'Ada'), undefined).fields).toContain('"name":"Ada"');
  expect(cache.find(idOf(1))).toBeUndefined();
  cache.add(idOf(1), packed(7, 'Ada'), undefined);
  const known = cache.find(idOf(1));
  expect(known?.shown.fields).toContain('"name":"Ada"');
  expect(Buffer.from(known!.version, 'latin1').readUInt32BE(4)).toBe(7);
});

test('what is held is replaced by a newer version at once', () => {
  const cache = new ShownCache();
  cache.add(idOf(1), packed(1, 'before'), undefined);
  cache.add(idOf(1), packed(1, 'before'), undefined);
  cache.add(idOf(1), packed(2, 'after'), cache.find(idOf(1)));
  expect(cache.find(idOf(1))?.shown.fields).toContain('"name":"after"');
});

test('of keys that come once, hardly any is held, however many there are', () => {
  const cache = new ShownCache();
  const many = 300_000;
  for (let index = 0; index < many; index++) cache.add(idOf(index), packed(1, 'once'), undefined);
  let held = 0;
  for (let index = 0; index < many; index++) if (cache.find(idOf(index))) held++;
  // Those whose digests end like that of another.
  expect(held / many).toBeLessThan(0.1);
});
