import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { chunks } from '../../src/redis/chunks.ts';
import { redisProxy } from '../decide/leases/proxy.ts';
import { runCli } from '../support/cli.ts';
import { served } from '../support/cliWays.ts';
import { harness, type InputOf } from '../support/harness.ts';

/** A Redis that is far away: a step takes as long as a round trip. */
const distance = redisProxy();
const far = harness(distance.url, { commandTimeoutMs: 20_000, leaseMs: 0 });
const url = served(far);
const beside = harness(undefined, { nowMs: () => far.clock.now, leaseMs: 0 });

test('a deletion that takes long ends, and returns how many are left; the same request continues', async () => {
  const { of, rootKey } = await far.openWorkspace();
  const near = async <Name extends 'keys.verifyKey' | 'plans.listPlans'>(name: Name, input: InputOf<Name>) =>
    (await beside.call(name, input, rootKey)).data;
  const { apiId } = await of('apis.createApi', { name: 'many' });
  const plans = ['slow', 'listed'].map((name) => ({ planId: `${name}.old`, replaceWith: `${name}.new` }));
  const secretOf = (planId: string, at: number) => `${planId.replace('.', '_')}_${at}`;
  for (const { planId, replaceWith } of plans) {
    for (const each of [planId, replaceWith]) await of('plans.createPlan', { planId: each });
    const keys = Array.from({ length: 900 }, (_, at) => ({
      hash: createHash('sha256').update(secretOf(planId, at)).digest('base64'),
      planId,
    }));
    for (const some of chunks(keys, 300)) await of('keys.migrateKeys', { migrationId: 'many', apiId, keys: [...some] });
  }
  const countsOf = async () =>
    Object.fromEntries((await near('plans.listPlans', {})).map(({ planId, keyCount }) => [planId, keyCount]));
  expect(await countsOf()).toEqual({ 'slow.old': 900, 'slow.new': 0, 'listed.old': 900, 'listed.new': 0 });
  // About seven steps in five seconds.
  Object.assign(distance, { delayMs: 400, delayRequestsMs: 400 });
  const [slow] = plans as [(typeof plans)[number]];
  // The command repeats the request until the plan is gone.
  const args = ['plan', 'delete', 'listed.old', '--replace-with', 'listed.new', '--confirm', 'listed.old'];
  const command = runCli(args, { TOLLGATE_URL: url(), TOLLGATE_ROOT_KEY: rootKey });
  const { left } = await of('plans.deletePlan', slow);
  const counts = await countsOf();
  expect(left).toBe(counts['slow.old']);
  expect(left).toBeGreaterThan(0);
  expect(left).toBeLessThan(900);
  expect(left! % 100).toBe(0);
  expect(counts['slow.new']).toBe(900 - left!);
  const planOf = async (at: number) => (await near('keys.verifyKey', { key: secretOf('slow.old', at) })).plan!.planId;
  expect([await planOf(0), await planOf(899)]).toEqual(['slow.new', 'slow.old']);
  expect((await command).out).toBe('Deleted plan listed.old. Its keys and customers have listed.new.\n');
  Object.assign(distance, { delayMs: 0, delayRequestsMs: 0 });
  expect(await of('plans.deletePlan', slow)).toEqual({});
  expect(await countsOf()).toEqual({ 'slow.new': 900, 'listed.new': 900 });
});
