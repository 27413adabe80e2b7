// The typed faces of lua/namespaces/ and lua/overrides/.

import type { Actor } from '../domain/caller.ts';
import type { StoreContext } from './context.ts';
import type { PageOf } from './pages.ts';

export interface Namespace {
  /** `rlns_…` */
  id: string;
  name: string;
}

export interface Override {
  overrideId: string;
  identifier: string;
  limit: number;
  duration: number;
  createdAt: number;
}

type Row = [id: string, identifier: string, limit: string, duration: string, created: string];

/**
 * What the wildcards of a namespace may have in all, as each of a hundred checks in a script may be held against every one:
 * `*`; wildcards with text between two `*`, for which all of an identifier is searched; and bytes.
 */
export const wildcardsMax = { stars: 256, searching: 16, bytes: 16_384 };

/**
 * How many wildcards all namespaces of a workspace may have, as a call may name a hundred namespaces and a script takes apart
 * the wildcards of all of them: 4 µs each.
 */
export const workspaceWildcardsMax = 2000;

const readOverride = ([id, identifier, limit, duration, created]: Row): Override => ({
  overrideId: `rlor_${id}`,
  identifier,
  limit: Number(limit),
  duration: Number(duration),
  createdAt: Number(created),
});

export function openOverrides({ scripts, now, actorText }: StoreContext) {
  return {
    /** A namespace by name or id. */
    async findNamespace(workspaceId: string, nameOrId: string): Promise<Namespace | undefined> {
      const reply = (await scripts.run('namespaces/read', workspaceId, [nameOrId])) as [string, string] | null;
      return reply ? { id: `rlns_${reply[0]}`, name: reply[1] } : undefined;
    },

    /** Creates or changes; makes the namespace if need be. Answers the override's id. */
    async set(
      workspaceId: string,
      override: { namespace: string; identifier: string; limit: number; durationMs: number },
      actor: Actor,
    ): Promise<{ overrideId: string } | { refused: 'namespace_not_found' | 'too_many' | 'too_many_in_workspace' }> {
      const { namespace, identifier, limit, durationMs } = override;
      const literals = [...identifier].filter((character) => character !== '*').length;
      const { stars, searching, bytes } = wildcardsMax;
      const args = [
        namespace,
        identifier,
        limit,
        durationMs,
        literals,
        stars,
        searching,
        bytes,
        workspaceWildcardsMax,
        actorText(actor),
        now(),
      ];
      const [outcome, id] = (await scripts.run('overrides/set', workspaceId, args)) as [string, string];
      return outcome === 'set'
        ? { overrideId: `rlor_${id}` }
        : { refused: outcome as 'namespace_not_found' | 'too_many' | 'too_many_in_workspace' };
    },

    /** The one for exactly this identifier. */
    async find(workspaceId: string, namespace: string, identifier: string): Promise<Override | undefined> {
      const reply = (await scripts.run('overrides/list', workspaceId, [namespace, identifier, '', 1])) as
        | [Row[], 0 | 1]
        | null;
      const row = reply?.[0][0];
      return row && readOverride(row);
    },

    /** A page in order of creation; undefined when there is no such namespace. `after` is an override id. */
    async list(
      workspaceId: string,
      page: { namespace: string; after?: string | undefined; count: number },
    ): Promise<PageOf<Override> | undefined> {
      const args = [page.namespace, '', page.after?.slice('rlor_'.length) ?? '', page.count];
      const reply = (await scripts.run('overrides/list', workspaceId, args)) as [Row[], 0 | 1] | null;
      if (!reply) return undefined;
      const items = reply[0].map(readOverride);
      return { items, next: reply[1] === 1 ? items.at(-1)?.overrideId : undefined };
    },

    /** False when there is none for exactly this identifier. */
    delete: async (workspaceId: string, namespace: string, identifier: string, actor: Actor): Promise<boolean> =>
      (await scripts.run('overrides/delete', workspaceId, [namespace, identifier, actorText(actor), now()])) === 1,
  };
}
