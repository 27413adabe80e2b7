// Typed functions for the scripts of lua/identities/.

import type { Actor } from '../domain/caller.ts';
import type { ExportedLimit, LimitChange, NewLimit, UsedSlices } from '../domain/limit.ts';
import { refusal } from '../scripts/calls.ts';
import type { StoreContext } from '../scripts/context.ts';
import { deletion } from './deletion.ts';
import { type Balance, type EndRefusal, type KeyChanges, type LimitRefusal, pageMetaMax } from './keys.ts';
import type { PageOf } from './pages.ts';
import { type PlanWindow, readPlanWindows } from './plans.ts';
import {
  type Identity,
  type ListedIdentity,
  type Refill,
  readIdentity,
  readListedIdentity,
  readUsedUnits,
  refillDueOf,
} from './records.ts';

/** A search reads this many identities per step, and this many steps; then the page ends with a cursor. */
const stepMax = 1000;
const stepsMax = 20;

export interface NewIdentity {
  externalId: string;
  /** JSON text. */
  meta?: string | undefined;
  ratelimits: readonly (NewLimit & ExportedLimit)[];
  planId?: string | undefined;
  /** `remaining` is negative for the debt of an export; `refillDue` is of an export, Unix milliseconds. */
  credits?: { remaining: number; refill?: Refill | undefined; refillDue?: number | undefined } | undefined;
  /** The id in an export, without `id_`. */
  keptId?: string | undefined;
}

/** Why an owner cannot have a plan: there is none, or it has too many limits of its own. */
type PlanRefusal = 'plan_not_found' | 'too_many_limits';

interface CreditChange {
  identity: string;
  operation: 'set' | 'increment' | 'decrement';
  value: number | undefined;
}

interface ListPage {
  after?: string | undefined;
  count: number;
  search?: string | undefined;
  creditsBelow?: number | undefined;
  deleted?: boolean | undefined;
  planId?: string | undefined;
}

/** With the units of long windows, by the place of their limit. */
export interface ExportedIdentity extends Identity {
  refillDue?: number;
  used: ReadonlyMap<number, UsedSlices>;
  planUsed: readonly PlanWindow[];
}

export function openIdentities(context: StoreContext) {
  const { run, usageRetentionMs } = context;
  const readOptional = (reply: unknown): ListedIdentity | undefined => (reply ? readListedIdentity(reply) : undefined);

  return {
    /**
     * Returns for each identity its id, or null when its externalId or kept id exists. The externalIds must be
     * distinct. Creates none if a limit of one cannot be temporary; then `at` is its index.
     */
    create: (workspaceId: string, identities: readonly NewIdentity[], actor: Actor) =>
      createIdentities(run, workspaceId, identities, actor),

    /** An identity by its id or externalId. */
    find: async (workspaceId: string, identity: string): Promise<ListedIdentity | undefined> =>
      readOptional(await run('identities/read', workspaceId, { identity })),

    /**
     * A page in order of creation, of deleted identities those that can be restored; only identities whose id or
     * externalId contains `search`, with fewer credits.
     */
    list: (workspaceId: string, page: ListPage) => listIdentities(run, workspaceId, page),

    /** A page in order of creation with everything that an import needs. It ends early where identities are large. */
    export: (workspaceId: string, page: { after?: string | undefined; count: number }) =>
      exportIdentities(run, workspaceId, page),

    /** Absent fields are unchanged; `meta` is JSON text, '' removes it. Undefined when there is no such identity. */
    async update(
      workspaceId: string,
      changes: {
        identity: string;
        meta?: string | undefined;
        ratelimits?: readonly NewLimit[] | undefined;
        ratelimit?: LimitChange | undefined;
        /** Null removes the balance. */
        credits?: KeyChanges['credits'];
        /** Null removes it. */
        planId?: string | null | undefined;
      },
      actor: Actor,
    ): Promise<
      | { identity: ListedIdentity; refused?: undefined }
      | { refused: LimitRefusal | 'refill_unlimited' | 'plan_not_found'; at: string }
      | undefined
    > {
      const reply = await run('identities/update', workspaceId, { request: JSON.stringify(changes), actor });
      if (typeof reply === 'string') return refusalAt<LimitRefusal | 'refill_unlimited' | 'plan_not_found'>(reply);
      return reply ? { identity: readListedIdentity(reply) } : undefined;
    },

    updateCredits: (workspaceId: string, change: CreditChange, actor: Actor) =>
      changeCredits(run, workspaceId, change, actor),

    /** False when there is no such identity. */
    async delete(
      workspaceId: string,
      identity: string,
      actor: Actor,
      { permanent }: { permanent?: boolean } = {},
    ): Promise<boolean> {
      const given = { identity, ...deletion(context, permanent), usageRetentionMs, actor };
      return (await run('identities/delete', workspaceId, given)) === 1;
    },

    /** A refusal has the externalId and the id of the other identity that has it now. */
    async restore(workspaceId: string, identityId: string, actor: Actor) {
      for (let continues = 0; ; continues = 1) {
        const given = { identityId, continues, usageRetentionMs, actor };
        const [outcome, name, otherId] = await run('identities/restore', workspaceId, given);
        if (outcome === 'restored') return undefined;
        if (outcome !== 'more') return { ...refusal(outcome, name), otherId };
      }
    },
  };
}

async function exportIdentities(
  run: StoreContext['run'],
  workspaceId: string,
  page: { after?: string | undefined; count: number },
): Promise<PageOf<ExportedIdentity>> {
  const given = { after: page.after?.slice('id_'.length) ?? '', count: page.count };
  const [replies, more] = await run('identities/export', workspaceId, given);
  const items = replies.map(([reply, used, planUsed]) => {
    const refillDue = refillDueOf(reply);
    return {
      ...readIdentity(reply),
      ...(refillDue !== undefined && { refillDue }),
      used: readUsedUnits(used),
      planUsed: readPlanWindows(planUsed),
    };
  });
  return { items, next: more === 1 ? items.at(-1)?.id : undefined };
}

async function listIdentities(
  run: StoreContext['run'],
  workspaceId: string,
  page: ListPage,
): Promise<PageOf<ListedIdentity>> {
  const [search, below, deleted] = [page.search?.toLowerCase() ?? '', page.creditsBelow ?? '', page.deleted ? 1 : 0];
  const { planId = '' } = page;
  const found: ListedIdentity[] = [];
  let metaLength = 0;
  let after = page.after?.slice('id_'.length) ?? '';
  for (let step = 0; step < stepsMax; step++) {
    const wanted = page.count - found.length;
    const count = search === '' && below === '' && (planId === '' || deleted === 0) ? wanted : stepMax;
    const given = { after, count, search, below, deleted, planId, wanted };
    const [replies, last, more] = await run('identities/list', workspaceId, given);
    const identities = replies.map(readListedIdentity);
    found.push(...identities);
    if (more === 0) return { items: found, next: undefined };
    after = last;
    metaLength += identities.reduce((sum, { meta }) => sum + meta.text.length, 0);
    if (found.length === page.count || metaLength > pageMetaMax) break;
  }
  return { items: found, next: `id_${after}` };
}

async function createIdentities(
  run: StoreContext['run'],
  workspaceId: string,
  identities: readonly NewIdentity[],
  actor: Actor,
): Promise<(string | null)[] | { refused: EndRefusal | PlanRefusal; at: string }> {
  const reply = await run('identities/create', workspaceId, { request: JSON.stringify(identities), actor });
  return typeof reply === 'string' ? refusalAt<EndRefusal | PlanRefusal>(reply) : reply;
}

/** `at` is the index of a limit, '' for none; or a planId. */
function refusalAt<Refused extends string>(reply: string): { refused: Refused; at: string } {
  const [refused, at = ''] = reply.split(' ');
  return { refused: refused as Refused, at };
}

/** Changes the balance. With an undefined `value` it is removed. */
async function changeCredits(
  run: StoreContext['run'],
  workspaceId: string,
  { value, ...change }: CreditChange,
  actor: Actor,
): Promise<Balance | { refused: 'identity_not_found' | 'unlimited' | 'too_large' }> {
  const reply = await run('identities/updateCredits', workspaceId, { ...change, value: value ?? '', actor });
  if (reply[0] !== 'updated') return { refused: reply[0] };
  const { credits } = readIdentity(reply[1]);
  return { remaining: undefined, refill: undefined, ...credits };
}
