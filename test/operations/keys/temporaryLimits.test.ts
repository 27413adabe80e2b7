// Limits with `until`: what applies before, at and after that time, what is read, and what a change keeps.

import { describe, expect, test } from 'vitest';
import { runCli } from '../../support/cli.ts';
import { dayMs, harness, hourMs } from '../../support/harness.ts';
import { withoutDefaults } from '../../support/limits.ts';
import { testRedisUrl } from '../../support/redis.ts';

const h = harness(undefined, { leaseMs: 0 });
const { call, ok, clock } = h;

const minute = 60_000;
const mail = { name: 'mail', limit: 10, duration: minute, autoApply: true };
let owners = 0;

interface Read {
  id?: string;
  name: string;
  limit: number;
  duration: number;
  autoApply: boolean;
  type?: 'concurrency';
  until?: number;
  former?: { limit: number; duration: number; autoApply: boolean };
}

/** A key, or an identity with a key, whose limits are changed and read in the same way. */
interface Owner {
  key: string;
  keyId: string;
  read(): Promise<Read[]>;
  set(ratelimits: readonly object[]): Promise<unknown>;
  change(ratelimit: object): Promise<unknown>;
  /** The answer to a change that may be refused. */
  tried(change: { ratelimits?: readonly object[]; ratelimit?: object }): Promise<{ status: number; detail: string }>;
}

const withoutIds = (limits: readonly Read[] = []) => limits.map(({ id: _, ...limit }) => withoutDefaults(limit));
const triedOf = async (answer: Promise<{ status: number; error: { detail: string } | undefined }>) => {
  const { status, error } = await answer;
  return { status, detail: error?.detail ?? '' };
};

async function keyWith(ratelimits: readonly object[]): Promise<Owner> {
  const { keyId, key } = await h.createKey({ ratelimits } as never);
  return {
    key,
    keyId,
    read: async () => withoutIds((await ok('keys.getKey', { keyId })).ratelimits as Read[]),
    set: (wanted) => ok('keys.updateKey', { keyId, ratelimits: wanted } as never),
    change: (ratelimit) => ok('keys.updateKey', { keyId, ratelimit } as never),
    tried: (change) => triedOf(call('keys.updateKey', { keyId, ...change } as never)),
  };
}

async function identityWith(ratelimits: readonly object[]): Promise<Owner> {
  const identity = `temporary_${++owners}`;
  await ok('identities.createIdentity', { externalId: identity, ratelimits } as never);
  const { keyId, key } = await h.createKey({ externalId: identity });
  return {
    key,
    keyId,
    read: async () => withoutIds((await ok('identities.getIdentity', { identity })).ratelimits as Read[]),
    set: (wanted) => ok('identities.updateIdentity', { identity, ratelimits: wanted } as never),
    change: (ratelimit) => ok('identities.updateIdentity', { identity, ratelimit } as never),
    tried: (change) => triedOf(call('identities.updateIdentity', { identity, ...change } as never)),
  };
}

const verify = (key: string, extras: object = {}) => ok('keys.verifyKey', { key, ...extras } as never);

/** The limits that a verification checks, with what is left of each. */
const checked = async (key: string) =>
  ((await verify(key)).ratelimits ?? []).map(({ id: _, exceeded: _exceeded, reset: _reset, ...limit }) =>
    withoutDefaults(limit),
  );

/** At `until`, and one millisecond before it. */
async function around<Value>(until: number, read: () => Promise<Value>): Promise<[before: Value, at: Value]> {
  clock.advance(until - 1 - clock.now);
  const before = await read();
  clock.advance(1);
  return [before, await read()];
}

describe.each([
  ['a key', keyWith],
  ['an identity', identityWith],
])('a temporary limit of %s', (_, make) => {
  test('that is new is gone at `until`, to the millisecond', async () => {
    const until = clock.now + dayMs;
    const owner = await make([{ ...mail, until }]);
    const read = async () => [await checked(owner.key), await owner.read()];
    const during = { ...mail, until };
    expect(await around(until, read)).toEqual([
      [[{ ...during, remaining: 9 }], [during]],
      [[], []],
    ]);
    const { status } = await call('keys.verifyKey', { key: owner.key, ratelimits: [{ name: 'mail' }] });
    expect(status).toBe(412);
  });

  test('gives way to the one before, to the millisecond, in reads, too', async () => {
    const owner = await make([mail]);
    const former = { limit: 10, duration: minute, autoApply: true };
    for (const reads of [false, true]) {
      const until = clock.now + hourMs;
      await owner.set([{ ...mail, limit: 500, until }]);
      const during = { ...mail, limit: 500, until, former };
      const read = async () => [await owner.read(), reads ? undefined : await checked(owner.key)];
      expect(await around(until, read)).toEqual([
        [[during], reads ? undefined : [{ ...during, remaining: 499 }]],
        [[mail], reads ? undefined : [{ ...mail, remaining: 8 }]],
      ]);
      expect(await owner.read()).toEqual([mail]);
      clock.advance(hourMs);
    }
  });

  test('is in every read before its end, and in none afterwards', async () => {
    const owner = await make([mail]);
    const until = clock.now + hourMs;
    await owner.change({ name: 'mail', limit: 500, until });
    const during = { ...mail, limit: 500, until, former: { limit: 10, duration: minute, autoApply: true } };
    const { apiId } = await ok('keys.getKey', { keyId: owner.keyId });
    type Shown = { ratelimits?: Read[]; identity?: { ratelimits: Read[]; externalId: string } };
    const limitsOf = ({ ratelimits = [], identity }: Shown) =>
      withoutIds([...ratelimits, ...(identity?.ratelimits ?? [])]);
    const reads = async () => {
      const { externalId } = await ok('keys.getKey', { keyId: owner.keyId });
      const verified = (await verify(owner.key, { ratelimits: [], credits: { cost: 0 } })) as Shown;
      const listed = (await ok('keys.listKeys', { apiId, limit: 100 })) as Shown[];
      return [
        limitsOf((await ok('keys.getKey', { keyId: owner.keyId })) as Shown),
        limitsOf((await ok('keys.whoami', { key: owner.key })) as Shown),
        limitsOf(((await ok('apis.listKeys', { apiId })) as never as Shown[])[0]!),
        externalId === undefined ? undefined : withoutIds(verified.identity!.ratelimits),
        limitsOf(listed[0]!),
      ].filter((limits) => limits !== undefined);
    };
    const [before, after] = await around(until, reads);
    expect(before.length).toBeGreaterThan(2);
    expect(before).toEqual(before.map(() => [during]));
    expect(after).toEqual(before.map(() => [mail]));
  });

  test('keeps what was counted, in the window of its duration', async () => {
    const owner = await make([mail]);
    await verify(owner.key, { ratelimits: [{ name: 'mail', cost: 4 }] });
    const until = clock.now + 10_000;
    await owner.change({ name: 'mail', limit: 20, until });
    await verify(owner.key, { ratelimits: [{ name: 'mail', cost: 3 }] });
    clock.advance(until - clock.now);
    expect(await checked(owner.key)).toEqual([{ ...mail, remaining: 2 }]);
  });

  test('of another duration counts in a window of its own, and the one before goes on', async () => {
    const owner = await make([mail]);
    await verify(owner.key, { ratelimits: [{ name: 'mail', cost: 4 }] });
    const until = clock.now + 10_000;
    await owner.change({ name: 'mail', limit: 20, duration: hourMs, until });
    expect(await checked(owner.key)).toMatchObject([{ limit: 20, duration: hourMs, remaining: 19 }]);
    await verify(owner.key, { ratelimits: [{ name: 'mail', cost: 3 }] });
    clock.advance(until - clock.now);
    expect(await checked(owner.key)).toEqual([{ ...mail, remaining: 5 }]);
    // And that of the temporary one, as after any change of a duration.
    await owner.change({ name: 'mail', limit: 20, duration: hourMs });
    expect(await checked(owner.key)).toMatchObject([{ remaining: 15 }]);
  });

  test('may apply itself, or not, until then', async () => {
    const owner = await make([{ ...mail, autoApply: false }]);
    const until = clock.now + hourMs;
    await owner.change({ name: 'mail', limit: 10, autoApply: true, until });
    const [before, after] = await around(until, () => checked(owner.key));
    const former = { limit: 10, duration: minute, autoApply: false };
    expect(before).toEqual([{ ...mail, until, former, remaining: 9 }]);
    expect(after).toEqual([]);
    expect(await owner.read()).toEqual([{ ...mail, autoApply: false }]);
  });

  test('keeps the permanent one through several, and after one has ended', async () => {
    const owner = await make([mail]);
    const former = { limit: 10, duration: minute, autoApply: true };
    await owner.change({ name: 'mail', limit: 20, until: clock.now + 100 });
    const until = clock.now + 50;
    await owner.change({ name: 'mail', limit: 30, until });
    expect(await owner.read()).toMatchObject([{ limit: 30, until, former }]);
    clock.advance(50);
    expect(await owner.read()).toEqual([mail]);
    // The first one does not come back, although its time is not over.
    await owner.set([{ ...mail, limit: 40, until: clock.now + 50 }]);
    expect(await owner.read()).toMatchObject([{ limit: 40, former }]);
    clock.advance(50);
    expect(await owner.read()).toEqual([mail]);
    expect(await checked(owner.key)).toEqual([{ ...mail, remaining: 9 }]);
  });

  test('that replaces one without a former one has none either', async () => {
    const owner = await make([{ ...mail, until: clock.now + 100 }]);
    const until = clock.now + 200;
    await owner.change({ name: 'mail', limit: 30, until });
    expect(await owner.read()).toEqual([{ ...mail, limit: 30, until }]);
    expect((await around(until, owner.read))[1]).toEqual([]);
  });

  test('stays as it is in a list that repeats its limit and duration, or a change of other fields', async () => {
    const owner = await make([mail]);
    const until = clock.now + hourMs;
    await owner.change({ name: 'mail', limit: 500, until });
    const during = await owner.read();
    const { former, until: _, ...known } = during[0]!;
    // As an SDK that does not know the fields reads and sends it.
    await owner.set([known, { name: 'other', limit: 5, duration: minute }]);
    const other = { name: 'other', limit: 5, duration: minute, autoApply: false };
    expect(await owner.read()).toEqual([...during, other]);
    await owner.change({ name: 'mail', limit: 500, autoApply: false });
    expect(await owner.read()).toEqual([{ ...during[0]!, autoApply: false }, other]);
    await owner.change({ name: 'other', limit: 6 });
    expect(await owner.read()).toMatchObject([{ until, former }, { limit: 6 }]);
    // As it was read.
    await owner.set(during);
    expect(await owner.read()).toEqual(during);
    expect((await around(until, owner.read))[1]).toEqual([mail]);
  });

  test.each([
    ['null', { limit: 500, until: null }],
    ['another limit without until', { limit: 400 }],
    ['another duration without until', { limit: 500, duration: 2 * minute }],
  ])('becomes permanent with %s', async (_name, change) => {
    for (const way of ['list', 'change'] as const) {
      const owner = await make([mail]);
      const until = clock.now + hourMs;
      await owner.change({ name: 'mail', limit: 500, until });
      if (way === 'list') await owner.set([{ ...mail, ...change }]);
      else await owner.change({ name: 'mail', ...change });
      const { until: _until, ...values } = change as { until?: null };
      const expected = [{ ...mail, ...values }];
      expect(await owner.read()).toEqual(expected);
      clock.advance(until - clock.now);
      expect(await owner.read()).toEqual(expected);
    }
  });

  test('is removed with the former one', async () => {
    const owner = await make([mail]);
    const until = clock.now + hourMs;
    await owner.change({ name: 'mail', limit: 500, until });
    await owner.change({ name: 'mail', limit: null });
    expect(await owner.read()).toEqual([]);
    clock.advance(until - clock.now);
    expect(await owner.read()).toEqual([]);
    expect(await checked(owner.key)).toEqual([]);
  });

  test('of slots keeps them, and its type', async () => {
    const jobs = { name: 'jobs', limit: 1, duration: minute, autoApply: true, type: 'concurrency' as const };
    const owner = await make([jobs]);
    const until = clock.now + 10_000;
    await owner.change({ name: 'jobs', limit: 3, until });
    expect(await owner.read()).toEqual([
      { ...jobs, limit: 3, until, former: { limit: 1, duration: minute, autoApply: true } },
    ]);
    const { hold } = await verify(owner.key);
    expect(hold).toBeDefined();
    expect(await checked(owner.key)).toMatchObject([{ type: 'concurrency', limit: 3, remaining: 1, until }]);
    expect(await owner.tried({ ratelimit: { name: 'jobs', limit: 5, type: 'window', until } })).toMatchObject({
      status: 400,
      detail: expect.stringContaining('body.ratelimit.type must be that of the limit'),
    });
    expect(await owner.tried({ ratelimits: [{ ...jobs, type: 'window', until }] })).toMatchObject({
      status: 400,
      detail: expect.stringContaining('body.ratelimits[0].type must be that of the limit'),
    });
    clock.advance(until - clock.now);
    expect(await verify(owner.key)).toMatchObject({
      code: 'RATE_LIMITED',
      ratelimits: [{ ...jobs, remaining: 0, exceeded: true }],
    });
    expect(await owner.read()).toEqual([jobs]);
  });

  test('is refused without a change when its end is not in the future, or too far away', async () => {
    const owner = await make([mail]);
    const year = 366 * dayMs;
    for (const [until, problem] of [
      [clock.now, 'must be in the future; it is a time in milliseconds'],
      [0, 'must be in the future; it is a time in milliseconds'],
      [clock.now + year + 1, 'must be at most 366 days ahead'],
    ] as const) {
      const list = { ratelimits: [mail, { name: 'other', limit: 5, duration: minute, until }] };
      expect(await owner.tried(list)).toEqual({ status: 400, detail: `body.ratelimits[1].until ${problem}.` });
      const change = { ratelimit: { name: 'mail', limit: 5, until } };
      expect(await owner.tried(change)).toEqual({ status: 400, detail: `body.ratelimit.until ${problem}.` });
    }
    for (const until of ['tomorrow', 1.5, -1])
      expect((await owner.tried({ ratelimit: { name: 'mail', limit: 5, until } })).detail).toContain(
        'body.ratelimit.until',
      );
    expect(await owner.read()).toEqual([mail]);
    await owner.change({ name: 'mail', limit: 5, until: clock.now + year });
    expect(await owner.read()).toMatchObject([{ until: clock.now + year }]);
  });

  test('an ad hoc limit of its name and duration uses its window', async () => {
    const owner = await make([mail]);
    await owner.change({ name: 'mail', limit: 500, until: clock.now + hourMs });
    await verify(owner.key);
    const adHoc = () => verify(owner.key, { ratelimits: [{ name: 'mail', limit: 50, duration: minute, cost: 5 }] });
    const { ratelimits } = await adHoc();
    expect(ratelimits!.at(-1)).toMatchObject({ limit: 50 });
    const first = ratelimits!.at(-1)!.remaining;
    clock.advance(1000);
    expect((await adHoc()).ratelimits!.at(-1)).toMatchObject({ limit: 50, remaining: first - 5 });
    expect(await owner.read()).toMatchObject([{ limit: 500 }]);
    clock.advance(hourMs);
    expect(await owner.read()).toEqual([mail]);
  });
});

describe('several limits', () => {
  test('of a key and its identity end at once, and others stay', async () => {
    const until = clock.now + hourMs;
    const identity = `temporary_${++owners}`;
    const shared = { name: 'shared', limit: 100, duration: minute, autoApply: true };
    const plain = { name: 'plain', limit: 7, duration: minute, autoApply: true };
    await ok('identities.createIdentity', {
      externalId: identity,
      ratelimits: [shared, { ...shared, name: 'gone', until }],
    });
    await ok('identities.updateIdentity', { identity, ratelimit: { name: 'shared', limit: 200, until } } as never);
    const { key } = await h.createKey({
      externalId: identity,
      ratelimits: [{ ...mail, until }, plain, { ...mail, name: 'later', until: until + 1 }],
    });
    const names = async () =>
      (await verify(key)).ratelimits!.map(({ name, limit, remaining }) => [name, limit, remaining]);
    expect(await around(until, names)).toEqual([
      [
        ['mail', 10, 9],
        ['plain', 7, 6],
        ['later', 10, 9],
        ['shared', 200, 199],
        ['gone', 100, 99],
      ],
      [
        ['plain', 7, 5],
        ['later', 10, 8],
        ['shared', 100, 98],
      ],
    ]);
    clock.advance(1);
    expect(await names()).toEqual([
      ['plain', 7, 4],
      ['shared', 100, 97],
    ]);
  });

  test('a new key takes the limits in force with it', async () => {
    const owner = await keyWith([mail]);
    const until = clock.now + hourMs;
    await owner.change({ name: 'mail', limit: 500, until });
    const first = await ok('keys.rerollKey', { keyId: owner.keyId, expiration: 0 });
    const limitsOf = async (keyId: string) => withoutIds((await ok('keys.getKey', { keyId })).ratelimits as Read[]);
    expect(await limitsOf(first.keyId)).toMatchObject([{ limit: 500, until, former: { limit: 10 } }]);
    clock.advance(hourMs);
    const second = await ok('keys.rerollKey', { keyId: first.keyId, expiration: 0 });
    expect(await limitsOf(second.keyId)).toEqual([mail]);
  });

  test('of migrated keys may be temporary; the error names the key and the limit', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'migrated' });
    const keyOf = (number: number, ratelimits: object[]) => ({
      hash: Buffer.alloc(32, number).toString('base64'),
      ratelimits,
    });
    const migrate = (until: number) =>
      call('keys.migrateKeys', {
        apiId,
        migrationId: 'temporary',
        keys: [keyOf(1, [mail]), keyOf(2, [mail, { ...mail, name: 'other', until }])],
      } as never);
    expect((await triedOf(migrate(clock.now))).detail).toBe(
      'body.keys[1].ratelimits[1].until must be in the future; it is a time in milliseconds.',
    );
    const { data } = await migrate(clock.now + 1);
    const { keyId } = (data as { migrated: { keyId: string }[] }).migrated[1]!;
    expect((await ok('keys.getKey', { keyId })).ratelimits).toHaveLength(2);
    clock.advance(1);
    expect((await ok('keys.getKey', { keyId })).ratelimits).toHaveLength(1);
  });

  test('new keys and identities refuse a bad end, and none is created', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'refused' });
    const bad = [mail, { ...mail, name: 'other', until: clock.now }];
    const detail = 'body.ratelimits[1].until must be in the future; it is a time in milliseconds.';
    expect(await triedOf(call('keys.createKey', { apiId, ratelimits: bad }))).toEqual({ status: 400, detail });
    const externalId = `temporary_${++owners}`;
    const created = call('identities.createIdentity', { externalId, ratelimits: bad });
    expect(await triedOf(created)).toEqual({ status: 400, detail });
    expect((await call('identities.getIdentity', { identity: externalId })).status).toBe(404);
  });

  test('a change is in the audit log with its end, and the end is no change', async () => {
    const owner = await keyWith([mail]);
    const until = clock.now + hourMs;
    await owner.change({ name: 'mail', limit: 500, until });
    clock.advance(hourMs);
    await owner.change({ name: 'mail', limit: 11 });
    const events = await ok('audit.listEvents', { resource: { id: owner.keyId }, order: 'asc' });
    const changes = events.flatMap(({ changes = [] }) => changes.filter(({ field }) => field === 'ratelimits'));
    expect(changes.map(({ before, after }) => [before, after])).toEqual([
      [undefined, 'mail 10 per 60000 ms, autoApply'],
      ['mail 10 per 60000 ms, autoApply', `mail 500 per 60000 ms, autoApply, until ${until}`],
      ['mail 10 per 60000 ms, autoApply', 'mail 11 per 60000 ms, autoApply'],
    ]);
  });
});

describe('an export', () => {
  const cli = (args: string[], input = '') =>
    runCli([...args, '--workspace', h.workspaceId], { REDIS_URL: testRedisUrl() }, input);

  /** The lines of a key and its identity, with limits of a day whose units are exported, too. */
  async function exported(lastsMs: number) {
    // The command line asks for the time of Redis.
    clock.now = Date.now();
    const until = clock.now + lastsMs;
    const externalId = `temporary_${++owners}`;
    const day = { name: 'day', limit: 100, duration: dayMs, autoApply: true };
    const added = { name: 'added', limit: 5, duration: minute, autoApply: true, until };
    await ok('identities.createIdentity', { externalId, ratelimits: [{ ...day, name: 'shared' }] });
    const { keyId, key } = await h.createKey({ externalId, ratelimits: [day, added] });
    await verify(key);
    await ok('identities.updateIdentity', { identity: externalId, ratelimit: { name: 'shared', limit: 200, until } });
    await ok('keys.updateKey', { keyId, ratelimit: { name: 'day', limit: 500, duration: 2 * dayMs, until } });
    await verify(key);
    const lines = (await cli(['export', '-'])).out.split('\n');
    const ofKey = lines.find((line) => line.includes(`"${keyId}"`) && line.includes('"kind":"key"'))!;
    const ofIdentity = lines.find(
      (line) => line.includes(`"externalId":"${externalId}"`) && line.includes('"identity"'),
    )!;
    await ok('keys.deleteKey', { keyId, permanent: true });
    await ok('identities.deleteIdentity', { identity: externalId });
    return { until, keyId, key, externalId, day, added, ofKey, ofIdentity };
  }

  test('has the end and the former limit, and its import too', async () => {
    const { until, keyId, key, externalId, day, added, ofKey, ofIdentity } = await exported(hourMs);
    const former = { limit: 100, duration: dayMs, autoApply: true };
    const during = [{ ...day, limit: 500, duration: 2 * dayMs, until, former }, added];
    expect(JSON.parse(ofKey)).toMatchObject({ ratelimits: during });
    const shared = { ...day, name: 'shared', limit: 200, until, former };
    expect(JSON.parse(ofIdentity)).toMatchObject({ ratelimits: [shared] });
    expect(await cli(['import', '-'], `${ofIdentity}\n${ofKey}\n`)).toMatchObject({ code: 0 });
    const read = async () => {
      const { ratelimits, identity } = await ok('keys.getKey', { keyId });
      return [withoutIds(ratelimits as Read[]), withoutIds(identity!.ratelimits as Read[])];
    };
    expect(await read()).toEqual([during, [shared]]);
    const left = async () => (await checked(key)).map(({ name, remaining }) => [name, remaining]);
    expect(await left()).toEqual([
      ['day', 498],
      ['added', 4],
      ['shared', 197],
    ]);
    expect(await around(until, read)).toEqual([
      [during, [shared]],
      [[day], [{ ...day, name: 'shared' }]],
    ]);
    expect(await left()).toEqual([
      ['day', 99],
      ['shared', 96],
    ]);
    expect(externalId).toBeDefined();
  });

  test('that is imported after the end sets the former limits, or none', async () => {
    const { until, keyId, key, externalId, day, ofKey, ofIdentity } = await exported(hourMs);
    const ended = (line: string) => line.replaceAll(`${until}`, `${clock.now - 1}`);
    expect(await cli(['import', '-'], `${ended(ofIdentity)}\n${ended(ofKey)}\n`)).toMatchObject({ code: 0 });
    expect(withoutIds((await ok('keys.getKey', { keyId })).ratelimits as Read[])).toEqual([day]);
    const { ratelimits } = await ok('identities.getIdentity', { identity: externalId });
    expect(withoutIds(ratelimits as Read[])).toEqual([{ ...day, name: 'shared' }]);
    // The window of the same duration goes on.
    expect((await checked(key)).map(({ name, remaining }) => [name, remaining])).toEqual([
      ['day', 99],
      ['shared', 97],
    ]);
  });

  test('after the end has the former limits with what they counted', async () => {
    clock.now = Date.now();
    const until = clock.now + 300;
    const day = { name: 'day', limit: 100, duration: dayMs, autoApply: true };
    const { keyId, key } = await h.createKey({ ratelimits: [day] });
    await verify(key, { ratelimits: [{ name: 'day', cost: 7 }] });
    await ok('keys.updateKey', { keyId, ratelimit: { name: 'day', limit: 500, duration: 2 * dayMs, until } });
    await verify(key);
    await new Promise((resolve) => setTimeout(resolve, 400));
    const lines = (await cli(['export', '-'])).out.split('\n');
    const line = lines.find((each) => each.includes(`"${keyId}"`) && each.includes('"kind":"key"'))!;
    const [limit] = (JSON.parse(line) as { ratelimits: { used: [number, number][] }[] }).ratelimits;
    expect(limit).toMatchObject(day);
    expect(limit).not.toHaveProperty('until');
    expect(limit!.used.map(([, units]) => units)).toEqual([7]);
  });

  test('with a former limit and no end is refused, and so is a former limit that slots cannot have', async () => {
    const { until, ofKey } = await exported(hourMs);
    const wrong = async (line: string) => (await cli(['import', '-'], `${line}\n`)).out;
    expect(await wrong(ofKey.replaceAll(`"until":${until},`, ''))).toContain('ratelimits[0].former');
    const slots = ofKey.replace('"until"', '"type":"concurrency","until"');
    expect(await wrong(slots)).toContain('ratelimits[0]');
  });
});

test('Why? has the end, and what comes then, and changes nothing', async () => {
  const owner = await keyWith([mail]);
  const until = clock.now + hourMs;
  await owner.change({ name: 'mail', limit: 500, duration: hourMs, until });
  const explained = async () => {
    const { rules } = await ok('keys.explainKey', { keyId: owner.keyId });
    return rules.find(({ rule }) => rule === 'ratelimits')!.ratelimits!.map(({ id: _, ...limit }) => limit);
  };
  await verify(owner.key, { ratelimits: [{ name: 'mail', cost: 5 }] });
  const former = { limit: 10, duration: minute, autoApply: true };
  const [before, at] = await around(until, explained);
  expect(before).toMatchObject([{ limit: 500, duration: hourMs, until, former, used: 5 }]);
  expect(at).toMatchObject([{ ...mail, used: 0, remaining: 9 }]);
  expect(at[0]).not.toHaveProperty('until');
  expect(await explained()).toEqual(at);
  expect(await checked(owner.key)).toEqual([{ ...mail, remaining: 9 }]);
});

test('Why? of an identity, and of a limit that is gone', async () => {
  const until = clock.now + hourMs;
  const owner = await identityWith([{ ...mail, until }]);
  const explained = async (extras: object = {}) => {
    const { rules } = await ok('keys.explainKey', { keyId: owner.keyId, ...extras } as never);
    return rules;
  };
  const [before, at] = await around(until, explained);
  expect(before.find(({ rule }) => rule === 'ratelimits')!.ratelimits).toMatchObject([
    { limit: 10, until, of: 'identity' },
  ]);
  expect(at.find(({ rule }) => rule === 'ratelimits')).not.toHaveProperty('ratelimits');
  const named = await explained({ ratelimits: [{ name: 'mail' }] });
  expect(named.find(({ rule }) => rule === 'ratelimit_names')).toMatchObject({ missing: ['mail'], result: 'failed' });
});

test('a hold keeps its units beyond the end of a limit, and its settlement gives them back', async () => {
  const owner = await keyWith([mail]);
  const until = clock.now + 10_000;
  await owner.change({ name: 'mail', limit: 500, until });
  const named = { ratelimits: [{ name: 'mail', cost: 9 }], hold: { ttl: minute } };
  const { hold } = await verify(owner.key, named);
  clock.advance(10_000);
  expect(await checked(owner.key)).toEqual([{ ...mail, remaining: 0 }]);
  await ok('keys.settleHold', { holdId: hold!.id, ratelimits: [{ name: 'mail', cost: 2 }] });
  expect(await checked(owner.key)).toEqual([{ ...mail, remaining: 6 }]);
});

test('a key that is deleted after the end, and restored, has the window of the former limit', async () => {
  const owner = await keyWith([mail]);
  await verify(owner.key, { ratelimits: [{ name: 'mail', cost: 7 }] });
  await owner.change({ name: 'mail', limit: 500, duration: hourMs, until: clock.now + 1000 });
  await verify(owner.key);
  clock.advance(1000);
  await ok('keys.deleteKey', { keyId: owner.keyId });
  await ok('keys.restoreKey', { keyId: owner.keyId });
  expect(await checked(owner.key)).toEqual([{ ...mail, remaining: 2 }]);
});

test('a repeated hold has the limits of the identity that are in force', async () => {
  const owner = await identityWith([{ ...mail, autoApply: false }]);
  await owner.change({ name: 'mail', limit: 500, until: clock.now + 1000 });
  const limits = async () =>
    (await verify(owner.key, { hold: { ttl: minute, id: 'own' } })).identity!.ratelimits.map(({ limit }) => limit);
  expect(await limits()).toEqual([500]);
  clock.advance(1000);
  expect(await limits()).toEqual([10]);
});

test('slots are extended by the duration that is in force', async () => {
  const jobs = { name: 'jobs', limit: 3, duration: minute, autoApply: true, type: 'concurrency' as const };
  const owner = await keyWith([jobs]);
  const until = clock.now + 1000;
  await owner.change({ name: 'jobs', limit: 3, duration: hourMs, until });
  const { hold } = await verify(owner.key);
  const extended = async () => {
    const { hold: after } = await ok('keys.extendHold', { holdId: hold!.id, ttl: 2 * hourMs });
    return after.expires - clock.now;
  };
  expect(await around(until, extended)).toEqual([hourMs, minute]);
});

test('a limit that has ended leaves the rest of the key as it is: its hold, credits, addresses and identity', async () => {
  const externalId = `temporary_${++owners}`;
  const { key, keyId } = await h.createKey({
    externalId,
    ratelimits: [
      { ...mail, until: clock.now + 1000 },
      { ...mail, name: 'other' },
    ],
    credits: { remaining: 100 },
    allowedIps: ['203.0.113.7'],
  });
  const extras = { ip: '203.0.113.7', credits: { cost: 5 } };
  await verify(key, { ...extras, hold: { ttl: minute } });
  expect((await verify(key)).code).toBe('FORBIDDEN');
  const before = await ok('keys.getKey', { keyId });
  clock.advance(1000);
  expect(await verify(key, extras)).toMatchObject({ valid: true, credits: 90, ratelimits: [{ name: 'other' }] });
  const after = await ok('keys.getKey', { keyId });
  expect(after).toEqual({
    ...before,
    credits: { remaining: 90 },
    lastUsedAt: clock.now,
    ratelimits: before.ratelimits!.slice(1),
  });
  expect(await ok('keys.listHolds', { keyId })).toMatchObject([{ credits: 5 }]);
  clock.advance(minute);
  expect(await verify(key, { ...extras, credits: { cost: 0 } })).toMatchObject({ credits: 95 });
});

test('gives way to one that was charged while the clock was ahead', async () => {
  for (const make of [keyWith, identityWith]) {
    const owner = await make([{ ...mail, limit: 1000, duration: hourMs }]);
    const startMs = clock.now;
    clock.advance(3 * hourMs);
    await verify(owner.key, { ratelimits: [{ name: 'mail', cost: 7 }] });
    clock.now = startMs;
    await owner.change({ name: 'mail', limit: 500, duration: minute, until: clock.now + 1000 });
    await verify(owner.key);
    clock.advance(1000);
    const { rules } = await ok('keys.explainKey', { keyId: owner.keyId });
    const figures = { limit: 1000, duration: hourMs, used: 7, remaining: 992 };
    expect(rules.find(({ rule }) => rule === 'ratelimits')!.ratelimits).toMatchObject([figures]);
    expect(await checked(owner.key)).toEqual([{ ...mail, limit: 1000, duration: hourMs, remaining: 992 }]);
    clock.advance(2 * hourMs);
    expect(await checked(owner.key)).toMatchObject([{ remaining: 999 }]);
    clock.now = startMs + 4 * hourMs;
  }
});

/** The outcomes of as many verifications as `times`. */
async function outcomes(key: string, times: number, extras: object = {}): Promise<string[]> {
  const codes: string[] = [];
  for (let time = 0; time < times; time++) codes.push((await verify(key, extras)).code);
  return codes;
}

describe('after a limit that applied itself to no verification has ended', () => {
  const until = () => clock.now + 1000;
  const silent = (more: object = {}) => ({ ...mail, limit: 500, autoApply: false, until: until(), ...more });

  test.each([
    ['a verification', {}],
    ['a hold', { hold: { ttl: minute } }],
  ])('the former one, which does, applies to %s', async (_what, extras) => {
    for (const with_ of [keyWith, identityWith]) {
      const { key, change } = await with_([{ ...mail, limit: 2 }]);
      await change(silent());
      expect(await outcomes(key, 3, extras)).toEqual(['VALID', 'VALID', 'VALID']);
      clock.advance(1000);
      expect(await outcomes(key, 3, extras)).toEqual(['VALID', 'VALID', 'RATE_LIMITED']);
    }
  });

  test('that of the identity with its name applies', async () => {
    const externalId = `temporary_${++owners}`;
    await ok('identities.createIdentity', { externalId, ratelimits: [{ ...mail, limit: 2 }] });
    const { key } = await h.createKey({ externalId, ratelimits: [silent()] } as never);
    expect(await outcomes(key, 3)).toEqual(['VALID', 'VALID', 'VALID']);
    clock.advance(1000);
    expect(await outcomes(key, 3)).toEqual(['VALID', 'VALID', 'RATE_LIMITED']);
  });

  test('requests of one turn get the limits by their names', async () => {
    const { key } = await h.createKey({
      ratelimits: [
        silent({ name: 'first' }),
        { ...mail, name: 'second', limit: 7 },
        { ...mail, name: 'third', limit: 9, autoApply: false },
      ],
    } as never);
    clock.advance(1000);
    const [one, two, three] = await Promise.all([
      verify(key),
      call('keys.verifyKey', { key, ratelimits: [{ name: 'third' }, { name: 'first', cost: 0 }] }),
      verify(key, { ratelimits: [{ name: 'third' }] }),
    ]);
    const namesOf = ({ ratelimits = [] }: { ratelimits?: { name: string }[] | undefined }) =>
      ratelimits.map(({ name }) => name);
    expect(namesOf(one)).toEqual(['second']);
    expect([two.status, two.error.detail]).toEqual([412, expect.stringContaining('first')]);
    expect(namesOf(three)).toEqual(['second', 'third']);
  });

  test('Why? has the limits of the identity that are in force, and what the verification charges', async () => {
    const externalId = `temporary_${++owners}`;
    await ok('identities.createIdentity', {
      externalId,
      ratelimits: [silent({ name: 'first' }), { ...mail, name: 'second' }],
    } as never);
    await ok('identities.updateIdentity', { identity: externalId, ratelimit: { ...mail, name: 'third', limit: 3 } });
    await ok('identities.updateIdentity', { identity: externalId, ratelimit: silent({ name: 'third' }) } as never);
    const { keyId } = await h.createKey({ externalId });
    clock.advance(1000);
    const { rules, charge } = await ok('keys.explainKey', { keyId });
    const figures = rules.find(({ rule }) => rule === 'ratelimits')!.ratelimits!;
    expect(figures.map(({ name, limit }) => [name, limit])).toEqual([
      ['second', 10],
      ['third', 3],
    ]);
    expect(charge.ratelimits.map(({ name }) => name)).toEqual(['second', 'third']);
  });
});

test('inspect prints the end', async () => {
  clock.now = Date.now();
  const owner = await keyWith([mail]);
  const until = clock.now + hourMs;
  await owner.change({ name: 'mail', limit: 500, until });
  const { out } = await runCli(['inspect', owner.keyId, '--workspace', h.workspaceId], { REDIS_URL: testRedisUrl() });
  expect(out).toMatch(/mail {2}500 per 60,000 ms, autoApply, until [^,]*, then 10 per 60,000 ms, autoApply/);
  expect(out).toContain('temporary');
});

test('a key that is deleted after the end, before any verification, and restored has the limit of its plan', async () => {
  const month = { name: 'requests', period: 'month', autoApply: true } as const;
  await ok('plans.createPlan', { planId: 'behind', ratelimits: [{ ...month, limit: 50 }] });
  const { keyId, key } = await h.createKey({ planId: 'behind' });
  await verify(key);
  await ok('keys.updateKey', { keyId, ratelimit: { ...month, limit: 500, until: clock.now + 1000 } });
  await verify(key);
  clock.advance(1000);
  await ok('keys.deleteKey', { keyId });
  await ok('keys.restoreKey', { keyId });
  expect(await checked(key)).toMatchObject([{ name: 'requests', limit: 50, remaining: 47 }]);
});
