// Times and durations are in milliseconds. Seconds, and a time in place of a duration, are refused with the unit.

import { expect, test } from 'vitest';
import { dayMs, harness } from '../support/harness.ts';

const { call, clock, createKey, ok } = harness();

const seconds = () => Math.floor(clock.now / 1000);
const detailOf = ({ status, error }: { status: number; error: { detail: string } }) => [status, error?.detail];

test.each<[string, () => number]>([
  ['0', () => 0],
  ['now', () => clock.now],
  ['next year, in seconds', () => seconds() + 31_536_000],
])('a new key that has expired already is refused: %s', async (_, expires) => {
  const refused = [400, 'body.expires is in the past; it is a time in milliseconds.'];
  const { apiId } = await ok('apis.createApi', { name: 'units' });
  expect(detailOf(await call('keys.createKey', { apiId, expires: expires() }))).toEqual(refused);
  expect((await ok('apis.listKeys', { apiId })).length).toBe(0);
  const permissions = ['api.*.read_api'];
  expect(detailOf(await call('rootKeys.createRootKey', { permissions, expires: expires() }))).toEqual(refused);
});

test('the next millisecond is in the future, and a change may set any time', async () => {
  const { keyId } = await createKey({ expires: clock.now + 1 });
  expect((await call('keys.updateKey', { keyId, expires: seconds() })).status).toBe(200);
});

test('rerollKey takes at most ten years, so no time', async () => {
  const { keyId } = await createKey();
  const refused = [400, 'body.expiration is more than ten years; it is a duration in milliseconds, not a time.'];
  for (const expiration of [3653 * dayMs + 1, clock.now, clock.now + 3_600_000])
    expect(detailOf(await call('keys.rerollKey', { keyId, expiration }))).toEqual(refused);
  expect((await call('keys.rerollKey', { keyId, expiration: 3653 * dayMs })).status).toBe(200);
});

test.each([
  'analytics.getVerifications',
  'analytics.listCustomers',
  'analytics.listRefusals',
  'audit.listEvents',
] as const)('%s refuses start and end in seconds', async (operation) => {
  for (const name of ['start', 'end']) {
    const detail = `body.${name} is a time in the 1970s, as it is read in milliseconds.`;
    expect(detailOf(await call(operation, { [name]: seconds() } as never))).toEqual([400, detail]);
    expect(
      (await call(operation, { start: 0, end: 0, granularity: 'total', [name]: 0 } as never)).error?.detail ?? '',
    ).not.toMatch(/1970s/);
  }
});
