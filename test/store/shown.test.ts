// What is remembered of keys, by itself; that it never answers stale is tested where it counts, with keys.verifyKey.

import { expect, test } from 'vitest';
import { digestTextOf } from '../../src/domain/keyString.ts';
import { readTold, ShownCache } from '../../src/store/shown.ts';

const workspaceId = 'ws_1';
const digestOf = (index: number) => digestTextOf(`${index}`);

/** Of a plain key with this name and so many limits, as lua/decide.lua packs it. */
function told(version: number, name: string, limits = 0) {
  const head = Buffer.alloc(9);
  head.writeUInt32BE(version, 4);
  const expires = Buffer.from('ffffffffffff', 'hex');
  const nameBytes = Buffer.alloc(2);
  nameBytes.writeUInt16BE(name.length + 1);
  const rest = Buffer.alloc(4 + 4 + 2); // No meta, permissions or roles.
  const limitName = 'l'.repeat(100);
  const limit = Buffer.concat([Buffer.alloc(16), Buffer.of(limitName.length), Buffer.from('1'.repeat(16) + limitName)]);
  const ratelimits = [Buffer.of(limits), ...Array.from({ length: limits }, () => limit)];
  const ids = Buffer.from(`${'1'.repeat(16)}api_${'1'.repeat(16)}`);
  return readTold(Buffer.concat([head, ids, Buffer.of(1), expires, nameBytes, Buffer.from(name), rest, ...ratelimits]));
}

test('a key is held from the second time on, with its version', () => {
  const cache = new ShownCache();
  expect(cache.add(workspaceId, digestOf(1), told(7, 'Ada'), undefined).fields).toContain('"name":"Ada"');
  expect(cache.find(workspaceId, digestOf(1))).toBeUndefined();
  cache.add(workspaceId, digestOf(1), told(7, 'Ada'), undefined);
  const known = cache.find(workspaceId, digestOf(1));
  expect(known?.shown.fields).toContain('"name":"Ada"');
  expect(Buffer.from(known!.version, 'latin1').readUInt32BE(4)).toBe(7);
});

test('what is held is replaced by a newer version at once', () => {
  const cache = new ShownCache();
  cache.add(workspaceId, digestOf(1), told(1, 'before'), undefined);
  cache.add(workspaceId, digestOf(1), told(1, 'before'), undefined);
  cache.add(workspaceId, digestOf(1), told(2, 'after'), cache.find(workspaceId, digestOf(1)));
  expect(cache.find(workspaceId, digestOf(1))?.shown.fields).toContain('"name":"after"');
});

test('what is held for a workspace is not told to another that has the same key', () => {
  const cache = new ShownCache();
  const add = (workspaceId: string, name: string) => cache.add(workspaceId, digestOf(1), told(1, name), undefined);
  add('ws_1', 'one');
  add('ws_1', 'one');
  expect(cache.find('ws_2', digestOf(1))).toBeUndefined();
  expect(add('ws_2', 'two').fields).toContain('"name":"two"');
  expect(cache.find('ws_2', digestOf(1))?.shown.fields).toContain('"name":"two"');
  expect(cache.find('ws_1', digestOf(1))).toBeUndefined();
});

test('of keys that come once, hardly any is held, however many there are', () => {
  const cache = new ShownCache();
  const many = 300_000;
  for (let index = 0; index < many; index++) cache.add(workspaceId, digestOf(index), told(1, 'once'), undefined);
  let held = 0;
  for (let index = 0; index < many; index++) if (cache.find(workspaceId, digestOf(index))) held++;
  // Those whose digests end like that of another.
  expect(held / many).toBeLessThan(0.1);
});

test('what is held is bounded in bytes, those of limits among them', () => {
  const cache = new ShownCache();
  for (let index = 0; index < 8000; index++) {
    for (let time = 0; time < 2; time++) cache.add(workspaceId, digestOf(index), told(1, 'limited', 50), undefined);
  }
  expect(cache.find(workspaceId, digestOf(7999))?.shown.keyLimits).toHaveLength(50);
  expect(cache.find(workspaceId, digestOf(0))).toBeUndefined();
});
