// `ratelimit` of keys.updateKey and identities.updateIdentity: one limit is changed, and all others stay.

import { describe, expect, test } from 'vitest';
import { type Called, harness, type InputOf } from '../support/harness.ts';
import { invalidAt } from '../support/invalid.ts';
import { storedLimit } from '../support/limits.ts';

const app = harness();
const { call, ok, createKey } = app;

type Limits = NonNullable<InputOf<'identities.createIdentity'>['ratelimits']>;
type Change = NonNullable<InputOf<'keys.updateKey'>['ratelimit']>;
interface Owner {
  change(ratelimit: Change | null, more?: object): Promise<Pick<Called<unknown>, 'status' | 'code' | 'error'>>;
  limits(): Promise<Limits>;
  id: string;
  /** A key that uses the limits. */
  key: string;
}

const requests = { name: 'requests', limit: 5, duration: 60_000, autoApply: true };
const exports = { name: 'exports', limit: 2, duration: 3_600_000, autoApply: false };

let made = 0;
const owners: Record<string, (ratelimits: Limits) => Promise<Owner>> = {
  async 'a key'(ratelimits) {
    const { keyId, key } = await createKey({ ratelimits });
    return {
      id: keyId,
      key,
      change: (ratelimit, more) => call('keys.updateKey', { keyId, ratelimit, ...more } as never),
      limits: async () => (await ok('keys.getKey', { keyId })).ratelimits ?? [],
    };
  },
  async 'an identity'(ratelimits) {
    const externalId = `owner.${++made}`;
    const { identityId } = await ok('identities.createIdentity', { externalId, ratelimits });
    const { key } = await createKey({ externalId });
    return {
      id: identityId,
      key,
      change: (ratelimit, more) =>
        call('identities.updateIdentity', { identity: externalId, ratelimit, ...more } as never),
      limits: async () => (await ok('identities.getIdentity', { identity: externalId })).ratelimits,
    };
  },
};

describe.each(Object.keys(owners))('of %s', (kind) => {
  const newOwner = (ratelimits: Limits = [requests, exports]) => owners[kind]!(ratelimits);
  const used = async ({ key }: Owner, name: string) => {
    const { ratelimits } = await ok('keys.verifyKey', { key, ratelimits: [{ name, cost: 0 }] });
    return ratelimits!.find((limit) => limit.name === name);
  };

  test.each<[string, Change, object[]]>([
    ['the limit, and keeps the rest', { name: 'requests', limit: 9 }, [{ ...requests, limit: 9 }, exports]],
    ['the duration', { name: 'exports', limit: 2, duration: 1000 }, [requests, { ...exports, duration: 1000 }]],
    ['autoApply', { name: 'requests', limit: 5, autoApply: false }, [{ ...requests, autoApply: false }, exports]],
    [
      'nothing else of another name',
      { name: 'Requests', limit: 1, duration: 1000 },
      [requests, exports, { name: 'Requests', limit: 1, duration: 1000, autoApply: false }],
    ],
    [
      'a new one to autoApply',
      { name: 'new', limit: 1, duration: 1000, autoApply: true },
      [requests, exports, { name: 'new', limit: 1, duration: 1000, autoApply: true }],
    ],
    ['its existence', { name: 'requests', limit: null }, [exports]],
    ['nothing if it does not exist', { name: 'absent', limit: null }, [requests, exports]],
  ])('changes %s', async (_, ratelimit, expected) => {
    const owner = await newOwner();
    const before = await owner.limits();
    expect(await owner.change(ratelimit)).toMatchObject({ status: 200 });
    const after = await owner.limits();
    expect(after).toEqual(expected.map(storedLimit));
    const idOf = (limits: Limits, name: string) => (limits.find((one) => one.name === name) as { id?: string })?.id;
    for (const { name } of before) if (idOf(after, name)) expect(idOf(after, name)).toBe(idOf(before, name));
  });

  test('keeps the count, applies to the next verification, and is in the audit log', async () => {
    const owner = await newOwner();
    for (let at = 0; at < 5; at++) await ok('keys.verifyKey', { key: owner.key });
    expect(await ok('keys.verifyKey', { key: owner.key })).toMatchObject({ code: 'RATE_LIMITED' });
    await owner.change({ name: 'requests', limit: 7 });
    expect(await used(owner, 'requests')).toMatchObject({ limit: 7, remaining: 2 });
    const [event] = await ok('audit.listEvents', { resource: { id: owner.id }, order: 'desc', limit: 1 });
    expect(event!.changes).toEqual([
      {
        field: 'ratelimits',
        before: 'requests 5 per 60000 ms, autoApply, exports 2 per 3600000 ms',
        after: 'requests 7 per 60000 ms, autoApply, exports 2 per 3600000 ms',
      },
    ]);
  });

  test('concurrent changes of different limits do not undo each other', async () => {
    const owner = await newOwner([]);
    const names = Array.from({ length: 50 }, (_, at) => `limit ${at}`);
    const answers = await Promise.all(names.map((name) => owner.change({ name, limit: 1, duration: 1000 })));
    expect(answers.map(({ status }) => status)).toEqual(names.map(() => 200));
    expect((await owner.limits()).map(({ name }) => name).sort()).toEqual([...names].sort());
    expect(await owner.change({ name: 'one more', limit: 1, duration: 1000 })).toMatchObject({
      status: 400,
      error: { detail: 'body.ratelimit would be one more than the 50 limits that are allowed.' },
    });
    expect(await owner.change({ name: 'limit 7', limit: 3 })).toMatchObject({ status: 200 });
  });

  test.each<[string, Change | null, object]>([
    ['body.ratelimit.duration', { name: 'new', limit: 1 }, {}],
    ['body.ratelimit', { name: 'requests', limit: 1 }, { ratelimits: [] }],
    ['body.ratelimit', null, {}],
    ['body.ratelimit.limit', { name: 'requests', limit: 0 }, {}],
    ['body.ratelimit.limit', { name: 'requests' } as Change, {}],
    ['body.ratelimit.duration', { name: 'requests', limit: 1, duration: 999 }, {}],
    ['body.ratelimit.name', { name: 'ab', limit: 1 }, {}],
    ['body.ratelimit.id', { id: 1, name: 'requests', limit: 1 } as unknown as Change, {}],
  ])('400 names %s, and nothing changes', async (location, ratelimit, more) => {
    const owner = await newOwner();
    const before = await owner.limits();
    expect(await owner.change(ratelimit, more)).toMatchObject(invalidAt(location));
    expect(await owner.limits()).toEqual(before);
  });
});
