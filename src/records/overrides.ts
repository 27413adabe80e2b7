// Typed functions for the scripts of lua/namespaces/ and lua/overrides/.

import type { Actor } from '../domain/caller.ts';
import { presentedDuration } from '../domain/limit.ts';
import { type Periodic, storedDuration } from '../domain/quota.ts';
import { type Run, refusal } from '../scripts/calls.ts';
import type { StoreContext } from '../scripts/context.ts';
import type { PageOf } from './pages.ts';
import { fromNamed } from './records.ts';

export interface Namespace {
  /** `rlns_…` */
  id: string;
  name: string;
}

/** An override as a named reply. */
export interface OverrideReply {
  /** Without `rlor_`. */
  id: string;
  identifier: string;
  limit: string;
  duration: string;
  created: string;
  /** The time of the reply. */
  at: string;
  /** Missing for a permanent one. */
  ends?: string;
  /** The values of the permanent override that is in force again from the end on. */
  formerLimit?: string;
  formerDuration?: string;
}

/** After this many calls a page has fewer overrides than were asked for. */
const listStepsMax = 5;

export type Override = ReturnType<typeof readOverride>;

export function readOverride(override: OverrideReply) {
  const { id, identifier, limit, duration, created, at, ends, formerLimit, formerDuration } = override;
  const presented = (stored: string) => presentedDuration(Number(stored), Number(at));
  return {
    overrideId: `rlor_${id}`,
    identifier,
    limit: Number(limit),
    ...presented(duration),
    createdAt: Number(created),
    until: ends === undefined ? undefined : Number(ends),
    former: formerLimit === undefined ? undefined : { limit: Number(formerLimit), ...presented(formerDuration!) },
  };
}

interface OverridePage {
  namespace: string;
  after?: string | undefined;
  count: number;
}

async function list(run: Run, workspaceId: string, page: OverridePage): Promise<PageOf<Override> | undefined> {
  const { namespace, count } = page;
  const items: Override[] = [];
  let after = page.after?.slice('rlor_'.length) ?? '';
  // Repeated for ended overrides that were not removed yet.
  for (let step = 0; step < listStepsMax; step++) {
    const given = { namespace, identifier: '', after, count: step === 0 ? count : 100 };
    const reply = await run('overrides/list', workspaceId, given);
    if (!reply) return undefined;
    const [found, more, last] = reply;
    items.push(...found.map((each) => readOverride(fromNamed<OverrideReply>(each))));
    if (items.length > count) return { items: items.slice(0, count), next: items[count - 1]!.overrideId };
    if (more === 0) return { items, next: undefined };
    if (items.length === count) return { items, next: `rlor_${last}` };
    after = last;
  }
  return { items, next: `rlor_${after}` };
}

export function openOverrides({ run }: StoreContext) {
  return {
    /** A namespace by name or id. */
    async findNamespace(workspaceId: string, nameOrId: string): Promise<Namespace | undefined> {
      const reply = await run('namespaces/read', workspaceId, { nameOrId });
      if (!reply) return undefined;
      const { id, name } = fromNamed<Namespace>(reply);
      return { id: `rlns_${id}`, name };
    },

    /** Creates or changes an override, and creates its namespace if there is none. */
    async set(
      workspaceId: string,
      override: {
        namespace: string;
        identifier: string;
        limit: number;
        untilMs?: number | undefined;
        /** The id in an export, without `rlor_`. An existing override is then not changed. */
        keptId?: string;
        createdMs?: number | undefined;
        former?: ({ limit: number } & Periodic) | undefined;
      } & Periodic,
      actor: Actor,
    ) {
      const { namespace, identifier, limit, untilMs = '', keptId = '', createdMs = '', former } = override;
      const literals = [...identifier].filter((character) => character !== '*').length;
      const [outcome, detail = ''] = await run('overrides/set', workspaceId, {
        namespace,
        identifier,
        limit,
        duration: storedDuration(override),
        endsMs: untilMs,
        formerLimit: former?.limit ?? '',
        formerDuration: former ? storedDuration(former) : '',
        literals,
        keptId,
        createdMs,
        actor,
      });
      return outcome === 'set' ? { overrideId: `rlor_${detail}` } : refusal(outcome, detail);
    },

    /** The override for exactly this identifier. */
    async find(workspaceId: string, namespace: string, identifier: string): Promise<Override | undefined> {
      const reply = await run('overrides/list', workspaceId, { namespace, identifier, after: '', count: 1 });
      const override = reply?.[0][0];
      return override ? readOverride(fromNamed<OverrideReply>(override)) : undefined;
    },

    /**
     * A page in order of creation, after the override with the id `after`; undefined when there is no such namespace.
     */
    list: (workspaceId: string, page: OverridePage) => list(run, workspaceId, page),

    /** False when there is no override for exactly this identifier. */
    delete: async (workspaceId: string, namespace: string, identifier: string, actor: Actor): Promise<boolean> =>
      (await run('overrides/delete', workspaceId, { namespace, identifier, actor })) === 1,
  };
}
