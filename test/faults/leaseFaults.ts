// Faults while leases are out, for the short and the long programs. Each function is one round, and returns its
// figures.

import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, onTestFinished, vi } from 'vitest';
import { type Client, openClient } from '../support/client.ts';
import {
  checkOf,
  decidedLocally,
  type LeaseRig,
  type LeaseServer,
  leaseMs,
  outcomesAfter,
  perMinute,
  perTwentyMinutes,
  type Shooting,
  type Shot,
  startLoad,
  sumOf,
  valid,
  waitMs,
} from './leaseRig.ts';

/**
 * Tolerance for timers and processes of a busy machine, in milliseconds, where a promise cannot be checked without one.
 */
const slackMs = 2000;

/** Resolves when one of these servers has decided without Redis since this was called. */
async function leased(servers: readonly LeaseServer[]): Promise<void> {
  const before = await decidedLocally(servers);
  const decides = async () => expect(await decidedLocally(servers)).toBeGreaterThan(before);
  await vi.waitFor(decides, { timeout: 60_000, interval: 20 });
}

const timed = async (change: () => Promise<unknown>): Promise<number> => {
  const startedAt = performance.now();
  await change();
  return performance.now() - startedAt;
};

/** The fastest of several changes: one that did not have to wait, if there is one. */
async function fastestChange({ ok }: Client, keyId: string): Promise<number> {
  const times: number[] = [];
  for (let time = 0; time < 10; time++) times.push(await timed(() => ok('keys.updateKey', { keyId, name: `${time}` })));
  return Math.min(...times);
}

/** Kills a server that holds leases. */
export async function killHolder(rig: LeaseRig) {
  const [limit, credits] = [8000, 100_000];
  const victim = await rig.start();
  const all = [...rig.servers, victim];
  const limited = await rig.newKey({ ratelimits: [perTwentyMinutes(limit)] });
  const credited = await rig.newKey({ credits: { remaining: credits } });
  const input = (caller: number) => ({ key: caller % 2 === 0 ? limited.key : credited.key });
  const load = startLoad(all, { connections: 16, input, isCalm: true });
  await leased([victim]);
  load.rush();
  await load.answered(16, performance.now());
  await victim.stop('SIGKILL');
  const killedAt = performance.now();

  const firstChangeMs = await timed(() => rig.ok('keys.updateKey', { keyId: credited.keyId, name: 'first' }));
  expect(firstChangeMs).toBeLessThan(waitMs() + slackMs);
  await vi.waitFor(() => expect(outcomesAfter(load.shots, killedAt)).toContain('RATE_LIMITED'), { timeout: 60_000 });
  const refusedFrom = load.shots.find(({ code }) => code === 'RATE_LIMITED')!.answeredAt;
  await load.stop();
  const laterChangesMs = await fastestChange(rig.servers[0]!.client, credited.keyId);
  expect(laterChangesMs).toBeLessThan(leaseMs);

  const survivors = load.shots.filter(({ server }) => server !== victim);
  expect(new Set(survivors.map(({ status }) => status))).toEqual(new Set([200]));
  const admitted = valid(load.shots).filter(({ key }) => key === limited.key);
  const unanswered = load.shots.filter(
    ({ server, status, sentAt }) => server === victim && status === 0 && sentAt < killedAt,
  );
  expect(admitted.length).toBeLessThanOrEqual(limit);
  expect(admitted.every(({ sentAt }) => sentAt <= refusedFrom)).toBe(true);
  // Nothing is left: what the killed server held counts as spent.
  const { ratelimits } = await rig.ok('keys.verifyKey', {
    key: limited.key,
    ratelimits: [{ name: 'requests', cost: 0 }],
  });
  expect(ratelimits).toMatchObject([{ remaining: 0 }]);

  const spent = valid(load.shots).filter(({ key }) => key === credited.key);
  const { remaining } = (await rig.ok('keys.getKey', { keyId: credited.keyId })).credits!;
  expect(credits - remaining!).toBeGreaterThanOrEqual(spent.length);
  let missing = 0;
  for (const { key, keyId } of [limited, credited]) {
    const answered = load.shots.filter((shot) => shot.key === key && shot.status === 200);
    // The look at the limited key was counted too.
    const looks = key === limited.key ? 1 : 0;
    const counted = sumOf(await rig.usageOf(keyId, answered.length + looks)) - looks;
    expect(counted).toBeLessThanOrEqual(answered.length + unanswered.length);
    missing += Math.max(0, answered.length - counted);
  }
  // The last answers of the killed server: if they were so many, how old is the oldest of them?
  const last = load.shots.filter(({ server, status }) => server === victim && status === 200).slice(-missing);
  const missingMs = missing === 0 ? 0 : killedAt - last[0]!.answeredAt;
  expect(missingMs).toBeLessThan(leaseMs / 4 + slackMs);
  return {
    admitted: admitted.length,
    limit,
    lostUnits: limit - admitted.length,
    lostCredits: credits - remaining! - spent.length,
    firstChangeMs,
    laterChangesMs,
    missing,
    missingMs,
    answered: load.shots.filter(({ status }) => status === 200).length,
  };
}

/** Stops a server that holds leases of this term, revokes the key at another one, and lets the first one go on. */
export async function stopHolder(rig: LeaseRig, stoppedMs: number, termMs = leaseMs) {
  const [holder, changer] = rig.servers as [LeaseServer, LeaseServer];
  const { key, keyId } = await rig.newKey(termMs === leaseMs ? { ratelimits: [perMinute(1_000_000)] } : {});
  const load = startLoad(rig.servers, { connections: 8, input: () => ({ key }), isCalm: true });
  await leased([holder]);
  load.rush();
  await load.answered(8, performance.now());
  const stoppedAt = performance.now();
  onTestFinished(() => void holder.child.kill('SIGCONT'));
  holder.child.kill('SIGSTOP');
  const changeMs = await timed(() => changer.client.ok('keys.updateKey', { keyId, enabled: false }));
  const answeredAt = performance.now();
  // These wait in the sockets of the stopped server.
  const late = openClient(holder.url, rig.rootKey);
  const waiting = Promise.all(Array.from({ length: 32 }, () => late.ok('keys.verifyKey', { key })));
  await delay(Math.max(20, stoppedMs - (performance.now() - stoppedAt)));
  // No other change waits for it, as long as it is stopped.
  const nextMs = stoppedMs > 0 ? await fastestChange(changer.client, keyId) : 0;
  holder.child.kill('SIGCONT');
  const answers = await waiting;
  await load.answered(20, answeredAt);
  await load.stop();
  late.close();
  expect(new Set(answers.map(({ code }) => code))).toEqual(new Set(['DISABLED']));
  expect(outcomesAfter(load.shots, answeredAt)).toEqual(new Set(['DISABLED']));
  // It did wait for the stopped server.
  expect(changeMs).toBeGreaterThan(termMs);
  expect(changeMs).toBeLessThan(waitMs(termMs) + slackMs);
  expect(nextMs).toBeLessThan(leaseMs);
  return { changeMs, nextMs, late: answers.length + load.shots.filter(({ sentAt }) => sentAt > answeredAt).length };
}

/** Ends Redis while leases are out, starts it again, and revokes the key as early as possible. */
export async function restartRedis(
  rig: LeaseRig,
  end: () => Promise<unknown>,
  { termMs = leaseMs, pauseMs = waitMs(termMs) + 150, prepare = async (): Promise<unknown> => undefined } = {},
) {
  const changer = rig.servers[0]!;
  const { key, keyId } = await rig.newKey();
  const { key: cold } = await rig.newKey();
  await prepare();
  const load = startLoad(rig.servers, { connections: 4, input: () => ({ key }), isCalm: true });
  await leased(rig.servers);
  load.rush();
  await load.answered(4, performance.now());
  await end();
  await rig.redis.ended();
  const endedAt = performance.now();
  await delay(pauseMs);
  const startedAt = performance.now();
  const startedAgain = rig.redis.start();

  // Refused until the server is connected again.
  let refusedAt = 0;
  const connected = (async () => {
    for (;;) {
      const sentAt = performance.now();
      if ((await changer.client.call('keys.verifyKey', { key: cold })).status === 200) return;
      refusedAt = sentAt;
    }
  })();
  let changedAt = 0;
  while (changedAt === 0) {
    const { status } = await changer.client.call('keys.updateKey', { keyId, enabled: false });
    if (status === 200) changedAt = performance.now();
  }
  await connected;
  await startedAgain;
  // The other servers may connect later.
  const serves = (server: LeaseServer) =>
    load.shots.some((shot) => shot.server === server && shot.sentAt > changedAt && shot.status === 200);
  await vi.waitFor(() => expect(rig.servers.every(serves)).toBe(true), { timeout: 20_000 });
  await load.stop();

  expect(changedAt - refusedAt).toBeGreaterThan(waitMs(termMs));
  expect(valid(load.shots).filter(({ sentAt }) => sentAt > changedAt)).toEqual([]);
  expect([...outcomesAfter(load.shots, 0)].every((code) => ['VALID', 'DISABLED', '503'].includes(code))).toBe(true);
  const served = load.shots.filter(({ sentAt, status }) => sentAt > endedAt && sentAt < startedAt && status === 200);
  const servedMs = Math.max(0, ...served.map(({ sentAt }) => sentAt - endedAt));
  expect(servedMs).toBeLessThan(termMs);
  return { served: served.length, servedMs, waitedMs: changedAt - refusedAt };
}

/**
 * Verifies on all servers until each caller is refused. Exactly `admits` pass, and none of them begins after a refusal.
 */
export async function exhaust(
  servers: readonly LeaseServer[],
  { inputs, admits, connections = 64 }: { inputs: readonly Shooting[]; admits: number; connections?: number },
) {
  const isRefusal = ({ code }: Shot) => code === 'RATE_LIMITED' || code === 'USAGE_EXCEEDED';
  const before = await decidedLocally(servers);
  const load = startLoad(servers, {
    connections,
    input: (caller) => inputs[caller % inputs.length]!,
    endsAt: isRefusal,
  });
  await load.ended;
  const { shots } = load;
  const refusedFrom = Math.min(...shots.filter(isRefusal).map(({ answeredAt }) => answeredAt));
  expect(new Set(shots.map(({ status }) => status))).toEqual(new Set([200]));
  expect(valid(shots).length).toBe(admits);
  // A refusal before the last unit was used would be wrong.
  expect(valid(shots).filter(({ sentAt }) => sentAt > refusedFrom)).toEqual([]);
  return { shots, decided: (await decidedLocally(servers)) - before };
}

/** What is revoked: how to make it, to verify by it, and to revoke it; and the outcomes from then on. */
export interface Revocable {
  input: Shooting;
  rootKey?: string;
  revoke: (by: Client) => Promise<unknown>;
  /** Outcomes or status. */
  outcome: string;
}

export const revocables: Record<string, (rig: LeaseRig) => Promise<Revocable>> = {
  'a key disabled': async ({ newKey }) => {
    const { key, keyId } = await newKey({ ratelimits: [perMinute(10_000_000)] });
    return { input: { key }, revoke: ({ ok }) => ok('keys.updateKey', { keyId, enabled: false }), outcome: 'DISABLED' };
  },
  'a key deleted': async ({ newKey }) => {
    const { key, keyId } = await newKey();
    return { input: { key }, revoke: ({ ok }) => ok('keys.deleteKey', { keyId }), outcome: 'NOT_FOUND' };
  },
  'an override lowered': async ({ ok }) => {
    const input = checkOf(10_000_000);
    const { namespace, identifier, duration } = input;
    // Less than what is used by then.
    const revoke = (by: Client) => by.ok('ratelimits.setOverride', { namespace, identifier, duration, limit: 1 });
    await ok('ratelimits.setOverride', { namespace, identifier, duration, limit: 5_000_000 });
    return { input, revoke, outcome: 'RATE_LIMITED' };
  },
  'a root key deleted': async ({ newKey, ok }) => {
    const { key } = await newKey({ credits: { remaining: 10_000_000 } });
    const root = await ok('rootKeys.createRootKey', { permissions: ['api.*.verify_key'] });
    const { rootKeyId } = root;
    return {
      input: { key },
      rootKey: root.key,
      revoke: (by) => by.ok('rootKeys.deleteRootKey', { rootKeyId }),
      outcome: '401',
    };
  },
  'a permission removed from a role': async ({ newKey, ok }) => {
    const role = `role_${randomBytes(4).toString('hex')}`;
    const [slug, other] = [`docs.${role}.read`, `docs.${role}.write`];
    const { roleId } = await ok('permissions.createRole', { name: role, permissions: [slug, other] });
    const { key } = await newKey({ roles: [role] });
    return {
      input: { key, permissions: slug },
      revoke: (by) => by.ok('permissions.setRolePermissions', { roleId, permissions: [other] }),
      outcome: 'INSUFFICIENT_PERMISSIONS',
    };
  },
};

/** Kills a server that holds units of an identifier. Returns how many of them were lost. */
export async function killChecker(rig: LeaseRig) {
  const limit = 10_000;
  const victim = await rig.start();
  const all = [...rig.servers, victim];
  const load = startLoad(all, { connections: 16, input: always(checkOf(limit)), isCalm: true });
  await leased([victim]);
  load.rush();
  await load.answered(16, performance.now());
  await victim.stop('SIGKILL');
  const killedAt = performance.now();
  await vi.waitFor(() => expect(outcomesAfter(load.shots, killedAt)).toContain('RATE_LIMITED'), { timeout: 60_000 });
  await load.stop();
  const refusedFrom = load.shots.find(({ code }) => code === 'RATE_LIMITED')!.answeredAt;
  expect(new Set(load.shots.filter(({ server }) => server !== victim).map(({ status }) => status))).toEqual(
    new Set([200]),
  );
  const admitted = valid(load.shots);
  expect(admitted.length).toBeLessThanOrEqual(limit);
  expect(admitted.filter(({ sentAt }) => sentAt > refusedFrom)).toEqual([]);
  return { limit, admitted: admitted.length, answered: load.shots.length };
}

const always = (input: Shooting) => () => input;

/** Revokes while 64 connections to each server verify: no VALID that began later. */
export async function revokeUnderLoad(
  rig: LeaseRig,
  {
    servers = rig.servers,
    make,
    by = servers[0]!.client,
    connections = 64,
  }: {
    servers?: readonly LeaseServer[];
    make: (rig: LeaseRig) => Promise<Revocable>;
    by?: Client;
    connections?: number;
  },
) {
  const { input, rootKey, revoke, outcome } = await make(rig);
  const before = await decidedLocally(servers);
  const load = startLoad(servers, { connections, input: () => input, isCalm: true, ...(rootKey && { rootKey }) });
  await leased(servers);
  load.rush();
  await load.answered(connections, performance.now());
  const changeMs = await timed(() => revoke(by));
  const revokedAt = performance.now();
  await load.answered(connections, revokedAt);
  await load.stop();
  expect(outcomesAfter(load.shots, revokedAt)).toEqual(new Set([outcome]));
  return {
    changeMs,
    decided: (await decidedLocally(servers)) - before,
    late: load.shots.filter(({ sentAt }) => sentAt > revokedAt).length,
  };
}

/**
 * Uses up limits and balances on all servers, 64 connections to each, several times. Returns the figures. A single time
 * takes less than two seconds, in which servers may seldom get no lease.
 */
export async function exhaustAll(rig: LeaseRig, { times }: { times: number }): Promise<string> {
  let decided = 0;
  for (let time = 0; time < times; time++) decided += await exhaustEach(rig);
  expect(decided).toBeGreaterThan(0);
  return `300 of 300 twice, 2000 of 2000, 2000 of 2000 shared by two keys, 3000 of 6000 credits at cost 2; 300 of 300 and 2000 of 2000 of one identifier; ${decided} decided without Redis in all`;
}

/** Returns the number of decisions without Redis. */
async function exhaustEach({ servers, newKey, ok, usageOf }: LeaseRig): Promise<number> {
  let decided = 0;
  for (const limit of [300, 300, 2000]) {
    const { key, keyId } = await newKey({ ratelimits: [(limit === 300 ? perMinute : perTwentyMinutes)(limit)] });
    const exhausted = await exhaust(servers, { inputs: [{ key }], admits: limit });
    const total = exhausted.shots.length;
    expect(await usageOf(keyId, total)).toEqual({ VALID: limit, RATE_LIMITED: total - limit });
    decided += exhausted.decided;
  }
  const externalId = `shared_${randomBytes(4).toString('hex')}`;
  await ok('identities.createIdentity', { externalId, ratelimits: [perTwentyMinutes(2000)] });
  const shared = [await newKey({ externalId }), await newKey({ externalId })].map(({ key }) => ({ key }));
  decided += (await exhaust(servers, { inputs: shared, admits: 2000 })).decided;
  const { key, keyId } = await newKey({ credits: { remaining: 6000 } });
  decided += (await exhaust(servers, { inputs: [{ key, credits: { cost: 2 } }], admits: 3000 })).decided;
  expect((await ok('keys.getKey', { keyId })).credits).toMatchObject({ remaining: 0 });
  for (const limit of [300, 2000])
    decided += (await exhaust(servers, { inputs: [checkOf(limit)], admits: limit })).decided;
  return decided;
}
