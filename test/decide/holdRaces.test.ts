// Settlements, releases, extensions and the expiry of one hold, sent by four servers at once: it ends exactly once. A
// failure prints its seed: SEED=<n> repeats it.

import { describe, expect, test } from 'vitest';
import { harness, hourMs, type InputOf } from '../support/harness.ts';
import { random, seed } from '../support/random.ts';

const first = harness(undefined, { leaseMs: 0 });
const { clock, ok, createKey } = first;
const others = [1, 2, 3].map(() => harness(undefined, { leaseMs: 0, nowMs: () => clock.now }));
const servers = [first, ...others];

const minute = 60_000;
const tokens = { name: 'tokens', limit: 1000, duration: hourMs };
const held = { credits: { cost: 20 }, ratelimits: [{ name: 'tokens', cost: 300 }] };

type Call = 'keys.settleHold' | 'keys.releaseHold' | 'keys.extendHold';
interface Sent {
  name: Call;
  /** Credits of a settlement, which charges ten times as many units. */
  cost: number;
  status: number;
  data: { late?: boolean; credits?: number; hold?: { expires: number } };
}

/** Sends all of them at once, each by another server. */
async function sendAll(holdId: string, calls: { name: Call; cost: number }[], meanwhile?: () => Promise<unknown>) {
  const sending = calls.map(async ({ name, cost }, index): Promise<Sent> => {
    const input =
      name === 'keys.settleHold'
        ? { holdId, credits: { cost }, ratelimits: [{ name: 'tokens', cost: 10 * cost }] }
        : { holdId, ...(name === 'keys.extendHold' && { ttl: minute }) };
    const { status, data } = await servers[index % 4]!.call(name, input as InputOf<Call>, first.rootKey);
    return { name, cost, status, data: data as Sent['data'] };
  });
  const [sent] = await Promise.all([Promise.all(sending), meanwhile?.()]);
  return sent;
}

async function newHold(onExpiry: 'release' | 'charge' = 'release') {
  const { key, keyId } = await createKey({ credits: { remaining: 100 }, ratelimits: [tokens] });
  const { hold } = await ok('keys.verifyKey', { key, ...held, hold: { ttl: minute, onExpiry } });
  return { key, keyId, holdId: hold!.id };
}

/** Credits and units that are spent or held. */
async function taken({ key, keyId }: { key: string; keyId: string }) {
  const look = { key, credits: { cost: 0 }, ratelimits: [{ name: 'tokens', cost: 0 }] };
  const { credits, ratelimits } = await ok('keys.verifyKey', look);
  const [open] = await ok('keys.listHolds', { keyId });
  return {
    spent: 100 - credits! - (open?.credits ?? 0),
    units: 1000 - ratelimits![0]!.remaining,
    open: open !== undefined,
  };
}

/** What all answers together may say, and what is left then. */
async function check(made: Awaited<ReturnType<typeof newHold>>, sent: Sent[]) {
  const settled = sent.filter(({ name, status }) => name === 'keys.settleHold' && status === 200);
  const costs = new Set(settled.map(({ cost }) => cost));
  expect(costs.size, 'amounts that were charged').toBeLessThanOrEqual(1);
  expect(new Set(settled.map(({ data }) => JSON.stringify(data))).size).toBe(costs.size);
  for (const { status } of sent) expect([200, 409]).toContain(status);
  const { spent, units, open } = await taken(made);
  const [cost] = costs;
  if (cost !== undefined) expect({ spent, units, open }).toEqual({ spent: cost, units: 10 * cost, open: false });
  return { spent, units, open, cost };
}

const rounds = Array.from({ length: 25 }, (_, round) => seed + round);
const some = (pick: ReturnType<typeof random>, names: Call[]) =>
  Array.from({ length: 12 }, () => ({ name: names[pick(0, names.length - 1)]!, cost: pick(0, 3) * 10 }));

describe('one hold ends once', () => {
  test.each(rounds)('settled with the same and with other amounts: %i', async (number) => {
    const made = await newHold();
    const sent = await sendAll(made.holdId, some(random(number), ['keys.settleHold']));
    expect((await check(made, sent)).cost).toBeDefined();
    expect(sent.every(({ data, status }) => status === 409 || data.late === false)).toBe(true);
  });

  test.each(rounds)('settled, released and extended: %i', async (number) => {
    const made = await newHold();
    const calls = some(random(number), ['keys.settleHold', 'keys.releaseHold', 'keys.extendHold']);
    const sent = await sendAll(made.holdId, calls);
    const { cost, open, spent } = await check(made, sent);
    const released = sent.some(({ name, status }) => name === 'keys.releaseHold' && status === 200);
    // A settlement after a release is late.
    for (const { name, status, data } of sent)
      if (name === 'keys.settleHold' && status === 200) expect(data.late).toBe(released);
    if (cost === undefined) expect([open, spent]).toEqual([!released, 0]);
  });

  test.each(rounds)('while it expires: %i', async (number) => {
    const pick = random(number);
    const onExpiry = pick(0, 1) === 0 ? 'release' : 'charge';
    const made = await newHold(onExpiry);
    clock.advance(minute - 1);
    const calls = some(pick, ['keys.settleHold', 'keys.extendHold']);
    const expire = async () => {
      for (let turns = pick(0, 3); turns > 0; turns--) await new Promise((resolve) => setImmediate(resolve));
      clock.advance(1);
      await Promise.all(servers.map(({ store }) => store.sweep.holds(first.workspaceId)));
    };
    const sent = await sendAll(made.holdId, calls, expire);
    clock.advance(2 * minute);
    const { cost, open, spent, units } = await check(made, sent);
    expect(open).toBe(false);
    if (cost === undefined) {
      expect([spent, units]).toEqual(onExpiry === 'charge' ? [20, 300] : [0, 0]);
    }
  });

  test.each(rounds)('of the same id, asked for at once: %i', async () => {
    const { key, keyId } = await createKey({ credits: { remaining: 100 }, ratelimits: [tokens] });
    const request = { key, ...held, hold: { ttl: minute, id: 'same' } };
    const answers = await Promise.all(servers.map(({ call }) => call('keys.verifyKey', request, first.rootKey)));
    expect(new Set(answers.map(({ data }) => JSON.stringify(data.hold))).size).toBe(1);
    expect(answers.map(({ data }) => data.credits)).toEqual([80, 80, 80, 80]);
    expect(await ok('keys.listHolds', { keyId })).toHaveLength(1);
    expect(await taken({ key, keyId })).toEqual({ spent: 0, units: 300, open: true });
  });
});
