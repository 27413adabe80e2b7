// Times and durations are in milliseconds. Seconds, and a time in place of a duration, are refused with the unit.

import { createHash } from 'node:crypto';
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

test('the next millisecond is in the future, and a change may set the past', async () => {
  const { keyId } = await createKey({ expires: clock.now + 1 });
  for (const expires of [0, clock.now - 1]) await ok('keys.updateKey', { keyId, expires });
});

test('rerollKey takes at most ten years, so no time', async () => {
  const { keyId } = await createKey();
  const refused = [400, 'body.expiration is more than ten years; it is a duration in milliseconds, not a time.'];
  for (const expiration of [3653 * dayMs + 1, clock.now, clock.now + 3_600_000])
    expect(detailOf(await call('keys.rerollKey', { keyId, expiration }))).toEqual(refused);
  expect((await call('keys.rerollKey', { keyId, expiration: 3653 * dayMs })).status).toBe(200);
});

const whole = { granularity: 'total' };

/** Each field of a request that is a time, but `until`, and `expires` of what is new: these are in the future. */
test.each<[operation: string, field: string, others?: (ids: Record<string, string>) => object]>([
  ...['start', 'end'].flatMap((field) => [
    ['analytics.getVerifications', field, () => whole] as [string, string, () => object],
    ['analytics.getRatelimits', field, () => whole] as [string, string, () => object],
    ['analytics.getTop', field, () => ({ of: 'keys' })] as [string, string, () => object],
    ['analytics.listCustomers', field] as [string, string],
    ['analytics.listRefusals', field] as [string, string],
    ['audit.listEvents', field] as [string, string],
  ]),
  ['keys.listKeys', 'expiresBefore'],
  ['keys.listKeys', 'expiresAfter', () => ({ expiresBefore: clock.now })],
  ['keys.listKeys', 'unusedSince'],
  ['keys.getAttention', 'expiresBefore'],
  ['keys.getAttention', 'unusedSince'],
  ['ratelimits.listTemporary', 'before'],
  ['keys.updateKey', 'expires', ({ keyId }) => ({ keyId })],
  ['rootKeys.updateRootKey', 'expires', ({ rootKeyId }) => ({ rootKeyId })],
])('%s refuses %s in seconds, and no time of 1970 that is none', async (operation, field, others) => {
  const { keyId } = await createKey();
  const { rootKeyId } = await ok('rootKeys.createRootKey', { permissions: ['api.*.read_api'] });
  const send = (time: number) =>
    call(operation as 'audit.listEvents', { ...others?.({ keyId, rootKeyId }), [field]: time } as never);
  const detail = `body.${field} is a time in the 1970s, as it is read in milliseconds.`;
  for (const time of [seconds(), 1e9, 1e11 - 1]) expect(detailOf(await send(time))).toEqual([400, detail]);
  for (const time of [0, 1e9 - 1, 1e11, clock.now])
    expect((await send(time)).error?.detail ?? '').not.toContain('1970s');
});

test('keys that are migrated may have expired, but not in seconds', async () => {
  const { apiId } = await ok('apis.createApi', { name: 'units' });
  const migrate = (...times: number[]) => {
    const keys = times.map((expires) => ({
      hash: createHash('sha256').update(`${expires}`).digest('base64'),
      expires,
    }));
    return call('keys.migrateKeys', { migrationId: 'units', apiId, keys });
  };
  const detail = 'body.keys[1].expires is a time in the 1970s, as it is read in milliseconds.';
  expect(detailOf(await migrate(clock.now - 1, seconds()))).toEqual([400, detail]);
  expect((await migrate(0, clock.now - 1)).data.migrated.length).toBe(2);
});

test('an end of a limit in seconds is refused with the unit', async () => {
  const limit = { name: 'requests', limit: 1, duration: 1000, until: seconds() };
  const { keyId } = await createKey();
  for (const input of [{ ratelimit: limit }, { ratelimits: [limit] }]) {
    const { error } = await call('keys.updateKey', { keyId, ...input });
    expect(error?.detail).toMatch(/\.until must be in the future; it is a time in milliseconds\.$/);
  }
});
