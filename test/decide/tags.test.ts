// What counts by tag repeat is stored from data version 7 on: servers of earlier versions would take it for a tag.

import { expect, test } from 'vitest';
import { harness, hourMs } from '../support/harness.ts';

const dataVersion = { current: 6, migration: undefined };
const tollgate = harness(undefined, { dataVersion });
const { ok, clock, createKey } = tollgate;

test.each([6, 7])('data version %i', async (version) => {
  dataVersion.current = version;
  const { key, apiId } = await createKey({ credits: { remaining: 100 } });
  const tags = ['a', 'b'];
  await ok('keys.verifyKey', { key, tags });
  await ok('keys.verifyKey', { key, tags, credits: { cost: 5 }, hold: { ttl: 1000, onExpiry: 'charge' } });
  clock.advance(2000);
  while (await tollgate.store.sweep.holds(tollgate.workspaceId));
  const day = Math.floor(clock.now / (24 * hourMs));
  const counts = await tollgate.store.usageExport.tags(tollgate.workspaceId, apiId.slice(-8), day);
  const sums = counts.map(({ tag, count, spent }) => [tag, count, spent]).sort();
  const repeated = version < 7 ? [] : [['', 2, 6]];
  expect(sums).toEqual([...repeated, ['a', 2, 6], ['b', 2, 6]]);
});
