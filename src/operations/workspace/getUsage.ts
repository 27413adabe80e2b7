import Type from 'typebox';
import { hourMs } from '../../domain/time.ts';
import { type ManageContext, manages } from '../../operation.ts';
import { invalid } from '../rules.ts';
import { DescribedFields, Fields, Int, out } from '../schemas.ts';

export const readsUsage = { api: ['read_analytics'], ratelimit: ['read_analytics'] } as const;

/** The VALID verifications of a month, this one by default, and the limit checks that passed, up to now. */
export async function usedIn(month: { year: number; month: number } | undefined, context: ManageContext) {
  const { store, caller } = context;
  const nowMs = await store.currentMs();
  const now = new Date(nowMs);
  const [year, index] = month ? [month.year, month.month - 1] : [now.getUTCFullYear(), now.getUTCMonth()];
  const [start, next] = [Date.UTC(year, index), Date.UTC(year, index + 1)];
  if (start > nowMs) throw invalid('body.period', 'is in the future');
  if (month && start < nowMs - store.usageRetentionMs)
    throw invalid('body.period', 'begins before the usage that is kept');
  const period = { fromHour: start / hourMs, toHour: next / hourMs };
  const by = { key: false, externalId: false, tag: false };
  const api = { verifications: 0, ratelimits: 0 };
  const query = { ...period, apiIds: true as const, by, bucketOf: () => 0 };
  await store.analytics.verifications(caller.workspaceId, query, ({ outcome, count }) => {
    if (outcome === 'VALID') api.verifications += count;
  });
  await store.analytics.ratelimits(caller.workspaceId, { ...period, namespaceIds: true }, ({ passed }) => {
    api.ratelimits += passed;
  });
  return { period: { start, end: Math.min(next, nowMs) }, api };
}

const nothing = {
  compute: { cpuSeconds: 0, memoryGiBHours: 0, storageGiBHours: 0, egressGiB: 0 },
  gateway: { activeKeys: 0 },
};
const Zeros = <Counts extends object>(counts: Counts) =>
  Type.Unsafe<Counts>(
    out.object('Unused.', Object.fromEntries(Object.keys(counts).map((name) => [name, out.int('Always 0.')]))),
  );
const None = Type.Array(Type.Object({}), { description: 'Always empty.' });

export const getUsage = manages({
  name: 'workspace.getUsage',
  summary: 'Count the VALID verifications of the APIs that exist, and the limit checks that passed, in a month (UTC).',
  description: "Other members are those of Unkey's response.",
  input: Fields({
    period: Type.Optional(
      DescribedFields(
        'A month that is not in the future, and does not begin before the usage that is kept. Defaults to this one.',
        { year: Int([1970, 2100], 'Year.'), month: Int([1, 12], 'Month of the year.') },
      ),
    ),
  }),
  output: Type.Object({
    period: out.object('The period that was counted; the current month ends now.', {
      start: out.int('Start in Unix milliseconds.'),
      end: out.int('End in Unix milliseconds, exclusive.'),
    }),
    totals: out.object('Totals of the workspace.', {
      api: out.object('Counts.', {
        verifications: out.int('VALID verifications.'),
        ratelimits: out.int('Limit checks that passed.'),
      }),
      compute: Zeros(nothing.compute),
      gateway: Zeros(nothing.gateway),
    }),
    breakdowns: out.object('Unused.', { byEnvironment: None, byApp: None }),
  }),
  needs: readsUsage,
  readsMuch: true,

  async handle(input, context) {
    const { period, api } = await usedIn(input.period, context);
    return { period, totals: { api, ...nothing }, breakdowns: { byEnvironment: [], byApp: [] } };
  },
});
