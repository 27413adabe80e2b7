// The cache of snapshots alone. The tests of keys.verifyKey show that no response is stale.

import { expect, test } from 'vitest';
import { SnapshotCache, type VersionedSnapshot } from '../../src/decide/snapshots.ts';
import { digestTextOf } from '../../src/domain/keyString.ts';
import { adHocLimit } from '../../src/domain/limit.ts';

const workspaceId = 'ws_1';
const digestOf = (index: number) => digestTextOf(`${index}`);

/** The snapshot of a key with this name and number of limits. */
const versioned = (version: number, name: string, limits = 0): VersionedSnapshot => ({
  version: `version ${version}`,
  snapshot: {
    keyId: 'key_1',
    apiId: 'api_1',
    enabled: true,
    expires: undefined,
    values: { name },
    permissions: [],
    roles: [],
    ratelimits: Array.from({ length: limits }, () => adHocLimit('l'.repeat(100), 1, 1000, 0)),
    identity: undefined,
    plan: undefined,
  },
});

test('a key is cached from its second use on, with its version', () => {
  const cache = new SnapshotCache();
  expect(cache.add(workspaceId, digestOf(1), versioned(7, 'Ada'), undefined, 0).fields).toContain('"name":"Ada"');
  expect(cache.find(workspaceId, digestOf(1))).toBeUndefined();
  cache.add(workspaceId, digestOf(1), versioned(7, 'Ada'), undefined, 0);
  const known = cache.find(workspaceId, digestOf(1));
  expect(known?.snapshot.fields).toContain('"name":"Ada"');
  expect(known?.version).toBe('version 7');
});

test('a newer version replaces a cached snapshot at once', () => {
  const cache = new SnapshotCache();
  cache.add(workspaceId, digestOf(1), versioned(1, 'before'), undefined, 0);
  cache.add(workspaceId, digestOf(1), versioned(1, 'before'), undefined, 0);
  cache.add(workspaceId, digestOf(1), versioned(2, 'after'), cache.find(workspaceId, digestOf(1)), 0);
  expect(cache.find(workspaceId, digestOf(1))?.snapshot.fields).toContain('"name":"after"');
});

test('an entry is recent until another version or another generation takes its place', () => {
  const cache = new SnapshotCache();
  for (const version of [1, 1]) cache.add(workspaceId, digestOf(1), versioned(version, 'before'), undefined, 0);
  const before = cache.find(workspaceId, digestOf(1))!;
  expect(cache.isRecent(before)).toBe(true);
  cache.add(workspaceId, digestOf(1), versioned(2, 'after'), before, 0);
  const after = cache.find(workspaceId, digestOf(1))!;
  expect([before, after].map((entry) => cache.isRecent(entry))).toEqual([false, true]);
  // 72 MB of other keys.
  for (let index = 2; index < 182; index++) {
    for (const _ of [1, 2]) cache.add(workspaceId, digestOf(index), versioned(1, 'n'.repeat(400_000)), undefined, 0);
  }
  expect(cache.find(workspaceId, digestOf(1))).toBeUndefined();
  expect(cache.isRecent(after)).toBe(false);
});

test('a snapshot of one workspace is not found by another that has the same key', () => {
  const cache = new SnapshotCache();
  const add = (workspaceId: string, name: string) =>
    cache.add(workspaceId, digestOf(1), versioned(1, name), undefined, 0);
  add('ws_1', 'one');
  add('ws_1', 'one');
  expect(cache.find('ws_2', digestOf(1))).toBeUndefined();
  expect(add('ws_2', 'two').fields).toContain('"name":"two"');
  expect(cache.find('ws_2', digestOf(1))?.snapshot.fields).toContain('"name":"two"');
  expect(cache.find('ws_1', digestOf(1))).toBeUndefined();
});

test('very few of the keys that are used once are cached, for any number of keys', () => {
  const cache = new SnapshotCache();
  const many = 300_000;
  for (let index = 0; index < many; index++)
    cache.add(workspaceId, digestOf(index), versioned(1, 'once'), undefined, 0);
  let cached = 0;
  for (let index = 0; index < many; index++) if (cache.find(workspaceId, digestOf(index))) cached++;
  // The few that are cached: the last bits of their digests are those of another key.
  expect(cached / many).toBeLessThan(0.1);
});

test('the cache is bounded in bytes, limits included', () => {
  const cache = new SnapshotCache();
  for (let index = 0; index < 8000; index++) {
    for (let time = 0; time < 2; time++)
      cache.add(workspaceId, digestOf(index), versioned(1, 'limited', 50), undefined, 0);
  }
  expect(cache.find(workspaceId, digestOf(7999))?.snapshot.keyLimits).toHaveLength(50);
  expect(cache.find(workspaceId, digestOf(0))).toBeUndefined();
});
