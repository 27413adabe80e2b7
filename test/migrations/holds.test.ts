// Holds of data versions 6 and 7: servers of both releases change the holds of a key, then the data is migrated.

import { pino } from 'pino';
import { afterEach, expect, test } from 'vitest';
import { digestOf } from '../../src/domain/keyString.ts';
import { createPipeline } from '../../src/http/pipeline.ts';
import { operations } from '../../src/operations/index.ts';
import { keyRecordKey, workspaceKey } from '../../src/redis/names.ts';
import { openStore, type Store } from '../../src/store.ts';
import { earlierRelease, lastCommits, openEarlier } from '../support/earlierRelease.ts';
import { hourMs, jsonOf, requestTo, testSettings } from '../support/harness.ts';
import { dirOfFile } from '../support/ofFile.ts';
import { endAll, startRedis } from '../support/processes.ts';
import { storedHolds } from '../support/storedHolds.ts';

const release = earlierRelease(lastCommits[6]!);
const nowMs = Date.UTC(2026, 1, 2, 12, 30);
const dir = dirOfFile();
afterEach(endAll);

type Send = (path: string, input: object) => Promise<Record<string, unknown>>;

function sender(store: Store, rootKey: string): Send {
  const respond = createPipeline(operations, { store, log: pino({ level: 'silent' }), metaBytesMax: 10_240 });
  return async (path, input) => {
    const request = requestTo(`/v2/${path}`, rootKey, { body: JSON.stringify(input) });
    const response = await respond(request);
    expect(response.status, path).toBe(200);
    return jsonOf(response, request.requestId).data;
  };
}

test.skipIf(!release)('two releases change the holds of a key, which are migrated', { timeout: 60_000 }, async () => {
  // Its own: the earlier release fails when servers of other tests, as they start, remove its library twice at once.
  const { url, admin: redis } = await startRedis(dir, { fsync: 'off' });
  // The first process decides the version of new data.
  const earlier = await openEarlier(release!, { ...testSettings, url });
  await earlier.setClock(nowMs);
  const { workspaceId, rootKey } = await earlier.createWorkspace('both');
  const old: Send = async (path, input) => {
    const { status, json } = await earlier.send(`/v2/${path}`, rootKey, input);
    expect(status, path).toBe(200);
    return (json as unknown as { data: Record<string, unknown> }).data;
  };
  const store = await openStore({ ...testSettings, url, nowMs: () => nowMs });
  const present = sender(store, rootKey);
  try {
    expect(store.dataVersion.current).toBe(6);
    const { apiId } = await old('apis.createApi', { name: 'both' });
    const ratelimits = [{ name: 'tokens', limit: 1_000_000, duration: hourMs, autoApply: true }];
    const fields = { apiId, credits: { remaining: 10_000 }, ratelimits };
    const { key, keyId } = (await old('keys.createKey', fields)) as { key: string; keyId: string };
    const holdsOf = () => storedHolds(redis, keyRecordKey(workspaceKey(workspaceId), digestOf(key)));
    const open: string[] = [];
    const hold = async (send: Send) => {
      const verified = await send('keys.verifyKey', { key, credits: { cost: 2 }, hold: { ttl: hourMs } });
      open.push((verified.hold as { id: string }).id);
    };
    const end = async (send: Send, at: number) => {
      const [holdId] = open.splice(at, 1);
      await send(at % 2 === 0 ? 'keys.settleHold' : 'keys.releaseHold', { holdId });
    };
    const agree = async () => {
      const { length } = open;
      const { holds } = await present('keys.explainKey', { keyId });
      expect(holds).toEqual({ open: length, credits: 2 * length, ratelimits: [{ name: 'tokens', cost: length }] });
    };
    for (let number = 0; number < 120; number++) {
      await hold(number % 2 === 0 ? old : present);
      if (number % 5 === 4) await end(number % 2 === 0 ? present : old, number % 7);
    }
    await agree();
    expect(await holdsOf()).toMatchObject({ isSummed: false });
    expect((await holdsOf()).buckets.length).toBeGreaterThan(2);
    const listed = await old('keys.listHolds', { keyId });
    expect(listed).toEqual(await present('keys.listHolds', { keyId }));

    expect(await store.migrations.migrate()).toBe('blocked');
    await earlier.close();
    expect(await store.migrations.migrate()).toBe('migrated');
    // Holds of before are read as they are, until one is added.
    await end(present, 3);
    expect(await holdsOf()).toMatchObject({ isSummed: false });
    await agree();
    await hold(present);
    for (let round = 0; round < 40; round++) {
      const { openBytes, bytes, stated } = await holdsOf();
      expect(stated).toEqual({ openBytes, bytes });
      await (round % 3 === 0 ? hold(present) : end(present, (round * 7) % open.length));
    }
    await agree();
    while (open.length > 0) await end(present, 0);
    const { holds } = await present('keys.explainKey', { keyId });
    expect(holds).toBeUndefined();
    expect(await holdsOf()).toMatchObject({ isSummed: true, openBytes: 0 });
  } finally {
    await store.close();
  }
});
