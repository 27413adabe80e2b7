import { expect, test } from 'vitest';
import { dayMs, harness } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';

const app = harness();
const { call, ok, createKey } = app;

test('workspace.getLimits: the limits that there are, and what was used in this month', async () => {
  const { key } = await createKey();
  for (let times = 0; times < 3; times++) await ok('keys.verifyKey', { key });
  for (let times = 0; times < 3; times++)
    await ok('ratelimits.limit', { namespace: 'mail', identifier: 'ada', limit: 2, duration: 1000 });
  const { totals } = await ok('workspace.getUsage', {});
  expect(totals.api).toEqual({ verifications: 3, ratelimits: 2 });
  const limits = {
    apiBillableOperationsCountMaxPerMonth: { limit: null, current: 5 },
    apiRequestsCountMaxPerMinute: { limit: null },
    logsRetentionDaysMax: { limit: Math.floor(app.store.usageRetentionMs / dayMs) },
    logsAuditRetentionDaysMax: { limit: null },
    logdrainsMax: { limit: 0, current: 0 },
  };
  expect(await ok('workspace.getLimits', {})).toEqual(limits);
  // Unkey's SDKs send no body, and no media type.
  for (const contentType of ['', 'application/json'])
    expect(await app.send('/v2/workspace.getLimits', { body: '', contentType })).toMatchObject({
      status: 200,
      json: { data: limits },
    });
  const { status } = await app.send('/v2/workspace.getLimits', { body: '{}', contentType: 'text/plain' });
  expect(status).toBe(415);
  expect((await app.send('/v2/workspace.getUsage', { body: '', contentType: '' })).status).toBe(415);
  const unknown = await call('workspace.getLimits', { month: 1 } as never);
  expect(unknown).toMatchObject(invalidAt('body.month'));
});
