// Typed functions for the scripts of lua/namespaces/ and lua/overrides/.

import type { Actor } from '../domain/caller.ts';
import { type Reply, refusal } from '../scripts/calls.ts';
import type { StoreContext } from '../scripts/context.ts';
import type { PageOf } from './pages.ts';
import { fromNamed } from './records.ts';

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

/** An override as a named reply. */
interface OverrideReply {
  /** Without `rlor_`. */
  id: string;
  identifier: string;
  limit: string;
  duration: string;
  created: string;
}

/**
 * Limits of the wildcards of a namespace, all together, because a script may compare each of a hundred checks with
 * every one: how many `*` they have; how many have text between two `*`, which needs a search through the whole
 * identifier; their bytes.
 */
export const wildcardsMax = { stars: 256, searching: 16, bytes: 16_384 };

/**
 * Limit of the wildcards of all namespaces of a workspace, because a call may name a hundred namespaces and the script
 * parses the wildcards of all of them: 4 µs each.
 */
export const workspaceWildcardsMax = 2000;

function readOverride(reply: Reply): Override {
  const { id, identifier, limit, duration, created } = fromNamed<OverrideReply>(reply);
  return {
    overrideId: `rlor_${id}`,
    identifier,
    limit: Number(limit),
    duration: Number(duration),
    createdAt: Number(created),
  };
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
        durationMs: number;
        /** Of an export, without `rlor_`. An existing override is then not changed. */
        keptId?: string;
        createdMs?: number | undefined;
      },
      actor: Actor,
    ) {
      const { namespace, identifier, limit, durationMs, keptId = '', createdMs = '' } = override;
      const literals = [...identifier].filter((character) => character !== '*').length;
      const [outcome, detail = ''] = await run('overrides/set', workspaceId, {
        namespace,
        identifier,
        limit,
        duration: durationMs,
        literals,
        starsMax: wildcardsMax.stars,
        searchingMax: wildcardsMax.searching,
        bytesMax: wildcardsMax.bytes,
        workspaceMax: workspaceWildcardsMax,
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
      return override ? readOverride(override) : undefined;
    },

    /**
     * A page in order of creation, after the override with the id `after`; undefined when there is no such namespace.
     */
    async list(
      workspaceId: string,
      page: { namespace: string; after?: string | undefined; count: number },
    ): Promise<PageOf<Override> | undefined> {
      const { namespace, count } = page;
      const after = page.after?.slice('rlor_'.length) ?? '';
      const reply = await run('overrides/list', workspaceId, { namespace, identifier: '', after, count });
      if (!reply) return undefined;
      const items = reply[0].map(readOverride);
      return { items, next: reply[1] === 1 ? items.at(-1)?.overrideId : undefined };
    },

    /** False when there is no override for exactly this identifier. */
    delete: async (workspaceId: string, namespace: string, identifier: string, actor: Actor): Promise<boolean> =>
      (await run('overrides/delete', workspaceId, { namespace, identifier, actor })) === 1,
  };
}
