// Units that a lease did not use come back to the slice in which they were charged, although a request with slices of
// a millisecond charged the same window since.

import { expect, test } from 'vitest';
import { hourMs } from '../../support/harness.ts';
import { heldServers } from './heldServers.ts';

const held = heldServers(1);
const { first, clock } = held;
const slice = Math.floor(hourMs / 64);
const nextSlice = () => clock.now - (clock.now % slice) + slice;

test.each([60, 65])('a limit of %i beside the leased one', async (small) => {
  clock.set(nextSlice() + 10);
  const limit = { name: 'requests', limit: 1000, duration: hourMs };
  const { key } = await held.createKey({ ratelimits: [{ ...limit, autoApply: true }] });
  const verify = async () => (await first.ok('keys.verifyKey', { key })).valid;
  let admitted = await held.untilGranted(first, verify);
  clock.set(nextSlice() + 1);
  const beside = { key, ratelimits: [{ ...limit, limit: small }] };
  expect((await first.ok('keys.verifyKey', beside)).valid).toBe(true);
  admitted++;
  await held.recallAll();
  while (await verify()) admitted++;
  expect(admitted).toBe(1000);
});
