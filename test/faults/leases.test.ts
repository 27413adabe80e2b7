// Faults while leases are out (docs/leases.md), with real servers: never over a limit, never refused
// wrongly, no VALID by a state that an answered change has ended, and every answer counted. leases.long.test.ts has the
// long forms.

import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { digestOf } from '../../src/domain/keyString.ts';
import { dayMs, hourMs } from '../support/harness.ts';
import { build, cliFile, endAll, run, serverEnv, temporaryDir } from '../support/processes.ts';
import { longTest } from '../support/testIf.ts';
import {
  exhaust,
  exhaustAll,
  killChecker,
  killHolder,
  restartRedis,
  revocables,
  revokeUnderLoad,
  stopHolder,
} from './leaseFaults.ts';
import {
  decidedLocally,
  type LeaseRig,
  leaseMs,
  ms,
  openLeaseRig,
  outcomesAfter,
  perTwentyMinutes,
  startLoad,
  sumOf,
  valid,
  waitMs,
} from './leaseRig.ts';
import { compiles } from './preload.ts';
import { report } from './report.ts';

let rig: LeaseRig;
beforeAll(async () => {
  build();
  rig = await openLeaseRig(4);
});
afterAll(endAll);

test('a holder killed under load: nothing over the limit, others go on, and a change waits once', async () => {
  const killed = await killHolder(rig);
  report({
    order: '13.1',
    fault: 'kill -9 of one of five servers that hold leases, under load',
    expected:
      'at most the limit is admitted; what it held counts as spent; others serve on; one change waits for the term, once; usage lacks its last quarter of a term at most',
    measured:
      `${killed.admitted} admitted of ${killed.limit}, ${killed.lostUnits} units and ${killed.lostCredits} credits lost with it; changes took ` +
      `${ms(killed.firstChangeMs)}, then ${ms(killed.laterChangesMs)}; of ${killed.answered} answers ${killed.missing} not counted, of the last ${ms(killed.missingMs)}`,
  });
});

longTest('a holder of units of an identifier killed under load', async () => {
  const { limit, admitted, answered } = await killChecker(rig);
  report({
    order: '13.12',
    fault: 'kill -9 of one of five servers that hold units of one identifier, under load',
    expected: 'at most the limit is admitted, nothing that was sent after a refusal; what it held counts as spent',
    measured: `${admitted} admitted of ${limit}, ${limit - admitted} units lost with it; ${answered} answers`,
  });
});

test('a holder stopped under load: a key revoked meanwhile is not valid when it goes on', async () => {
  const rounds = [await stopHolder(rig, 0), await stopHolder(rig, 300)] as const;
  report({
    order: '13.2',
    fault: 'SIGSTOP of a server that holds leases, a key revoked at another one, SIGCONT',
    expected: `the change is answered after LEASE_MS and 1 % (${waitMs()} ms); then not one VALID`,
    measured:
      `changes answered after ${rounds.map(({ changeMs }) => ms(changeMs)).join(' and ')}, the next one after ` +
      `${ms(rounds[1]!.nextMs)}; ${rounds.reduce((sum, { late }) => sum + late, 0)} later requests, none VALID`,
  });
});

longTest('long leases: a holder stopped under load, and Redis restarted', async () => {
  const longMs = 1000;
  const long = await openLeaseRig(4, { env: { LEASE_LONG_MS: `${longMs}` } });
  // The change is made at a server with shorter terms: those of the holder count.
  long.servers[1] = await long.start({ LEASE_LONG_MS: '0' });
  const { changeMs, late } = await stopHolder(long, 0, longMs);
  const { servedMs, waitedMs } = await restartRedis(long, () => Promise.resolve(long.redis.signal('SIGKILL')), {
    termMs: longMs,
  });
  report({
    order: '13.2b',
    fault:
      'SIGSTOP of a server that holds long leases, a key revoked at one with LEASE_LONG_MS=0, SIGCONT; then kill -9 of Redis',
    expected: `the change is answered after LEASE_LONG_MS and 1 % (${waitMs(longMs)} ms); no VALID later, nor after Redis is back`,
    measured:
      `the change was answered after ${ms(changeMs)}, ${late} later requests, none VALID; without Redis the last was served after ` +
      `${ms(servedMs)}, and the first change answered ${ms(waitedMs)} after the last 503`,
  });
});

longTest('Redis stopped for half a lease: hot keys are served without an error', async () => {
  const { key } = await rig.newKey();
  const load = startLoad(rig.servers, { connections: 4, input: () => ({ key }) });
  await load.answered(50);
  let served = 0;
  for (let round = 0; round < 5; round++) {
    rig.redis.signal('SIGSTOP');
    const stoppedAt = performance.now();
    await delay(leaseMs / 2);
    const goesOnAt = performance.now();
    rig.redis.signal('SIGCONT');
    await load.answered(10, goesOnAt);
    served += load.shots.filter(({ sentAt, answeredAt }) => sentAt > stoppedAt && answeredAt < goesOnAt).length;
  }
  await load.stop();
  expect(outcomesAfter(load.shots, 0)).toEqual(new Set(['VALID']));
  expect(served).toBeGreaterThan(0);
  report({
    order: '13.3a',
    fault: 'Redis stopped for half a lease, five times',
    expected: 'a hot key is served for the rest of its lease, without an error',
    measured: `${served} answers while Redis was stopped; ${load.shots.length} in all, each VALID`,
  });
});

test.each([
  ['13.3b', 'kill -9', () => Promise.resolve(rig.redis.signal('SIGKILL'))],
  ['13.3c', 'SHUTDOWN', () => rig.redis.admin.shutdown('NOSAVE').catch(() => {})],
] as const)(
  '%s Redis ended by %s and started again: 503 after the lease, and no change answered within a term',
  async (order, how, end) => {
    const { served, servedMs, waitedMs } = await restartRedis(rig, end);
    report({
      order,
      fault: `Redis ended while leases are out (${how}), and started again`,
      expected: `hot keys are served for at most ${leaseMs} ms, then 503; no change is answered within ${waitMs()} ms after the reconnect`,
      measured: `${served} served without Redis, the last after ${ms(servedMs)}; the first change answered ${ms(waitedMs)} after the last 503`,
    });
  },
);

longTest('four servers, 64 connections to each: exactly what is allowed, and no refusal before', async () => {
  // A server that is slower than a term counts as dead: what it holds is not waited for. So the term is longer here.
  const patient = await openLeaseRig(4, { env: { LEASE_MS: '500' } });
  const measured = await exhaustAll(patient, { times: 3 });
  report({
    order: '13.5',
    fault: 'Four servers with leases of 500 ms, 64 connections to each, on one limit and one balance, three times',
    expected: 'exactly what is allowed passes, and nothing that was sent after a refusal; usage = answers',
    measured: `each time ${measured}`,
  });
});

longTest('a revocation answered while 64 connections hammer on four servers: no VALID that began later', async () => {
  const workers = await rig.start({ WORKERS: '4' });
  const figures: string[] = [];
  for (const [what, make] of Object.entries(revocables)) {
    const { changeMs, late } = await revokeUnderLoad(rig, { make });
    figures.push(`${what}: ${ms(changeMs)}, ${late} later`);
  }
  for (const [what, make] of Object.entries(revocables).slice(0, 2)) {
    const { changeMs, late } = await revokeUnderLoad(rig, { make, servers: [workers] });
    figures.push(`${what}, four workers: ${ms(changeMs)}, ${late} later`);
  }
  await workers.stop();
  report({
    order: '13.6',
    fault: 'A revocation under load of 64 connections to each of four servers, and to four workers',
    expected: 'not one VALID that began after its answer',
    measured: `${figures.join('; ')} requests, none VALID`,
  });
});

longTest('a server with LEASE_MS=0, and the command line, among servers with leases', async () => {
  const { servers, newKey, ok, apiId, rootKey } = rig;
  const without = await rig.start({ LEASE_MS: '0', LEASE_CREDITS: '0' });
  const limited = await newKey({ ratelimits: [perTwentyMinutes(1500)] });
  await exhaust([...servers.slice(0, 3), without], { inputs: [{ key: limited.key }], admits: 1500, connections: 16 });
  expect(await decidedLocally([without])).toBe(0);
  await revokeUnderLoad(rig, { make: revocables['a key disabled']!, by: without.client, connections: 16 });

  const env = serverEnv({ REDIS_URL: rig.redisUrl });
  const cli = async (...args: string[]) => {
    const program = run(process.execPath, [cliFile, ...args], { env });
    expect(await program.ended, program.printed()).toBe(0);
  };
  const workspaceId = `ws_${rootKey.split('_')[1]}`;
  const byCommand = async () => {
    const { key } = await newKey();
    const root = await ok('rootKeys.createRootKey', { permissions: ['api.*.verify_key'] });
    const revoke = () => cli('root-key', 'revoke', root.rootKeyId, '--workspace', workspaceId);
    return { input: { key }, rootKey: root.key, revoke, outcome: '401' };
  };
  const revoked = await revokeUnderLoad(rig, { make: byCommand, connections: 16 });

  // A key that no server knows, until the command line imports it.
  const key = `imported_${randomBytes(8).toString('hex')}`;
  const file = join(temporaryDir(), 'keys.jsonl');
  writeFileSync(file, `${JSON.stringify({ hash: digestOf(key).toString('base64') })}\n`);
  const load = startLoad(servers, { connections: 8, input: () => ({ key }) });
  await load.answered(100);
  await cli('import', file, '--workspace', workspaceId, '--api', apiId);
  const importedAt = performance.now();
  await load.answered(50, importedAt);
  await load.stop();
  expect(outcomesAfter(load.shots, importedAt)).toEqual(new Set(['VALID']));
  report({
    order: '13.7',
    fault: 'A server with LEASE_MS=0, and commands that change, among servers with leases',
    expected: 'limits are exact; a change of either is answered when no server decides by the old state',
    measured:
      `1500 admitted of 1500, none of them decided by that server itself; a root key revoked by the command line under load, ${revoked.late} later requests, none served; ` +
      'a key imported by it VALID at once',
  });
});

test.skipIf(!compiles)('the clock of Redis steps by an hour under load', async () => {
  const [limit, amount] = [800, 50_000];
  // 23:30, so that a step of an hour crosses midnight.
  const start = Math.round(((Math.floor(Date.now() / dayMs) + 2) * dayMs - hourMs / 2 - Date.now()) / 1000);
  const step = (hours: number) => rig.redis.setClock(start + hours * 3600);
  step(0);
  const limited = await rig.newKey({ ratelimits: [perTwentyMinutes(limit)] });
  const refilled = await rig.newKey({ credits: { remaining: 90_000, refill: { interval: 'daily', amount } } });
  const expiring = await rig.newKey({ expires: Date.now() + start * 1000 + hourMs / 2 });
  const keys = [limited.key, refilled.key, expiring.key];
  const load = startLoad(rig.servers, { connections: 9, input: (caller) => ({ key: keys[caller % 3]! }) });
  const of = (key: { key: string }) => load.shots.filter((shot) => shot.key === key.key);
  await load.answered(150);
  step(1);
  const forwardAt = performance.now();
  const refusedAfter = (at: number) => () =>
    expect(of(limited).some(({ sentAt, code }) => sentAt > at && code === 'RATE_LIMITED')).toBe(true);
  await vi.waitFor(refusedAfter(forwardAt + waitMs()), { timeout: 15_000 });
  await load.answered(60, forwardAt + waitMs());
  const backAt = performance.now();
  step(0);
  const isBackAt = performance.now();
  await load.answered(100, isBackAt + waitMs());
  await load.stop();
  const between = (key: { key: string }, from: number, to: number) =>
    of(key).filter(({ sentAt, answeredAt }) => sentAt > from && answeredAt < to);

  // Each step forward opens the limit once, a step back never.
  expect(valid(of(limited)).length).toBeLessThanOrEqual(2 * limit);
  expect(valid(of(limited)).length).toBeGreaterThan(limit);
  expect(outcomesAfter(of(limited), backAt)).toEqual(new Set(['RATE_LIMITED']));
  // A lease lasts a term after a step, no longer.
  expect(valid(between(expiring, forwardAt + leaseMs, backAt))).toEqual([]);
  expect(outcomesAfter(of(expiring), isBackAt + leaseMs)).toEqual(new Set(['VALID']));
  // One refill: what was leased before it is not given back to the new balance.
  const counts = await Promise.all(
    [limited, refilled, expiring].map(({ key, keyId }) =>
      rig.usageOf(keyId, load.shots.filter((shot) => shot.key === key).length),
    ),
  );
  const spentSince = (at: number) => valid(of(refilled)).filter(({ sentAt }) => sentAt > at).length;
  // What is left of a lease is given back when it ends, later than its decisions are counted.
  await vi.waitFor(async () => {
    const { remaining } = (await rig.ok('keys.getKey', { keyId: refilled.keyId })).credits!;
    expect(amount - remaining!).toBeGreaterThanOrEqual(spentSince(forwardAt + leaseMs));
    expect(remaining!).toBeGreaterThanOrEqual(amount - valid(of(refilled)).length);
  });
  expect(counts.map(sumOf)).toEqual([limited, refilled, expiring].map((key) => of(key).length));
  rig.redis.setClock(0);
  report({
    order: '13.4',
    fault: 'The clock of Redis steps forward by an hour under load, and back',
    expected:
      'a step forward opens a limit once, a step back never; a lease shows the old time for a term at most; one refill, and nothing leased before it is given back to it; every answer is counted',
    measured: `${valid(of(limited)).length} admitted of ${limit} before and after the step forward, 0 after the step back; ${load.shots.length} answers, all counted`,
  });
});
