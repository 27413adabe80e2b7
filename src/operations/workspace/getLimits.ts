import Type from 'typebox';
import { dayMs } from '../../domain/time.ts';
import { manages } from '../../operation.ts';
import { Fields, may, Nullable, out } from '../schemas.ts';
import { readsUsage, usedIn } from './getUsage.ts';

const Limit = (description: string) =>
  out.object(description, {
    limit: Nullable(out.int('The limit. null: none.')),
    current: may.int('The current value.'),
  });

export const getLimits = manages({
  name: 'workspace.getLimits',
  summary: "Get the limits of the workspace that Unkey's SDKs name.",
  description: 'The body may be absent.',
  input: Fields({}),
  mayLackBody: true,
  output: Type.Object({
    apiBillableOperationsCountMaxPerMonth: Limit('The counts of `workspace.getUsage` of this month. No limit.'),
    apiRequestsCountMaxPerMinute: Limit('Requests. No limit.'),
    logsRetentionDaysMax: Limit('Days for which usage is kept.'),
    logsAuditRetentionDaysMax: Limit('Days for which audit events are kept. No limit: they are limited by number.'),
    logdrainsMax: Limit('Log drains, which Tollgate does not have.'),
  }),
  needs: { ...readsUsage, workspace: ['read_settings'] },
  readsMuch: true,

  async handle(_input, context) {
    const { api } = await usedIn(undefined, context);
    return {
      apiBillableOperationsCountMaxPerMonth: { limit: null, current: api.verifications + api.ratelimits },
      apiRequestsCountMaxPerMinute: { limit: null },
      logsRetentionDaysMax: { limit: Math.floor(context.store.usageRetentionMs / dayMs) },
      logsAuditRetentionDaysMax: { limit: null },
      logdrainsMax: { limit: 0, current: 0 },
    };
  },
});
