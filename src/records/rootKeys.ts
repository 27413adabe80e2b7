// Typed functions for the scripts of lua/rootKeys/.

import type { AcceptedRootKeys } from '../decide/accepted.ts';
import type { Actor, Caller, PresentedRootKey } from '../domain/caller.ts';
import { usedBy } from '../domain/ending.ts';
import { Grants, grantsText } from '../domain/grants.ts';
import { orStoreError } from '../redis/connection.ts';
import { adminRootKeysKey, rootKeyRecordKey, workspaceKey } from '../redis/names.ts';
import type { Reply } from '../scripts/calls.ts';
import type { StoreContext } from '../scripts/context.ts';
import type { PageOf } from './pages.ts';
import { asText, fromNamed } from './records.ts';

interface NewRootKey {
  digest: Buffer;
  start: string;
  name?: string | undefined;
  /** In the canonical spelling, see src/domain/grants.ts. */
  permissions: readonly string[];
  expires?: number | undefined;
}

export type RootKeyRecord = ReturnType<typeof readRootKey>;

export interface ExportedRootKey extends RootKeyRecord {
  digest: Buffer;
}

interface RootKeyChanges {
  name?: string | null | undefined;
  permissions?: readonly string[] | undefined;
  enabled?: boolean | undefined;
  expires?: number | null | undefined;
}

/** A root key as a named reply. */
interface RootKeyReply {
  id: string;
  name?: string;
  start: string;
  /** One a line. */
  grants: string;
  enabled: '0' | '1';
  expires?: string;
  created: string;
  used?: string;
}

function readRootKey(reply: Reply) {
  const { id, name, start, grants, enabled, expires, created, used } = fromNamed<RootKeyReply>(reply);
  return {
    rootKeyId: id,
    ...(name !== undefined && { name }),
    start,
    permissions: grants.split('\n').filter((grant) => grant !== ''),
    enabled: enabled === '1',
    ...(expires !== undefined && { expires: Number(expires) }),
    createdAt: Number(created),
    ...(used !== undefined && { lastUsedAt: Number(used) }),
  };
}

/** Pages that are read for one page of the root keys that end. */
const endingPages = 10;
const endingPageSize = 100;

/**
 * Why a change was not made. `lacks`: the caller does not have a grant that it would give. `outlives`: the root key
 * would expire after the caller, which expires at `endsAtMs`. The last three are about the caller: they became true
 * after it was authenticated, while the request waited.
 */
export type RootKeyRefusal =
  | { refused: 'lacks'; grant: string }
  | { refused: 'outlives'; endsAtMs: number }
  | { refused: 'root_key_not_found' | 'not_covered' | 'expired' | 'last_root_key' }
  | { refused: 'unauthorized' | 'root_key_disabled' | 'root_key_expired' };

/** Parses the outcome that a script returns, and its detail. */
function refusalOf([refused, detail]: [outcome: string, detail?: string]): RootKeyRefusal {
  if (refused === 'lacks') return { refused, grant: detail! };
  if (refused === 'outlives') return { refused, endsAtMs: Number(detail) };
  return { refused } as RootKeyRefusal;
}

/** The actor of changes from the command line, which need no root key. By itself it creates the first root key only. */
export const cliActor: Actor = { rootKeyId: 'cli', operation: 'rootKeys.createRootKey', requestId: '' };

/** `changed` is awaited before a change of a root key is answered. */
export function openRootKeys(
  context: StoreContext,
  accepted: AcceptedRootKeys,
  changed: (workspaceId: string) => Promise<void>,
) {
  const { redis, run } = context;
  return {
    ...openReads(context),

    /** Whether Redis accepted this root key recently. It may refuse it now. */
    wasAccepted: (rootKey: PresentedRootKey): boolean => accepted.has(rootKey),

    /**
     * An admin root key, for decisions of the command line, which has no root key of its own. A workspace always has
     * one. A read of one member, so no script.
     */
    async anyAdmin(workspaceId: string): Promise<PresentedRootKey> {
      const name = adminRootKeysKey(workspaceKey(workspaceId));
      const digest = (await orStoreError(redis.callBuffer('SRANDMEMBER', name))) as Buffer | null;
      if (!digest) throw new Error(`${workspaceId} has no admin root key.`);
      return { workspaceId, digest, digestText: digest.toString('latin1') };
    },

    /** The caller that a root key authenticates. */
    async authenticate(
      rootKey: PresentedRootKey,
    ): Promise<Caller | { refused: 'unauthorized' | 'root_key_disabled' | 'root_key_expired' }> {
      const { workspaceId, digest } = rootKey;
      const [outcome, grants, rootKeyId, lasts] = await run('rootKeys/authenticate', workspaceId, { digest });
      accepted.note(rootKey, outcome === 'ok');
      if (outcome !== 'ok') return { refused: outcome };
      const lastsMs = lasts === '' ? Number.POSITIVE_INFINITY : Number(lasts);
      return { workspaceId, rootKeyId, grants: new Grants(grants), lastsMs };
    },

    async create(
      workspaceId: string,
      { digest, permissions, ...rest }: NewRootKey,
      actor: Actor,
    ): Promise<{ rootKeyId: string } | RootKeyRefusal> {
      const request = JSON.stringify({ ...rest, grants: grantsText(permissions) });
      const reply = await run('rootKeys/create', workspaceId, { digest, request, actor });
      return reply[0] === 'created' ? { rootKeyId: reply[1]! } : refusalOf(reply);
    },

    ...openExport(run),

    async update(
      workspaceId: string,
      rootKeyId: string,
      { permissions, ...changes }: RootKeyChanges,
      actor: Actor,
    ): Promise<{ refused?: undefined } | RootKeyRefusal> {
      const request = JSON.stringify({ ...changes, rootKeyId, grants: permissions && grantsText(permissions) });
      const reply = await run('rootKeys/update', workspaceId, { request, actor });
      if (reply[0] !== 'updated') return refusalOf(reply);
      await changed(workspaceId);
      return {};
    },

    async reroll(
      workspaceId: string,
      rootKeyId: string,
      given: { digest: Buffer; start: string; expiresIn: number | '' },
      actor: Actor,
    ): Promise<{ rootKeyId: string } | RootKeyRefusal> {
      const reply = await run('rootKeys/reroll', workspaceId, { rootKeyId, ...given, actor });
      if (reply[0] !== 'created') return refusalOf(reply);
      await changed(workspaceId);
      return { rootKeyId: reply[1]! };
    },

    async delete(
      workspaceId: string,
      rootKeyId: string,
      actor: Actor,
    ): Promise<{ refused?: undefined } | RootKeyRefusal> {
      const reply = await run('rootKeys/delete', workspaceId, { rootKeyId, actor });
      if (reply[0] !== 'deleted') return refusalOf(reply);
      await changed(workspaceId);
      return {};
    },
  };
}

function openReads({ redis, run, currentMs }: StoreContext) {
  /** A page in order of creation, after the root key with the id `after`. */
  async function list(workspaceId: string, { after, count }: { after?: string | undefined; count: number }) {
    const given = { after: after?.slice('root_'.length) ?? '', count };
    const [replies, more] = await run('rootKeys/list', workspaceId, given);
    return { rootKeys: replies.map(readRootKey), more: more === 1 };
  }

  return {
    list,

    /**
     * A page of root keys that are in use and end soon, or have just ended. It may be empty although there are more.
     */
    async listEnding(workspaceId: string, { after, count }: { after?: string | undefined; count: number }) {
      const nowMs = await currentMs();
      const found: RootKeyRecord[] = [];
      for (let page = 0; page < endingPages; page++) {
        const { rootKeys, more } = await list(workspaceId, { after, count: endingPageSize });
        for (const rootKey of rootKeys) {
          if (!usedBy(rootKey, nowMs)) continue;
          if (found.push(rootKey) === count) return { rootKeys: found, next: rootKey.rootKeyId, nowMs };
        }
        after = more ? rootKeys.at(-1)!.rootKeyId : undefined;
        if (after === undefined) break;
      }
      return { rootKeys: found, next: after, nowMs };
    },

    /** A root key by its id: the first one after what sorts directly before the id. */
    async findById(workspaceId: string, rootKeyId: string): Promise<RootKeyRecord | undefined> {
      const before = rootKeyId.slice(0, -1) + String.fromCharCode(rootKeyId.charCodeAt(rootKeyId.length - 1) - 1);
      const { rootKeys } = await list(workspaceId, { after: before, count: 1 });
      return rootKeys[0]?.rootKeyId === rootKeyId ? rootKeys[0] : undefined;
    },

    /** Without recording a use, which `authenticate` does. One command, so it needs no script. */
    async find({ workspaceId, digest }: PresentedRootKey) {
      const name = rootKeyRecordKey(workspaceKey(workspaceId), digest);
      const [grants, enabled, expires] = await orStoreError(redis.hmget(name, 'grants', 'enabled', 'expires'));
      if (typeof grants !== 'string') return undefined;
      return { grants, enabled: enabled === '1', ...(typeof expires === 'string' && { expires: Number(expires) }) };
    },
  };
}

/** Root keys as exports and imports have them. */
function openExport(run: StoreContext['run']) {
  return {
    /** A page in order of creation with digests, after the root key with the id `after`. */
    async export(
      workspaceId: string,
      { after, count }: { after?: string | undefined; count: number },
    ): Promise<PageOf<ExportedRootKey>> {
      const given = { after: after?.slice('root_'.length) ?? '', count };
      const [replies, more] = await run('rootKeys/export', workspaceId, given);
      const items = replies.map(([digest, reply]) => ({ ...readRootKey(asText(reply) as Reply), digest }));
      return { items, next: more === 1 ? items.at(-1)?.rootKeyId : undefined };
    },

    /** Creates root keys of an export; existing ones are unchanged. Their ids and digests must be distinct. */
    async import(workspaceId: string, rootKeys: readonly ExportedRootKey[], isDryRun: boolean, actor: Actor) {
      const request = {
        dryRun: isDryRun,
        rootKeys: rootKeys.map(({ rootKeyId, name, start, permissions, enabled, expires, createdAt, lastUsedAt }) => ({
          id: rootKeyId.slice('root_'.length),
          name,
          start,
          grants: grantsText(permissions),
          enabled,
          expires,
          created: createdAt,
          used: lastUsedAt,
        })),
      };
      const digests = Buffer.concat(rootKeys.map(({ digest }) => digest));
      return run('rootKeys/import', workspaceId, { request: JSON.stringify(request), digests, actor });
    },
  };
}
