// The typed faces of lua/rootKeys/.

import type { Actor, Caller } from '../domain/caller.ts';
import { Grants, grantsText } from '../domain/grants.ts';
import type { StoreContext } from './store.ts';

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

/** Who manages from the command line, outside of any root key. */
export const cliActor: Actor = { rootKeyId: 'cli', operation: 'cli', requestId: '' };

export function openRootKeys({ scripts, now, actorText }: StoreContext) {
  return {
    /** What a presented root key may do. */
    async authenticate(
      workspaceId: string,
      digest: Buffer,
    ): Promise<Caller | { refused: 'unauthorized' | 'root_key_disabled' | 'root_key_expired' }> {
      const [outcome, grants, rootKeyId] = (await scripts.run('rootKeys/authenticate', workspaceId, [
        digest,
        now(),
      ])) as ['ok' | 'unauthorized' | 'root_key_disabled' | 'root_key_expired', string, string];
      if (outcome !== 'ok') return { refused: outcome };
      return { workspaceId, rootKeyId, grants: new Grants(grants) };
    },

    /** Answers its id. */
    create(workspaceId: string, { digest, permissions, ...rest }: NewRootKey, actor: Actor): Promise<string> {
      const text = JSON.stringify({ ...rest, grants: grantsText(permissions) });
      return scripts.run('rootKeys/create', workspaceId, [digest, text, actorText(actor), now()]) as Promise<string>;
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
      callerGrants: Grants,
      actor: Actor,
    ) {
      const text = JSON.stringify({ ...changes, rootKeyId, grants: permissions && grantsText(permissions) });
      return (await scripts.run('rootKeys/update', workspaceId, [text, callerGrants.text, actorText(actor), now()])) as
        | 'updated'
        | 'root_key_not_found'
        | 'not_covered'
        | 'last_root_key';
    },

    async delete(workspaceId: string, rootKeyId: string, callerGrants: Grants, actor: Actor) {
      return (await scripts.run('rootKeys/delete', workspaceId, [
        rootKeyId,
        callerGrants.text,
        actorText(actor),
        now(),
      ])) as 'deleted' | 'root_key_not_found' | 'not_covered' | 'last_root_key';
    },
  };
}
