import { beforeEach, describe, expect, test } from 'vitest';
import { dayMs, harness, type InputOf } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';

const { clock, call, ok, createKey } = harness();

const startMs = clock.now;
beforeEach(() => {
  clock.now = startMs;
});

const most = Number.MAX_SAFE_INTEGER;
const daily = { interval: 'daily', amount: 9 } as const;
const update = (input: object, as?: string | string[]) => call('keys.updateCredits', input as never, as);
const change = (keyId: string, operation: 'set' | 'increment' | 'decrement', value: number | null) =>
  ok('keys.updateCredits', { keyId, operation, value } as InputOf<'keys.updateCredits'>);

describe('keys.updateCredits: 200', () => {
  test.each<[string, 'set' | 'increment' | 'decrement', number, number]>([
    ['set raises', 'set', 25, 25],
    ['set lowers', 'set', 3, 3],
    ['set may be 0', 'set', 0, 0],
    ['set may be the largest', 'set', most, most],
    ['increment adds', 'increment', 5, 15],
    ['increment by 0 changes nothing', 'increment', 0, 10],
    ['increment reaches the largest', 'increment', most - 10, most],
    ['decrement takes', 'decrement', 4, 6],
    ['decrement may take all', 'decrement', 10, 0],
    ['decrement stops at 0', 'decrement', 11, 0],
    ['decrement by the largest stops at 0', 'decrement', most, 0],
  ])('%s', async (_title, operation, value, remaining) => {
    const { keyId, key } = await createKey({ credits: { remaining: 10 } });
    expect(await change(keyId, operation, value)).toEqual({ remaining });
    expect((await ok('keys.getKey', { keyId })).credits).toEqual({ remaining });
    expect(await ok('keys.verifyKey', { key, credits: { cost: 0 } })).toMatchObject({ credits: remaining });
  });

  test('the response has the refill, which setting a number keeps', async () => {
    const { keyId } = await createKey({ credits: { remaining: 1, refill: { interval: 'monthly', amount: 9 } } });
    const refill = { interval: 'monthly', amount: 9, refillDay: 1 };
    expect(await change(keyId, 'set', 5)).toEqual({ remaining: 5, refill });
    expect(await change(keyId, 'increment', 5)).toEqual({ remaining: 10, refill });
    expect(await change(keyId, 'decrement', 5)).toEqual({ remaining: 5, refill });
  });

  test('a kept refill is still applied', async () => {
    const { keyId, key } = await createKey({ credits: { remaining: 1, refill: daily } });
    await change(keyId, 'set', 5);
    clock.advance(dayMs);
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ credits: 8 });
  });

  test('a refill that is due is applied before the change', async () => {
    const { keyId } = await createKey({ credits: { remaining: 1, refill: daily } });
    clock.advance(dayMs);
    expect(await change(keyId, 'increment', 1)).toMatchObject({ remaining: 10 });
  });

  test('setting null makes the key unlimited: null in the response, no credits in the record, nothing charged', async () => {
    const { keyId, key } = await createKey({ credits: { remaining: 1, refill: daily } });
    expect(await change(keyId, 'set', null)).toEqual({ remaining: null });
    expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('credits');
    expect(await ok('keys.verifyKey', { key })).not.toHaveProperty('credits');
  });

  test('setting null removes the refill, also when a number is set later', async () => {
    const { keyId } = await createKey({ credits: { remaining: 1, refill: daily } });
    await change(keyId, 'set', null);
    expect(await change(keyId, 'set', 5)).toEqual({ remaining: 5 });
    clock.advance(dayMs);
    expect((await ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 5 });
  });

  test('setting a number limits an unlimited key', async () => {
    const { keyId, key } = await createKey();
    expect(await change(keyId, 'set', 1)).toEqual({ remaining: 1 });
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true, credits: 0 });
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'USAGE_EXCEEDED' });
  });

  test('setting null on an unlimited key changes nothing', async () => {
    const { keyId } = await createKey();
    expect(await change(keyId, 'set', null)).toEqual({ remaining: null });
  });

  test('sets updatedAt and nothing else of the key', async () => {
    const { keyId } = await createKey({ name: 'Alice', meta: { a: 1 }, credits: { remaining: 1 } });
    const before = await ok('keys.getKey', { keyId });
    clock.advance(5);
    await change(keyId, 'increment', 1);
    expect(await ok('keys.getKey', { keyId })).toEqual({ ...before, updatedAt: clock.now, credits: { remaining: 2 } });
  });

  test('concurrent increments all count', async () => {
    const { keyId } = await createKey({ credits: { remaining: 0 } });
    await Promise.all(Array.from({ length: 50 }, () => change(keyId, 'increment', 2)));
    expect((await ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 100 });
  });

  test('the next verification uses the change', async () => {
    const { keyId, key } = await createKey({ credits: { remaining: 1 } });
    await ok('keys.verifyKey', { key });
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'USAGE_EXCEEDED' });
    await change(keyId, 'set', 1);
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'VALID', credits: 0 });
  });
});

describe('keys.updateCredits: 400', () => {
  test.each<[string, object, string]>([
    ['no keyId', { keyId: undefined }, 'body.keyId'],
    ['no operation', { operation: undefined }, 'body.operation'],
    ['an unknown operation', { operation: 'reset' }, 'body.operation'],
    ['set without value', { operation: 'set', value: undefined }, 'body.value'],
    ['increment without value', { operation: 'increment', value: undefined }, 'body.value'],
    ['decrement without value', { operation: 'decrement', value: undefined }, 'body.value'],
    ['increment by null', { operation: 'increment', value: null }, 'body.value'],
    ['decrement by null', { operation: 'decrement', value: null }, 'body.value'],
    ['a negative value', { value: -1 }, 'body.value'],
    ['half a credit', { value: 1.5 }, 'body.value'],
    ['a value beyond the safe integers', { value: most + 1 }, 'body.value'],
    ['a value as text', { value: '1' }, 'body.value'],
    ['an unknown field', { refill: daily }, 'body.refill'],
    ['an increment past the safe integers', { operation: 'increment', value: most }, 'body.value'],
  ])('for %s; nothing changes', async (_title, input, location) => {
    const { keyId } = await createKey({ credits: { remaining: 1, refill: daily } });
    const before = await ok('keys.getKey', { keyId });
    expect(await update({ keyId, operation: 'set', value: 5, ...input })).toMatchObject(invalidAt(location));
    expect(await ok('keys.getKey', { keyId })).toEqual(before);
  });

  test.each(['increment', 'decrement'])('for %s on an unlimited key, which stays unlimited', async (operation) => {
    const { keyId } = await createKey();
    const before = await ok('keys.getKey', { keyId });
    expect(await update({ keyId, operation, value: 1 })).toMatchObject({ status: 400, code: 'invalid_input' });
    expect(await ok('keys.getKey', { keyId })).toEqual(before);
  });

  test('comes before 404', async () => {
    expect((await update({ keyId: 'key_unknown', operation: 'set' })).status).toBe(400);
  });
});
