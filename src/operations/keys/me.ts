// What the holder of a key sees of it (`GET /v2/me`, src/http/me.ts). It is no operation of a root key. The figures are
// those of keys.explainKey and analytics.getVerifications: the same functions of the store.

import Type, { type Static } from 'typebox';
import { packAddress } from '../../domain/ipRange.ts';
import { JsonText, memberTextsOf } from '../../domain/json.ts';
import { dayMs, hourMs } from '../../domain/time.ts';
import type { outcomeErrors } from '../../domain/verification.ts';
import type { Explanation } from '../../records/explain.ts';
import type { Store } from '../../store.ts';
import { bucketOf } from '../analytics/buckets.ts';
import { Debt, MetaText, may, out, Remaining, Reset, ratelimitFields, refillFields, Units } from '../schemas.ts';
import { KeyRecord } from './keyFields.ts';

const creditFields = {
  remaining: out.int('Balance of credits.'),
  debt: Type.Optional(Debt),
  refill: may.object('Automatic refill.', {
    ...refillFields,
    next: out.int('Time of the next refill in Unix milliseconds.'),
  }),
};
const usageFields = {
  time: out.int('Start of the day or month in Unix milliseconds, by UTC.'),
  count: out.int('Number of verifications.'),
  refused: out.int('Number of these that were refused.'),
  spentCredits: out.int('Credits that they spent.'),
};
const shared = Type.Optional(out.flag('True if other keys are charged to it, too.'));
const { keyId, start, enabled, name, expires, permissions, roles } = KeyRecord.properties;
const { autoApply: _autoApply, former: _former, ...limitFields } = ratelimitFields;

export const Holder = Type.Object({
  keyId,
  start,
  enabled,
  time: out.int('Time of the figures in Unix milliseconds.'),
  name,
  expires,
  plan: may.object('Plan of the key, or else of its identity.', {
    planId: out.text('Name of the plan.'),
    meta: Type.Optional(MetaText),
  }),
  meta: Type.Optional(MetaText),
  permissions,
  roles,
  ratelimits: Type.Array(
    Type.Object({
      ...limitFields,
      used: out.int('Units that count now, or slots that are taken.'),
      remaining: Remaining,
      reset: Reset,
      shared,
    }),
    { description: 'All limits that verifications of the key can check.' },
  ),
  credits: may.object('Credits of the key. Absent: it has none of its own.', { ...creditFields, shared }),
  identity: may.object('Absent if its identity has no credits.', {
    credits: out.object('Credits that all keys of its identity share.', creditFields),
  }),
  holds: may.object('Open holds of the key. Absent for none.', {
    open: out.int('Number of open holds.'),
    credits: out.int('Credits that they hold.'),
    ratelimits: Units('Name of the limit.', 'Units that they hold.', 'Limits of which they hold units.'),
  }),
  usage: out.object('Verifications of the key.', {
    days: out.objects('The last 30 days, today last.', usageFields),
    month: out.object('The present month.', usageFields),
  }),
});
type Holder = Static<typeof Holder>;

type Refused = { refused: keyof typeof outcomeErrors };

/**
 * What a key of a workspace is to its holder, or why it is refused. `metaNames` are the members of metadata that it
 * sees, and `ip` is the address of the holder.
 */
export async function readHolder(
  store: Store,
  of: { workspaceId: string; digest: string; ip: string | undefined },
  metaNames: readonly string[],
): Promise<Holder | Refused> {
  const ip = of.ip ? packAddress(of.ip) : undefined;
  const found = await store.explain(of.workspaceId, { digest: of.digest }, { cost: 0, ip }, 'holder');
  if (found.status !== 'found') return { refused: 'NOT_FOUND' };
  const outcome = 'outcome' in found.decision ? found.decision.outcome : 'VALID';
  // Limits and credits that are used up are what the holder wants to see.
  if (outcome === 'DISABLED' || outcome === 'EXPIRED' || outcome === 'FORBIDDEN') return { refused: outcome };
  const [displayed, holds] = [await found.displayed(), await found.holds()];
  return holderOf({ ...found, displayed, holds }, await usageOf(store, of.workspaceId, found), metaNames);
}

type Awaiting = 'displayed' | 'holds';
type Read = Omit<Explanation, Awaiting> & { [Name in Awaiting]: Awaited<ReturnType<Explanation[Name]>> };

function holderOf(found: Read, usage: Holder['usage'], metaNames: readonly string[]): Holder {
  const { keyId, enabled, nowMs: time, expires, balance, refill, holds } = found;
  const { start, values, plan, permissions, roles, sharesBalance } = found.displayed;
  const planMeta = plan && chosen(plan.meta, metaNames);
  return {
    keyId,
    start,
    enabled,
    time,
    name: values.name as string | undefined,
    expires,
    plan: plan && { planId: plan.planId, meta: planMeta },
    meta: chosen(values.meta as JsonText | undefined, metaNames),
    permissions: Array.isArray(permissions) && permissions.length === 0 ? undefined : permissions,
    roles: roles.length > 0 ? roles : undefined,
    ratelimits: found.ratelimits.map(limitOf),
    credits:
      balance === undefined ? undefined : { ...creditsOf(balance, refill), ...(sharesBalance && { shared: true }) },
    identity: found.shared && { credits: creditsOf(found.shared.balance, found.shared.refill) },
    holds,
    usage,
  } as Holder;
}

const limitOf = ({ of, planId: _planId, id: _id, cost: _cost, exceeded: _exceeded, ...shown }: Figures) => {
  const { autoApply: _auto, former: _former, ...figures } = shown;
  return { ...figures, ...(of === 'identity' && { shared: true }) };
};
type Figures = Explanation['ratelimits'][number];

const creditsOf = (balance: number, refill: Explanation['refill']) => ({
  remaining: Math.max(0, balance),
  ...(balance < 0 && { debt: -balance }),
  refill,
});

/** These members of metadata; undefined if it has none of them. */
function chosen(meta: JsonText | undefined, names: readonly string[]): JsonText | undefined {
  const texts = memberTextsOf(meta?.text ?? '{}', names);
  const members = names.map((name, index) => texts[index] && `${JSON.stringify(name)}:${texts[index]}`);
  const found = members.filter((member) => member);
  return found.length > 0 ? new JsonText(`{${found.join(',')}}`) : undefined;
}

const daysShown = 30;
const nothing = (time: number) => ({ time, count: 0, refused: 0, spentCredits: 0 });

async function usageOf(store: Store, workspaceId: string, { keyId, apiId, nowMs }: Explanation) {
  const today = nowMs - (nowMs % dayMs);
  const days = Array.from({ length: daysShown }, (_, ago) => nothing(today - (daysShown - 1 - ago) * dayMs));
  const month = nothing(bucketOf(nowMs / hourMs, 'month'));
  const query = {
    apiIds: [apiId],
    keyIds: new Set([keyId]),
    fromHour: Math.min(days[0]!.time, month.time) / hourMs,
    toHour: (today + dayMs) / hourMs,
    by: { key: true, externalId: false, tag: false },
    bucketOf: (hour: number) => bucketOf(hour, 'day'),
  };
  await store.analytics.verifications(workspaceId, query, ({ hour, outcome, count, spentCredits }) => {
    const time = bucketOf(hour, 'day');
    const day = days.find((each) => each.time === time);
    for (const sum of [day, time >= month.time ? month : undefined]) {
      if (!sum) continue;
      sum.count += count;
      sum.refused += outcome === 'VALID' ? 0 : count;
      sum.spentCredits += spentCredits;
    }
  });
  return { days, month };
}
