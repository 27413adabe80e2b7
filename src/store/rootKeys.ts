// The typed faces of lua/rootKeys/.

import type { Actor, Caller, PresentedRootKey } from '../domain/caller.ts';
import { Grants, grantsText } from '../domain/grants.ts';
import type { AcceptedRootKeys } from './accepted.ts';
import type { StoreContext } from './context.ts';

export interface NewRootKey {
  digest: Buffer;
  start: string;
  name?: string | undefined;
  /** In their one spelling, see domain/grants. */
  permissions: readonly string[];
  expires?: number | undefined;
}

export interface RootKeyRecord {
  rootKeyId: string;
  name?: string;
  start: string;
  permissions: string[];
  enabled: boolean;
  expires?: number;
  createdAt: number;
  lastUsedAt?: number;
}

export interface RootKeyChanges {
  name?: string | null | undefined;
  permissions?: readonly string[] | undefined;
  enabled?: boolean | undefined;
  expires?: number | null | undefined;
}

type Row = [
  id: string,
  name: string | null,
  start: string,
  grants: string,
  enabled: '0' | '1',
  expires: string | null,
  created: string,
  used: string | null,
];

function readRootKey([rootKeyId, name, start, grants, enabled, expires, created, used]: Row): RootKeyRecord {
  return {
    rootKeyId,
    ...(name !== null && { name }),
    start,
    permissions: grants.split('\n').filter((grant) => grant !== ''),
    enabled: enabled === '1',
    ...(expires !== null && { expires: Number(expires) }),
    createdAt: Number(created),
    ...(used !== null && { lastUsedAt: Number(used) }),
  };
}

/**
 * Why a change was not made. `lacks` and `outlives` are about what the root key that asked would give: a grant that it does not
 * hold, or a time after `endsAtMs`, its own end. The last three are about itself: it was let in, but not for as long as it waited.
 */
export type RootKeyRefusal =
  | { refused: 'lacks'; grant: string }
  | { refused: 'outlives'; endsAtMs: number }
  | { refused: 'root_key_not_found' | 'not_covered' | 'last_root_key' }
  | { refused: 'unauthorized' | 'root_key_disabled' | 'root_key_expired' };

/** What the scripts return: the word of the outcome, and what it is about. */
type Outcome = [outcome: 'created' | 'updated' | 'deleted' | RootKeyRefusal['refused'], about?: string];

function refusalOf([refused, about]: Outcome): RootKeyRefusal {
  if (refused === 'lacks') return { refused, grant: about! };
  if (refused === 'outlives') return { refused, endsAtMs: Number(about) };
  return { refused } as RootKeyRefusal;
}

/** Who manages from the command line, outside of any root key. */
export const cliActor: Actor = { rootKeyId: 'cli', operation: 'cli', requestId: '' };

export function openRootKeys({ scripts, now, actorText }: StoreContext, accepted: AcceptedRootKeys) {
  return {
    /** Whether Redis accepted a root key recently. It may not do so again. */
    wasAccepted: (rootKey: PresentedRootKey): boolean => accepted.has(rootKey),

    /** What a presented root key may do. */
    async authenticate(
      rootKey: PresentedRootKey,
    ): Promise<Caller | { refused: 'unauthorized' | 'root_key_disabled' | 'root_key_expired' }> {
      const { workspaceId, digest } = rootKey;
      const [outcome, grants, rootKeyId] = (await scripts.run('rootKeys/authenticate', workspaceId, [
        digest,
        now(),
      ])) as ['ok' | 'unauthorized' | 'root_key_disabled' | 'root_key_expired', string, string];
      accepted.note(rootKey, outcome === 'ok');
      if (outcome !== 'ok') return { refused: outcome };
      return { workspaceId, rootKeyId, grants: new Grants(grants) };
    },

    async create(
      workspaceId: string,
      { digest, permissions, ...rest }: NewRootKey,
      actor: Actor,
    ): Promise<{ rootKeyId: string } | RootKeyRefusal> {
      const text = JSON.stringify({ ...rest, grants: grantsText(permissions) });
      const args = [digest, text, actorText(actor), now()];
      const reply = (await scripts.run('rootKeys/create', workspaceId, args)) as Outcome;
      return reply[0] === 'created' ? { rootKeyId: reply[1]! } : refusalOf(reply);
    },

    /** A page in order of creation; `after` is a root key id. */
    async list(workspaceId: string, { after, count }: { after?: string | undefined; count: number }) {
      const [rows, more] = (await scripts.run('rootKeys/list', workspaceId, [
        after?.slice('root_'.length) ?? '',
        count,
      ])) as [Row[], 0 | 1];
      return { rootKeys: rows.map(readRootKey), more: more === 1 };
    },

    async update(
      workspaceId: string,
      rootKeyId: string,
      { permissions, ...changes }: RootKeyChanges,
      actor: Actor,
    ): Promise<{ refused?: undefined } | RootKeyRefusal> {
      const text = JSON.stringify({ ...changes, rootKeyId, grants: permissions && grantsText(permissions) });
      const reply = (await scripts.run('rootKeys/update', workspaceId, [text, actorText(actor), now()])) as Outcome;
      return reply[0] === 'updated' ? {} : refusalOf(reply);
    },

    async delete(
      workspaceId: string,
      rootKeyId: string,
      actor: Actor,
    ): Promise<{ refused?: undefined } | RootKeyRefusal> {
      const args = [rootKeyId, actorText(actor), now()];
      const reply = (await scripts.run('rootKeys/delete', workspaceId, args)) as Outcome;
      return reply[0] === 'deleted' ? {} : refusalOf(reply);
    },
  };
}
