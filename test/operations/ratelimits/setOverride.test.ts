// Setting an override, and which override applies, as the limit checks that follow show.

import { describe, expect, test } from 'vitest';
import { connect } from '../../../src/redis/connection.ts';
import { workspaceKey } from '../../../src/redis/names.ts';
import { harness, type InputOf } from '../../support/harness.ts';
import { onlyInvalidAt } from '../../support/invalid.ts';
import { random, seed } from '../../support/random.ts';
import { testRedisUrl } from '../../support/redis.ts';
import { unitsOf } from '../../support/unit.ts';

const tollgate = harness();
const { call, ok, clock, createWorkspace, send } = tollgate;

const minute = 60_000;
let namespaces = 0;
const freshNamespace = () => `overrides ${++namespaces}`;

const set = async (namespace: string, identifier: string, limit: number, duration = minute) =>
  (await ok('ratelimits.setOverride', { namespace, identifier, limit, duration })).overrideId;

/** A check by a caller that does not know the override: at most 1000 in an hour. */
const look = (namespace: string, identifier: string) =>
  ok('ratelimits.limit', { namespace, identifier, limit: 1000, duration: 60 * minute, cost: 0 });

const idOf = async (namespace: string, identifier: string) =>
  (await ok('ratelimits.getOverride', { namespace, identifier })).namespaceId;

describe('ratelimits.setOverride: 200', () => {
  test('replaces limit and duration of every check of that identifier, and names the override', async () => {
    const namespace = freshNamespace();
    const request = { namespace, identifier: 'alice', limit: 1000, duration: 60 * minute };
    const overrideId = await set(namespace, 'alice', 2);
    expect(overrideId).toMatch(/^rlor_[1-9A-HJ-NP-Za-km-z]{16}$/);

    const reset = clock.now + minute + 1;
    expect(await ok('ratelimits.limit', request)).toEqual({
      success: true,
      limit: 2,
      remaining: 1,
      reset,
      overrideId,
    });
    await ok('ratelimits.limit', request);
    const refused = await ok('ratelimits.limit', { ...request, limit: 1 });
    expect(refused).toEqual({ success: false, limit: 2, remaining: 0, reset, overrideId });
    // Not another identifier's.
    expect(await ok('ratelimits.limit', { ...request, identifier: 'bob' })).not.toHaveProperty('overrideId');
  });

  test('may raise or lower the limit, and lengthen the window', async () => {
    const namespace = freshNamespace();
    await set(namespace, 'alice', 5000, 30 * 24 * 60 * minute);
    const request = { namespace, identifier: 'alice', limit: 1, duration: 1000 };
    expect(await ok('ratelimits.limit', { ...request, cost: 5000 })).toMatchObject({ success: true, remaining: 0 });
    clock.advance(29 * 24 * 60 * minute);
    expect(await ok('ratelimits.limit', request)).toMatchObject({ success: false });
  });

  test('applies from the next check on; another limit keeps the count, another duration is another counter', async () => {
    const namespace = freshNamespace();
    const request = { namespace, identifier: 'alice', limit: 10, duration: minute };
    await ok('ratelimits.limit', { ...request, cost: 4 });
    await set(namespace, 'alice', 5);
    expect(await ok('ratelimits.limit', { ...request, cost: 0 })).toMatchObject({ limit: 5, remaining: 1 });
    await set(namespace, 'alice', 5, minute + 1);
    expect(await ok('ratelimits.limit', { ...request, cost: 0 })).toMatchObject({ limit: 5, remaining: 5 });
    await ok('ratelimits.deleteOverride', { namespace, identifier: 'alice' });
    expect(await ok('ratelimits.limit', { ...request, cost: 0 })).toMatchObject({ limit: 10, remaining: 6 });
  });

  test('setting it again keeps its id and its time of creation', async () => {
    const namespace = freshNamespace();
    const first = await set(namespace, 'alice', 2);
    const wild = await set(namespace, 'a*', 3);
    const createdAt = clock.now;
    clock.advance(1000);
    expect(await set(namespace, 'alice', 7, 2 * minute)).toBe(first);
    expect(await set(namespace, 'a*', 8)).toBe(wild);
    expect(await ok('ratelimits.getOverride', { namespace, identifier: 'alice' })).toMatchObject({
      overrideId: first,
      limit: 7,
      duration: 2 * minute,
      createdAt,
    });
    expect((await ok('ratelimits.listOverrides', { namespace })) as never).toEqual({
      overrides: [
        expect.objectContaining({ overrideId: first, limit: 7 }),
        expect.objectContaining({ overrideId: wild, limit: 8 }),
      ],
    });
  });

  test('a limit of 0 blocks every check, also at cost 0, exact or by wildcard', async () => {
    const namespace = freshNamespace();
    await set(namespace, 'alice', 0);
    await set(namespace, 'bob*', 0);
    for (const identifier of ['alice', 'bobby']) {
      for (const cost of [0, 1, 5]) {
        const request = { namespace, identifier, limit: 1000, duration: 1000, cost };
        const refused = { success: false, limit: 0, remaining: 0, reset: clock.now + minute };
        expect(await ok('ratelimits.limit', request)).toEqual({ ...refused, overrideId: expect.any(String) });
      }
    }
    await set(namespace, 'alice', 1);
    expect(await look(namespace, 'alice')).toMatchObject({ success: true, limit: 1, remaining: 1 });
  });

  test('the namespace is the same by its name and by its id', async () => {
    const namespace = freshNamespace();
    const overrideId = await set(namespace, 'alice', 2);
    const namespaceId = await idOf(namespace, 'alice');
    expect(await set(namespaceId, 'alice', 3)).toBe(overrideId);
    expect(await look(namespaceId, 'alice')).toMatchObject({ limit: 3, overrideId });
    expect(await look(namespace, 'alice')).toMatchObject({ limit: 3, overrideId });
  });

  test('both path families set the same override', async () => {
    const namespace = freshNamespace();
    const body = JSON.stringify({ namespace, identifier: 'alice', limit: 3, duration: minute });
    const singular = await send('/v2/ratelimit.setOverride', { body });
    expect(singular.status).toBe(200);
    expect(await set(namespace, 'alice', 3)).toBe(singular.json.data.overrideId);
  });

  test('workspaces share nothing', async () => {
    const namespace = freshNamespace();
    await set(namespace, 'alice', 1);
    const { rootKey } = await createWorkspace();
    const request = { namespace, identifier: 'alice', limit: 9, duration: minute };
    const { data } = await call('ratelimits.limit', request, rootKey);
    expect(data).toEqual({ success: true, limit: 9, remaining: 8, reset: clock.now + minute + 1 });
  });
});

describe('ratelimits.setOverride: which override applies', () => {
  test('an exact identifier comes before any wildcard', async () => {
    const namespace = freshNamespace();
    const wild = await set(namespace, 'alice*', 2);
    const exact = await set(namespace, 'alice', 3);
    expect(await look(namespace, 'alice')).toMatchObject({ overrideId: exact, limit: 3 });
    expect(await look(namespace, 'alice2')).toMatchObject({ overrideId: wild, limit: 2 });
    await ok('ratelimits.deleteOverride', { namespace, identifier: 'alice' });
    expect(await look(namespace, 'alice')).toMatchObject({ overrideId: wild });
    await ok('ratelimits.deleteOverride', { namespace, identifier: 'alice*' });
    expect(await look(namespace, 'alice')).toMatchObject({ limit: 1000 });
    expect(await look(namespace, 'alice')).not.toHaveProperty('overrideId');
  });

  test('an identifier that equals a wildcard’s text has that override', async () => {
    const namespace = freshNamespace();
    const older = await set(namespace, '*ab*', 1);
    const exact = await set(namespace, 'ab*', 2);
    expect(await look(namespace, 'ab*')).toMatchObject({ overrideId: exact, limit: 2 });
    expect(await look(namespace, 'abc')).toMatchObject({ overrideId: older, limit: 1 });
  });

  test('of wildcards the one with the most literal characters applies', async () => {
    const namespace = freshNamespace();
    const most = await set(namespace, '*.example.com', 3);
    await set(namespace, '*', 1);
    await set(namespace, '*.com', 2);
    expect(await look(namespace, 'a.example.com')).toMatchObject({ overrideId: most });
    expect(await look(namespace, 'example.com')).toMatchObject({ limit: 2 });
    expect(await look(namespace, 'example.org')).toMatchObject({ limit: 1 });

    // Three characters of four bytes each are fewer than four of one.
    const letters = freshNamespace();
    await set(letters, '\u{1f511}\u{1f511}\u{1f511}*', 1);
    await set(letters, '*abcd', 2);
    expect(await look(letters, '\u{1f511}\u{1f511}\u{1f511}abcd')).toMatchObject({ limit: 2 });
  });

  test('of equal wildcards the oldest applies; one that is deleted and set again is the newest', async () => {
    const namespace = freshNamespace();
    await set(namespace, 'a*', 1);
    await set(namespace, '*b', 2);
    expect(await look(namespace, 'ab')).toMatchObject({ limit: 1 });
    // A changed override keeps its age.
    await set(namespace, 'a*', 3);
    expect(await look(namespace, 'ab')).toMatchObject({ limit: 3 });
    await ok('ratelimits.deleteOverride', { namespace, identifier: 'a*' });
    await set(namespace, 'a*', 4);
    expect(await look(namespace, 'ab')).toMatchObject({ limit: 2 });
  });

  test('each identifier that a wildcard matches has its own counter', async () => {
    const namespace = freshNamespace();
    await set(namespace, 'user_*', 1);
    const check = (identifier: string) => ok('ratelimits.limit', { namespace, identifier, limit: 9, duration: minute });
    expect(await check('user_1')).toMatchObject({ success: true });
    expect(await check('user_1')).toMatchObject({ success: false });
    expect(await check('user_2')).toMatchObject({ success: true });
  });

  test.each([
    ['ab*ba', 'abba', true],
    ['ab*ba', 'aba', false],
    ['a*a', 'a', false],
    ['*', 'anything', true],
    ['**', 'x', true],
    ['a**b', 'ab', true],
    ['*a*a*', 'aa', true],
    ['*a*a*', 'a', false],
    ['a.c*', 'abc', false],
    ['%d*', '%d1', true],
    ['a*', 'A1', false],
    ['a*', '\u0000a', false],
    ['*\n*', 'line\nline', true],
  ])('%j and %j: %s', async (pattern, identifier, isMatch) => {
    const namespace = freshNamespace();
    await set(namespace, pattern, 1);
    expect(await look(namespace, identifier)).toMatchObject({ limit: isMatch ? 1 : 1000 });
  });

  test(`is the same as that of a simple model, for random overrides (seed ${seed})`, async () => {
    const pick = random(seed);
    // Texts of two letters repeat and overlap each other.
    const alphabets = [
      ['a', 'b', '*'],
      ['a', 'b', '.', '*', '%', '\u00fc', '\u{1f511}'],
    ];
    let characters = alphabets[0]!;
    const text = (max: number) =>
      Array.from({ length: pick(1, max) }, () => characters[pick(0, characters.length - 1)]!).join('');
    // `*` is any run of characters, and every other character matches itself.
    const matches = (pattern: string, identifier: string) =>
      new RegExp(
        `^${pattern
          .split('*')
          .map((part) => part.replaceAll('.', '[.]'))
          .join('.*')}$`,
        'su',
      ).test(identifier);
    const literals = (pattern: string) => [...pattern.replaceAll('*', '')].length;

    let agreed = 0;
    for (let round = 0; round < 12; round++) {
      const namespace = freshNamespace();
      characters = alphabets[round % 2]!;
      // In order of creation.
      const model = new Map<string, number>();
      for (let step = 0; step < 12; step++) {
        const isDeletion = model.size > 0 && pick(0, 4) === 0;
        const identifier = isDeletion ? [...model.keys()][pick(0, model.size - 1)]! : text(5);
        if (isDeletion) {
          model.delete(identifier);
          await ok('ratelimits.deleteOverride', { namespace, identifier });
        } else {
          model.set(identifier, pick(1, 500));
          await set(namespace, identifier, model.get(identifier)!);
        }
      }
      const asked = [...Array.from({ length: 25 }, () => text(6)), ...model.keys()];
      const answers = await Promise.all(asked.map((identifier) => look(namespace, identifier)));
      for (const [index, identifier] of asked.entries()) {
        const wild = [...model.keys()].filter((pattern) => pattern.includes('*') && matches(pattern, identifier));
        const best = wild.sort((a, b) => literals(b) - literals(a))[0];
        const chosen = model.has(identifier) ? identifier : best;
        const expected = chosen === undefined ? 1000 : model.get(chosen);
        expect(answers[index]!.limit, `${JSON.stringify(identifier)} of ${JSON.stringify([...model])}`).toBe(expected);
        if (chosen !== undefined) agreed++;
      }
    }
    expect(agreed).toBeGreaterThan(20);
  });

  test('a wildcard that needs backtracking is matched quickly', async () => {
    const namespace = freshNamespace();
    await set(namespace, `${'a*'.repeat(255)}b`, 1);
    const units = await unitsOf(async () =>
      expect(await look(namespace, 'a'.repeat(512))).toMatchObject({ limit: 1000 }),
    );
    expect(units).toBeLessThan(1000);
  });
});

describe('ratelimits.setOverride: 400', () => {
  const request = { namespace: 'bad', identifier: 'a', limit: 1, duration: 1000 };

  test.each([
    { namespace: '' },
    { namespace: 'a'.repeat(513) },
    { identifier: '' },
    { identifier: '\u{1f511}'.repeat(513) },
    { limit: -1 },
    { limit: 1.5 },
    { limit: Number.MAX_SAFE_INTEGER + 1 },
    { duration: 999 },
    { duration: Number.MAX_SAFE_INTEGER + 1 },
  ])('%j', async (wrong) => {
    expect(await call('ratelimits.setOverride', { ...request, ...wrong })).toMatchObject(
      onlyInvalidAt(`body.${Object.keys(wrong)[0]}`),
    );
    expect((await call('ratelimits.listOverrides', { namespace: 'bad' })).status).toBe(404);
  });

  test('for more wildcards than a namespace may have; exact overrides are still accepted, and a deletion makes room', async () => {
    const namespace = freshNamespace();
    // In groups: the limiter of changes refuses what has waited for a second, as the last ones did on a busy machine.
    for (let first = 0; first < 256; first += 32)
      await Promise.all(Array.from({ length: 32 }, (_, index) => set(namespace, `${first + index}*`, 1)));
    const oneMore: InputOf<'ratelimits.setOverride'> = { namespace, identifier: 'x*', limit: 1, duration: minute };
    expect(await call('ratelimits.setOverride', oneMore)).toMatchObject(onlyInvalidAt('body.identifier'));
    await set(namespace, 'x', 1);
    await set(namespace, '0*', 2);
    await ok('ratelimits.deleteOverride', { namespace, identifier: '0*' });
    expect((await call('ratelimits.setOverride', oneMore)).status).toBe(200);

    // The time of a check depends on the number of stars.
    const many = freshNamespace();
    await set(many, 'a*'.repeat(255), 1);
    const two = { ...oneMore, namespace: many, identifier: '*x*' };
    expect(await call('ratelimits.setOverride', two)).toMatchObject({ status: 400, code: 'invalid_input' });
    await set(many, 'x*', 1);
    expect((await call('ratelimits.setOverride', { ...two, identifier: '*' })).status).toBe(400);
    await set(many, 'a*'.repeat(255), 2);
  });

  test('for more wildcards than a workspace may have; a deletion makes room', async () => {
    const { workspaceId, rootKey } = await tollgate.createWorkspace();
    const setHere = (identifier: string, namespace: string) =>
      call('ratelimits.setOverride', { namespace, identifier, limit: 1, duration: minute }, rootKey);
    await setHere('first*', 'one');
    await setHere('first*', 'two');
    const redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
    try {
      // Sets the counter only, because creating so many takes a while.
      expect(await redis.hget(workspaceKey(workspaceId), 'wildcards')).toBe('2');
      await redis.hset(workspaceKey(workspaceId), 'wildcards', 2000);
    } finally {
      await redis.quit();
    }
    const refused = await setHere('second*', 'two');
    expect(refused).toMatchObject({ status: 400, code: 'invalid_input' });
    expect(refused.error.errors).toEqual([
      { location: 'body.identifier', message: expect.stringContaining('at most 2000 in total') },
    ]);
    for (const identifier of ['first*', 'exact']) expect((await setHere(identifier, 'two')).status).toBe(200);
    const gone = await call('ratelimits.deleteOverride', { namespace: 'one', identifier: 'first*' }, rootKey);
    expect(gone.status).toBe(200);
    expect((await setHere('second*', 'two')).status).toBe(200);
    expect((await setHere('third*', 'two')).status).toBe(400);
  });

  test('for more wildcards with a leading `*`, or more bytes of wildcards, than a namespace may have', async () => {
    const searching = freshNamespace();
    await Promise.all(Array.from({ length: 16 }, (_, index) => set(searching, `*${index}*`, 1)));
    const request: InputOf<'ratelimits.setOverride'> = {
      namespace: searching,
      identifier: '',
      limit: 1,
      duration: minute,
    };
    expect(await call('ratelimits.setOverride', { ...request, identifier: 'a*b*c' })).toMatchObject(
      onlyInvalidAt('body.identifier'),
    );
    await set(searching, 'a**c', 1);

    // Four bytes a character.
    const long = freshNamespace();
    const head = (index: number) => `${'\u{1f511}'.repeat(510)}${index}*`;
    await Promise.all(Array.from({ length: 8 }, (_, index) => set(long, head(index), 1)));
    expect((await call('ratelimits.setOverride', { ...request, namespace: long, identifier: head(8) })).status).toBe(
      400,
    );
    await set(long, 'b*', 1);
    await set(long, head(0), 2);
  });
});

describe('ratelimits.setOverride: 403', () => {
  test('a namespace that does not exist needs create_namespace, and set_override for any namespace', async () => {
    const namespace = freshNamespace();
    const request = { namespace, identifier: 'a', limit: 1, duration: 1000 };
    for (const [grants, lacking] of [
      [['ratelimit.*.set_override'], 'ratelimit.*.create_namespace'],
      [['ratelimit.*.set_override', 'ratelimit.rlns_1.create_namespace'], 'ratelimit.*.create_namespace'],
      [['ratelimit.rlns_1.set_override', 'ratelimit.*.create_namespace'], 'ratelimit.*.set_override'],
    ] as const) {
      const refused = await call('ratelimits.setOverride', request, [...grants]);
      expect(refused).toMatchObject({ status: 403, code: 'insufficient_permissions' });
      expect(refused.error.detail).toContain(lacking);
    }
    expect((await call('ratelimits.listOverrides', { namespace })).status).toBe(404);

    const both = ['ratelimit.*.set_override', 'ratelimit.*.create_namespace'];
    expect((await call('ratelimits.setOverride', request, both)).status).toBe(200);
    expect((await call('ratelimits.setOverride', request, ['ratelimit.*.set_override'])).status).toBe(200);
  });
});
