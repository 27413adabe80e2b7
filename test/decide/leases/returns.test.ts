// What a server gives back of its leases: to whom another request may need it, and to what it was charged to only.

import { describe, expect, test } from 'vitest';
import { hourMs, type InputOf } from '../../support/harness.ts';
import { testRedisUrl } from '../../support/redisUrl.ts';
import { heldServers, newName } from './heldServers.ts';
import { redisProxy } from './proxy.ts';

const proxy = redisProxy();
// The holder is behind the proxy.
const held = heldServers(2, {}, { url: (number) => (number === 1 ? proxy.url() : testRedisUrl()) });
const [other, holder] = held.servers as [typeof held.first, typeof held.first];
const { ok } = other;
const { createKey, untilGranted } = held;

type Server = typeof holder;
const requests = { name: 'requests', limit: 1000, duration: hourMs, autoApply: true };
const isValid = (server: Server, key: string) => async () => (await server.ok('keys.verifyKey', { key })).valid;

/** Of two keys: their limit of 1000 is shared. */
async function sharing(more: Partial<InputOf<'keys.createKey'>> = {}) {
  const externalId = newName();
  await ok('identities.createIdentity', { externalId, ratelimits: [requests] });
  return [await createKey({ externalId, ...more }), await createKey({ externalId })] as const;
}

test('a key gets the units of its identity that a server holds for another key', async () => {
  const [first, second] = await sharing();
  const spent = await untilGranted(holder, isValid(holder, first.key));
  const all = { key: second.key, ratelimits: [{ name: 'requests', cost: 1000 - spent }] };
  const { code, ratelimits } = await ok('keys.verifyKey', all);
  expect({ code, remaining: ratelimits![0]!.remaining }).toEqual({ code: 'VALID', remaining: 0 });
  expect(await ok('keys.verifyKey', { key: first.key })).toMatchObject({ code: 'RATE_LIMITED' });
});

test.each([false, true])(
  'a restored identity gets back what servers held when it was deleted; its key was verified before: %s',
  async (isVerified) => {
    const [first, second] = await sharing();
    const spent = await untilGranted(holder, isValid(holder, first.key));
    const { identity } = await ok('keys.getKey', { keyId: first.keyId });
    proxy.delays = true;
    await ok('identities.deleteIdentity', { identity: identity!.id });
    if (isVerified) expect(await ok('keys.verifyKey', { key: first.key })).not.toHaveProperty('identity');
    proxy.release();
    await holder.recall();
    await ok('identities.restoreIdentity', { identityId: identity!.id });
    const all = { key: second.key, ratelimits: [{ name: 'requests', cost: 1000 - spent }] };
    expect(await ok('keys.verifyKey', all)).toMatchObject({ code: 'VALID', ratelimits: [{ remaining: 0 }] });
  },
);

describe('units that are given back late change no window that they were not charged to', () => {
  const longer = [{ ...requests, duration: 2 * hourMs }];
  const left = async (key: string) => {
    const { ratelimits } = await ok('keys.verifyKey', { key, ratelimits: [{ name: 'requests', cost: 0 }] });
    return ratelimits![0]!.remaining;
  };

  const changes: [string, () => Promise<{ key: string; change: () => Promise<unknown> }>][] = [
    [
      'a limit of a key with another duration',
      async () => {
        const { key, keyId } = await createKey({ ratelimits: [requests] });
        return { key, change: () => ok('keys.updateKey', { keyId, ratelimits: longer }) };
      },
    ],
    [
      'a limit of an identity with another duration',
      async () => {
        const { key, externalId } = await named();
        return { key, change: () => ok('identities.updateIdentity', { identity: externalId, ratelimits: longer }) };
      },
    ],
    [
      'the limit of another identity',
      async () => {
        const [{ key, keyId }] = await sharing();
        const externalId = newName();
        await ok('identities.createIdentity', { externalId, ratelimits: [requests] });
        return { key, change: () => ok('keys.updateKey', { keyId, externalId }) };
      },
    ],
    [
      'a limit with another name',
      async () => {
        const both = [
          { ...requests, name: 'former' },
          { ...requests, limit: 900, autoApply: false },
        ];
        const { key, keyId } = await createKey({ ratelimits: both });
        const ratelimits = [requests, { ...requests, name: 'former', autoApply: false }];
        return { key, change: () => ok('keys.updateKey', { keyId, ratelimits }) };
      },
    ],
    [
      'the limit of a key in place of that of its identity',
      async () => {
        const [{ key, keyId }] = await sharing();
        return { key, change: () => ok('keys.updateKey', { keyId, ratelimits: [requests] }) };
      },
    ],
  ];
  async function named() {
    const [{ key, keyId }] = await sharing();
    const { identity } = await ok('keys.getKey', { keyId });
    return { key, externalId: identity!.externalId };
  }

  test.each(changes)('%s', async (_what, make) => {
    const { key, change } = await make();
    await untilGranted(holder, isValid(holder, key));
    // Its settlement waits in the proxy, longer than the change waits for it.
    proxy.delays = true;
    await change();
    for (let times = 0; times < 10; times++) expect(await isValid(other, key)()).toBe(true);
    await other.recall();
    expect(await left(key)).toBe(990);
    proxy.release();
    await holder.recall();
    expect(await left(key)).toBe(990);
  });
});
