// Typed functions for the scripts of lua/plans/.

import type { Actor } from '../domain/caller.ts';
import { JsonText } from '../domain/json.ts';
import type { ExportedLimit, NewLimit, UsedSlices } from '../domain/limit.ts';
import { type Periodic, quotaOf } from '../domain/quota.ts';
import { type Reply, refusal } from '../scripts/calls.ts';
import type { StoreContext } from '../scripts/context.ts';
import { readsOf } from './pages.ts';
import { fromNamed, readLimit } from './records.ts';

interface NewPlan {
  planId: string;
  ratelimits: readonly (NewLimit & ExportedLimit)[];
  /** Slugs. */
  permissions: readonly string[];
  /** Names. */
  roles: readonly string[];
  /** JSON text. */
  meta?: string | undefined;
  /** Unix milliseconds, of an export; undefined is now, and not changed. */
  created?: number | undefined;
  updated?: number | undefined;
}

/** Absent fields are unchanged; an empty `meta` removes it. */
type PlanChanges = Partial<Omit<NewPlan, 'created' | 'updated'>> & { planId: string };

/** How long a deletion moves keys and identities to another plan. */
const deletionMs = 5000;

/** As lua/include/plans.lua returns it. */
interface PlanReply {
  id: string;
  planId: string;
  /** Each a named reply. */
  limits: Reply[];
  slugs: string[];
  roleNames: string[];
  meta?: string;
  created: string;
  updated?: string;
  keyCount: number;
  identityCount: number;
}

export type Plan = ReturnType<typeof planOf>;

/** The units of a limit that an owner has of its plan, as an export has them. */
export interface PlanWindow extends Periodic {
  name: string;
  used: UsedSlices;
}

function planOf(reply: Reply) {
  const { id, planId, limits, slugs, roleNames, meta, created, updated, ...counts } = fromNamed<PlanReply>(reply);
  return {
    /** Tollgate's own, by which lists continue. Callers know the planId. */
    id,
    planId,
    ratelimits: limits.map(readLimit),
    permissions: slugs,
    roles: roleNames,
    ...(meta !== undefined && { meta: new JsonText(meta) }),
    createdAt: Number(created),
    ...(updated !== undefined && { updatedAt: Number(updated) }),
    ...counts,
  };
}

/** Reads planned_units of lua/include/exported.lua. */
export const readPlanWindows = (replies: unknown): PlanWindow[] =>
  (replies as [duration: string, name: string, ends: string[], units: string[]][]).map(
    ([duration, name, ends, units]) => ({
      name,
      ...(quotaOf(Number(duration)) ?? { duration: Number(duration) }),
      used: ends.map((end, at): [number, number] => [Number(end), Number(units[at])]),
    }),
  );

export function openPlans({ run }: StoreContext) {
  return {
    /** Undefined when it was created. */
    async create(workspaceId: string, plan: NewPlan & { mayCreatePermissions: boolean }, actor: Actor) {
      const [outcome, name] = await run('plans/create', workspaceId, { request: JSON.stringify(plan), actor });
      return outcome === 'created' ? undefined : refusal(outcome, name);
    },

    ...readsOf(run, 'plan', planOf),

    /** Undefined when it was changed. */
    async update(workspaceId: string, changes: PlanChanges & { mayCreatePermissions: boolean }, actor: Actor) {
      const [outcome, name] = await run('plans/update', workspaceId, { request: JSON.stringify(changes), actor });
      return outcome === 'updated' ? undefined : refusal(outcome, name);
    },

    /**
     * Its keys and identities get `replaceWith` first; without it, a plan that is used is refused, with their numbers.
     * If that takes long, it returns with the number of those that are left. It may be repeated, also after a failure.
     */
    async delete(workspaceId: string, planId: string, replaceWith: string | undefined, actor: Actor) {
      for (const until = performance.now() + deletionMs; ; ) {
        const given = { planId, replaceWith: replaceWith ?? '', actor };
        const [outcome, name = '', identities] = await run('plans/delete', workspaceId, given);
        if (outcome === 'deleted') return undefined;
        if (outcome === 'in_use') return { refused: outcome, keys: Number(name), identities: Number(identities) };
        if (outcome === 'plan_not_found') return { refused: outcome, name };
        if (performance.now() >= until) return { refused: outcome, left: Number(name) };
      }
    },
  };
}
