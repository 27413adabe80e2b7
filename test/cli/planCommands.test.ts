// The commands about plans: on the store and over HTTP, with the same results.

import { expect, test } from 'vitest';
import { planLimitOf } from '../../src/cli/planCommands.ts';
import { refused } from '../support/cli.ts';
import { cellsOf, describeWays, served } from '../support/cliWays.ts';
import { harness } from '../support/harness.ts';

const app = harness();
const url = served(app);

let made = 0;
const newName = (name: string) => `${name}.${++made}`;

describeWays(app, url, ({ run, lines, json }) => {
  test('a plan is created, changed, shown, listed and deleted', async () => {
    const planId = newName('pro');
    await app.ok('permissions.createRole', { name: planId });
    expect(
      await lines(
        ...['plan', 'set', planId, '--ratelimit', 'requests=100/1m', 'tokens=1000000/month'],
        ...['--permission', 'docs.read', '--role', planId, '--meta', '{"seats":5}'],
      ),
    ).toEqual([
      `Created plan ${planId}. It has the limit requests 100 per 1m, the limit tokens 1000000 per month, ` +
        `the permission docs.read, the role ${planId}.`,
    ]);
    // What is not given stays.
    expect(await lines('plan', 'set', planId, '--permission', 'docs.read', 'docs.write')).toEqual([
      `Changed plan ${planId}. It has the limit requests 100 per 1m, the limit tokens 1000000 per month, ` +
        `the permission docs.read, the permission docs.write, the role ${planId}.`,
      '0 keys and 0 customers have it.',
    ]);
    expect(await lines('plan', 'set', planId, '--role', 'none', '--permission', 'none', '--meta', 'null')).toEqual([
      `Changed plan ${planId}. It has the limit requests 100 per 1m, the limit tokens 1000000 per month.`,
      '0 keys and 0 customers have it.',
    ]);
    const shown = await json('plan', 'show', planId);
    expect(shown).toMatchObject({ planId, permissions: [], roles: [], keyCount: 0, identityCount: 0 });
    expect(shown).not.toHaveProperty('meta');
    const [heading, ...rows] = await lines('plan', 'list', '--search', planId);
    expect(cellsOf(heading!)).toEqual(['PLAN', 'LIMITS', 'PERMISSIONS', 'ROLES', 'KEYS', 'CUSTOMERS']);
    expect(rows.map((row) => row.split(/\s+/)[0])).toEqual([planId]);
    await refused(run(['plan', 'delete', planId]), `To confirm it, add --confirm "${planId}"`);
    expect(await lines('plan', 'delete', planId, '--confirm', planId)).toEqual([`Deleted plan ${planId}.`]);
    await refused(run(['plan', 'show', planId]), 'There is no plan');
  });

  test('one limit is changed, added and removed, and the others stay', async () => {
    const planId = newName('pro');
    await lines('plan', 'set', planId, '--ratelimit', 'requests=100/1m', 'jobs=5/10m/concurrency', 'tokens=9/1h/named');
    const limit = async (...args: string[]) => (await lines('plan', 'limit', planId, ...args))[0];
    const others = 'jobs 5 slots for 10m, tokens 9 per 1h (only when named)';
    expect(await limit('requests', '200')).toBe(`${planId} now has the limits requests 200 per 1m, ${others}.`);
    expect(await limit('requests', '200', '--per', 'day')).toContain('the limits requests 200 per day, jobs');
    expect(await limit('requests', '300')).toContain('the limits requests 300 per day, jobs');
    expect(await limit('requests', '300', '1h')).toContain('the limits requests 300 per 1h, jobs');
    expect(await limit('jobs', '6', '5m')).toContain(', jobs 6 slots for 5m, ');
    expect(await limit('mails', '7', '90s')).toContain('(only when named), mails 7 per 90s.');
    expect(await limit('requests', 'none')).not.toContain('requests');
    await refused(run(['plan', 'limit', planId, 'others', '7']), 'There is no limit others, only jobs, tokens, mails.');
  });

  test('customers and keys get a plan, are listed by it, and lose it', async () => {
    const [free, pro, owner] = [newName('free'), newName('pro'), newName('owner')];
    for (const planId of [free, pro]) await lines('plan', 'set', planId, '--ratelimit', 'requests=10/month');
    await lines('identity', 'create', owner, '--plan', free);
    const { keyId, apiId } = await app.createKey({ externalId: owner });
    const created = await json('key', 'create', '--api', apiId, '--plan', free);
    expect(await app.ok('keys.getKey', { keyId: created.keyId })).toMatchObject({ planId: free });
    expect(await lines('identity', 'plan', owner, pro)).toEqual([`${owner} has the plan ${pro}.`]);
    expect(await lines('key', 'plan', keyId, free)).toEqual([`${keyId} has the plan ${free}.`]);
    const ofPro: { externalId: string }[] = await json('identity', 'list', '--plan', pro);
    expect(ofPro.map(({ externalId }) => externalId)).toEqual([owner]);
    const ofFree = await json('key', 'list', '--plan', free);
    expect(ofFree.map((key: { keyId: string }) => key.keyId).sort()).toEqual([keyId, created.keyId].sort());
    const [heading] = await lines('key', 'list', '--plan', free);
    expect(cellsOf(heading!)).toContain('PLAN');
    expect((await lines('key', 'explain', keyId)).join('\n')).toContain(
      `requests of key (plan ${free}): 0 of 10 per month`,
    );
    expect(await lines('key', 'plan', keyId, 'none')).toEqual([`${keyId} has no plan.`]);
    expect((await lines('key', 'explain', keyId)).join('\n')).toContain(`requests of identity (plan ${pro})`);

    await refused(run(['plan', 'delete', free, '--confirm', free]), 'is used: keys: 1, identities: 0.');
    expect(await lines('plan', 'delete', free, '--replace-with', pro, '--confirm', free)).toEqual([
      `Deleted plan ${free}. Its keys and customers have ${pro}.`,
    ]);
    expect(await app.ok('keys.getKey', { keyId: created.keyId })).toMatchObject({ planId: pro });
    expect(await lines('identity', 'plan', owner, 'none')).toEqual([`${owner} has no plan.`]);
    await refused(run(['identity', 'plan', owner, 'unknown']), 'There is no plan "unknown"');
  });

  test('a bill has the plan of each customer', async () => {
    const [planId, owner] = [newName('pro'), newName('owner')];
    await lines('plan', 'set', planId, '--ratelimit', 'requests=10/month');
    await lines('identity', 'create', owner, '--plan', planId);
    const { key } = await app.createKey({ externalId: owner });
    await app.ok('keys.verifyKey', { key });
    const { out } = await run(['usage', '--month', '--csv']);
    const rows = out.split('\n');
    expect(rows[0]!.endsWith(',Plan,Owed,Currency')).toBe(true);
    expect(rows.find((row) => row.startsWith(`${owner},1,0,1,`))!.endsWith(`,${planId},,`)).toBe(true);
    const ofPlans = (await lines('usage', '--by', 'plan', '--top', '100')).map(cellsOf);
    expect(ofPlans[1]).toEqual(['PLAN', 'VERIFICATIONS', 'REFUSED', 'CREDITS']);
    expect(ofPlans).toContainEqual([planId, '1', '0', '0']);
    const ofCustomers = (await lines('usage', '--by', 'customer', '--top', '100')).map(cellsOf);
    expect(ofCustomers[1]).toEqual(['CUSTOMER', 'PLAN', 'VERIFICATIONS', 'REFUSED', 'CREDITS']);
    expect(ofCustomers).toContainEqual([owner, planId, '1', '0', '0']);
    const [, heading] = await lines('usage', '--month');
    expect(cellsOf(heading!)).toEqual(['CUSTOMER', 'PLAN', 'VALID', 'REFUSED', 'VERIFICATIONS', 'CREDITS']);
  });

  test('refusals have the plan of each key', async () => {
    const [planId, owner] = [newName('pro'), newName('owner')];
    await lines('plan', 'set', planId, '--ratelimit', 'requests=10/month');
    await lines('identity', 'create', owner, '--plan', planId);
    const { key, keyId } = await app.createKey({ externalId: owner, enabled: false });
    await app.ok('keys.verifyKey', { key });
    const [heading, row] = (await lines('refusals', '--owner', owner)).map(cellsOf);
    expect(heading!.slice(0, 6)).toEqual(['TIME, UTC', 'REFUSALS', 'OUTCOME', 'KEY', 'CUSTOMER', 'PLAN']);
    expect(row!.slice(1, 6)).toEqual(['1', 'DISABLED', keyId, owner, planId]);
    expect(await json('refusals', '--owner', owner)).toMatchObject([{ keyId, planId }]);
    await lines('identity', 'plan', owner, 'none');
    expect((await lines('refusals', '--owner', owner))[0]).not.toContain('PLAN');
  });

  test.each([
    [['--ratelimit', 'requests=100'], '--ratelimit requests=100 is not a limit. Use, for example, requests=100/1m'],
    [['--ratelimit', 'requests=100/monthly'], 'is not a duration'],
    [['--ratelimit', 'aa=1/1m'], '--ratelimit'],
    [['--role', 'unknown'], 'There is no role "unknown"'],
    [['--meta', '{'], '--meta is not JSON'],
  ])('plan set %j is refused', async (args, message) => {
    await refused(run(['plan', 'set', newName('bad'), ...args]), message);
  });
});

test.each([
  ['requests=100/1m', { name: 'requests', limit: 100, duration: 60_000, autoApply: true }],
  ['a=b=5/year/named', { name: 'a=b', limit: 5, period: 'year', autoApply: false }],
  ['jobs=5/10m/concurrency', { name: 'jobs', limit: 5, duration: 600_000, type: 'concurrency', autoApply: true }],
  [
    'jobs=5/10m/concurrency/named',
    { name: 'jobs', limit: 5, duration: 600_000, type: 'concurrency', autoApply: false },
  ],
])('%s is a limit', (text, expected) => {
  expect(planLimitOf(text)).toEqual(expected);
});
