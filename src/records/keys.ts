// Typed functions for the scripts of lua/keys/.

import type { Actor } from '../domain/caller.ts';
import { defaultByteLength, packId } from '../domain/keyString.ts';
import type { ExportedLimit, LimitChange, NewLimit, UsedSlices } from '../domain/limit.ts';
import { ApiError, notFound } from '../errors.ts';
import { orStoreError, type RedisClient } from '../redis/connection.ts';
import { keysKey, workspaceKey } from '../redis/names.ts';
import { type HeldUnits, refusal, type UsedUnits } from '../scripts/calls.ts';
import type { StoreContext } from '../scripts/context.ts';
import type { KeyTime } from '../scripts/layout.ts';
import { allHeld, type Held, withoutHolds } from './heldUnits.ts';
import { type Inspected, readInspection } from './inspection.ts';
import { readReply } from './keyReplies.ts';
import { type GivenValues, textsOf, type UpdatedValues } from './keyValues.ts';
import type { PageOf } from './pages.ts';
import { type PlanWindow, readPlanWindows } from './plans.ts';
import {
  asText,
  creditsOf,
  fromNamed,
  type KeyRecord,
  type KeyReply,
  type Refill,
  readRefill,
  readUsedUnits,
} from './records.ts';

/** Limits of the permissions and roles of a key. */
export const permissionsMax = 1000;
export const rolesMax = 100;
/**
 * A page of keys ends after this many steps, or with more than this much metadata (characters). The script limits each
 * step.
 */
const listStepsMax = 10;
export const pageMetaMax = 4 * 1024 * 1024;

/** In addition to the values that the record stores as text. */
export interface NewKey extends GivenValues, Partial<Record<KeyTime, number | undefined>> {
  digest: Buffer;
  start: string;
  /** Number of random bytes in its string, used for its successor; undefined when unknown, as for imported keys. */
  byteLength?: number | undefined;
  externalId?: string | undefined;
  enabled?: boolean | undefined;
  /** Undefined is unlimited. */
  remaining?: number | undefined;
  refill?: Refill | undefined;
  ratelimits?: readonly (NewLimit & ExportedLimit)[] | undefined;
  roles?: readonly string[] | undefined;
  permissions?: readonly string[] | undefined;
  /** The id of an imported key. It ends with the last 8 characters of the API's id. */
  keptId?: string | undefined;
  /** Unix milliseconds, as `updated` and `lastUsed`; undefined is now. */
  created?: number | undefined;
  updated?: number | undefined;
  lastUsed?: number | undefined;
  /** When the next refill is due, of an exported key; Unix milliseconds. */
  refillDue?: number | undefined;
  /** The link to an identity that was deleted: 16 characters of its id, then its externalId. Without `externalId`. */
  formerLink?: string | undefined;
  /** When the record of a deleted key may be removed, Unix milliseconds. */
  restorableUntil?: number | undefined;
}

export interface CreateKeys {
  apiId: string;
  /** With distinct digests and kept ids. */
  keys: readonly NewKey[];
  /** For keys.migrateKeys. */
  migrationId?: string;
  /** Whether permissions that do not exist are created; otherwise they are refused. */
  mayCreatePermissions: boolean;
  /** Refuses keys that have expired. */
  refusesExpired?: boolean;
  /** Decides without changes; the returned ids are ''. */
  dryRun?: boolean | undefined;
}

/** A key with all fields that an import needs. Its permissions are its own, without those of its roles. */
export interface ExportedKey extends KeyRecord {
  digest: Buffer;
  byteLength: number | undefined;
  refillDue?: number | undefined;
  formerLink?: string | undefined;
  /** The units of long windows, by the place of their limit. */
  used: ReadonlyMap<number, UsedSlices>;
  planUsed: readonly PlanWindow[];
}

/** Why a limit cannot be temporary: its end is not in the future, or too far away. */
export type EndRefusal = 'ended' | 'too_late';
/**
 * Why a limit was not changed: a new one has no duration; there would be too many; a concurrency limit cannot have that
 * limit or duration; its end; it has another type than the one that is in force again then.
 */
export type LimitRefusal = EndRefusal | (typeof limitRefusals)[number];
const limitRefusals = [
  'new_limit',
  'too_many_limits',
  'slots_limit',
  'slots_duration',
  'quota_period',
  'quota_duration',
  'not_quota',
  'type_of_former',
] as const;
export const isLimitRefusal = (refused: string): refused is LimitRefusal =>
  ['ended', 'too_late', ...limitRefusals].includes(refused);

/** Null removes a value; an absent field is unchanged (docs/contract.md §6). */
export interface KeyChanges extends UpdatedValues, Partial<Record<KeyTime, number | null | undefined>> {
  externalId?: string | null | undefined;
  credits?: { remaining?: number | null | undefined; refill?: Refill | null | undefined } | null | undefined;
  enabled?: boolean | undefined;
  ratelimits?: readonly NewLimit[] | null | undefined;
  ratelimit?: LimitChange | undefined;
  roles?: readonly string[] | undefined;
  permissions?: readonly string[] | undefined;
}

/** The one field that keys.changeKeys changes. */
export type KeyChange =
  | { enabled: boolean }
  | { expires: number | null }
  | { planId: string | null }
  | { deleted: boolean };

interface ChangedKey {
  keyId: string;
  outcome: 'changed' | 'unchanged' | 'key_not_found' | 'too_many_limits';
  /** The value before as text, '' for none. */
  before: string;
}

export interface Balance {
  /** Undefined is unlimited. */
  remaining: number | undefined;
  debt?: number;
  refill: Refill | undefined;
}

/** The digest of a key by its id without `key_`, as one character a byte. A read of one list, so no script. */
export async function digestOf(redis: RedisClient, workspaceId: string, id24: string): Promise<string | undefined> {
  const id = packId(id24.slice(0, 16));
  const range = [Buffer.concat([Buffer.from('['), id]), '+', 'BYLEX', 'LIMIT', '0', '1'] as const;
  const list = keysKey(workspaceKey(workspaceId), id24);
  const [member] = (await orStoreError(redis.callBuffer('ZRANGE', list, ...range))) as Buffer[];
  return member?.subarray(0, id.length).equals(id) ? member.toString('latin1', id.length) : undefined;
}

export function openKeys({ redis, run, keyRetentionMs, usageRetentionMs }: StoreContext) {
  async function read(
    workspaceId: string,
    keyId: string,
    digest: Buffer | '',
    isDeleted = false,
  ): Promise<{ key: KeyRecord; byteLength: number } | undefined> {
    const reply = await run('keys/read', workspaceId, { keyId, digest, deleted: isDeleted ? 1 : 0 });
    if (!reply) return undefined;
    const { record, byteLength = defaultByteLength } = await readReply(redis, workspaceId, reply);
    return { key: record, byteLength };
  }

  return {
    /** A key by its id, and the number of random bytes in its string. */
    find: (workspaceId: string, keyId: string) => read(workspaceId, keyId, ''),

    /** A deleted key by its id or digest, while its record is kept and if its API exists. */
    findDeleted: (workspaceId: string, key: string | Buffer) =>
      typeof key === 'string' ? read(workspaceId, key, '', true) : read(workspaceId, '', key, true),

    /** A key by the digest of its string. */
    findByDigest: (workspaceId: string, digest: Buffer) => read(workspaceId, '', digest),

    /** Everything that Redis stores of a key, decoded, for support. By its id, or by the digest of its string. */
    async inspect(workspaceId: string, key: { keyId: string } | { digest: Buffer }): Promise<Inspected> {
      const given = 'keyId' in key ? { ...key, digest: '' } : { keyId: '', ...key };
      // A usage history is bytes, which only a packed reply carries as they are.
      const [outcome, reply, history] = await run('keys/inspect', workspaceId, given);
      return readInspection(outcome.toString(), asText(reply), history);
    },

    /**
     * A page of keys in order of creation, after the key with the id `after`; undefined when there is no such API. It
     * ends early when the keys have so much metadata or so many permissions that writing the response would delay other
     * requests.
     */
    async list(
      workspaceId: string,
      page: { apiId: string; externalId?: string | undefined; after?: string | undefined; count: number },
    ): Promise<PageOf<KeyRecord> | undefined> {
      const items: KeyRecord[] = [];
      let metaLength = 0;
      let after = page.after?.slice('key_'.length) ?? '';
      for (let step = 0; step < listStepsMax; step++) {
        const { apiId, externalId = '' } = page;
        const reply = await run('keys/list', workspaceId, {
          apiId,
          externalId,
          after,
          count: page.count - items.length,
        });
        if (!reply) return undefined;
        const [keys, last, more] = reply;
        let isLarge = false;
        for (const keyReply of keys) {
          const { record, isLarge: isLargeKey } = await readReply(redis, workspaceId, keyReply);
          items.push(record);
          isLarge ||= isLargeKey;
          metaLength += (record.meta?.text.length ?? 0) + (record.identity?.meta.text.length ?? 0);
        }
        if (more === 0) return { items, next: undefined };
        after = last;
        if (items.length === page.count || isLarge || metaLength > pageMetaMax) break;
      }
      return { items, next: `key_${after}` };
    },

    /**
     * A page of keys, or of deleted keys, in order of creation, after the key with the id `after`; undefined when there
     * is no such API.
     */
    async export(
      workspaceId: string,
      page: { apiId: string; deleted?: boolean; after?: string | undefined; count: number },
    ): Promise<PageOf<ExportedKey> | undefined> {
      const { apiId, deleted, count } = page;
      const after = page.after?.slice('key_'.length) ?? '';
      // Digests are bytes, so the reply must not be read as text.
      const reply = await run('keys/export', workspaceId, { apiId, deleted: deleted ? 1 : 0, after, count });
      if (!reply) return undefined;
      const items: ExportedKey[] = [];
      const held = (digest: Buffer, first: unknown) => allHeld(run, workspaceId, digest, asText(first) as HeldUnits);
      for (const [digest, keyReply, usedReply, heldReply, planReply] of reply[0]) {
        const text = asText(keyReply);
        const { record, byteLength } = await readReply(redis, workspaceId, text);
        const { refillDue, formerLink } = fromNamed<{ refillDue?: string; formerLink?: string }>(text);
        const item: ExportedKey = {
          ...record,
          digest,
          byteLength,
          ...(refillDue !== undefined && { refillDue: Number(refillDue) }),
          ...(formerLink !== undefined && { formerLink }),
          used: readUsedUnits(asText(usedReply) as UsedUnits[]),
          planUsed: readPlanWindows(asText(planReply)),
        };
        const all: Held[] = [];
        for (const [holder, first] of heldReply) {
          const ofHolder = await held(holder, first);
          all.push(holder.equals(digest) ? ofHolder : { ...ofHolder, units: [] });
        }
        items.push(all.reduce((key, each) => withoutHolds(key, each), item));
      }
      return { items, next: reply[1].length === 0 ? undefined : `key_${reply[1]}` };
    },

    /** Creates all keys or none. A key whose digest exists is skipped: its id is null. */
    async create(workspaceId: string, request: CreateKeys, actor: Actor) {
      const { keys, ...rest } = request;
      const digests = Buffer.concat(keys.map((key) => key.digest));
      const text = JSON.stringify({
        ...rest,
        keys: keys.map(({ digest: _digest, byteLength, ...key }) => ({
          ...key,
          ...textsOf(key),
          bytes: bytesOf(byteLength),
        })),
      });
      const [outcome, ...answer] = await run('keys/create', workspaceId, { request: text, digests, actor });
      if (outcome === 'created') return { created: answer as (string | null)[] };
      return refusal(outcome, answer[0]);
    },

    async update(workspaceId: string, keyId: string, changes: KeyChanges, mayCreatePermissions: boolean, actor: Actor) {
      const text = JSON.stringify({ ...changes, ...textsOf(changes), keyId, mayCreatePermissions, usageRetentionMs });
      const [outcome, name] = await run('keys/update', workspaceId, { request: text, actor });
      return outcome === 'updated' ? undefined : refusal(outcome, name);
    },

    /**
     * Changes one field of each of these keys. `apiIds` are the APIs of the keys that the caller may change, true for
     * all. Returns an outcome for each key, in order. Keys with very much take several scripts, each of which
     * writes an event. If one fails after another has changed keys, returns its error, and outcomes up to there.
     */
    async change(
      workspaceId: string,
      { keyIds, ...given }: { keyIds: readonly string[]; change: KeyChange; apiIds: true | readonly string[] },
      actor: Actor,
    ): Promise<{ keys: ChangedKey[]; error?: ApiError }> {
      const retention = { permanent: keyRetentionMs === 0, retentionMs: keyRetentionMs, usageRetentionMs };
      const all: ChangedKey[] = [];
      while (all.length < keyIds.length) {
        const request = JSON.stringify({ ...given, ...retention, keyIds: keyIds.slice(all.length) });
        try {
          const [outcome, ...found] = await run('keys/change', workspaceId, { request, actor });
          if (outcome !== 'changed') throw notFound('plan', found[0]);
          for (let at = 0; at < found.length; at += 2)
            all.push({
              keyId: keyIds[all.length]!,
              outcome: found[at] as ChangedKey['outcome'],
              before: found[at + 1]!,
            });
        } catch (error) {
          if (error instanceof ApiError && all.some(({ outcome }) => outcome === 'changed'))
            return { keys: all, error };
          throw error;
        }
      }
      return { keys: all };
    },

    /** Changes the balance. With an undefined `value` the key is unlimited. */
    async updateCredits(
      workspaceId: string,
      change: { keyId: string; operation: 'set' | 'increment' | 'decrement'; value: number | undefined },
      actor: Actor,
    ): Promise<
      Balance | { refused: 'key_not_found' | 'unlimited' | 'too_large' } | { refused: 'draws'; name: string }
    > {
      const { keyId, operation, value } = change;
      const given = { keyId, operation, value: value ?? '', actor };
      let reply = await run('keys/updateCredits', workspaceId, { ...given, awaits: 1 });
      // Servers have returned the credits of their leases now, and are granted no others for a while.
      if (reply[0] === 'leased') reply = await run('keys/updateCredits', workspaceId, { ...given, awaits: 0 });
      if (reply[0] === 'leased') throw new Error('keys/updateCredits waits for credits again.');
      if (reply[0] === 'draws') return { refused: 'draws', name: reply[1] };
      if (reply[0] !== 'updated') return { refused: reply[0] };
      const balance = fromNamed<Pick<KeyReply, 'balance' | 'refillAmount' | 'refillDay'>>(reply[1]);
      const credits = balance.balance === undefined ? { remaining: undefined } : creditsOf(Number(balance.balance));
      return { ...credits, refill: readRefill(balance) };
    },

    /** False when there is no such key. */
    async delete(
      workspaceId: string,
      { keyId, permanent }: { keyId: string; permanent: boolean },
      actor: Actor,
    ): Promise<boolean> {
      const [outcome] = await run('keys/delete', workspaceId, {
        keyId,
        permanent: permanent || keyRetentionMs === 0 ? 1 : 0,
        retentionMs: keyRetentionMs,
        usageRetentionMs,
        actor,
      });
      return outcome === 'deleted';
    },

    /** False when there is no such deleted key, its API was deleted, or another key has its id. */
    async restore(workspaceId: string, keyId: string, actor: Actor): Promise<boolean> {
      const [outcome] = await run('keys/restore', workspaceId, { keyId, actor });
      return outcome === 'restored';
    },

    /** Returns the direct permissions of the key after the change, as a list of numbers (`,3,17,`). */
    async setPermissions(
      workspaceId: string,
      mode: 'add' | 'remove' | 'set',
      request: { keyId: string; permissions: readonly string[]; mayCreatePermissions: boolean },
      actor: Actor,
    ) {
      const text = JSON.stringify({ ...request, permissionsMax });
      const [outcome, detail = ''] = await run('keys/setPermissions', workspaceId, { mode, request: text, actor });
      return outcome === 'set' ? { numbers: detail } : refusal(outcome, detail);
    },

    /** Returns the roles of the key after the change, as a list of numbers (`,3,17,`). */
    async setRoles(
      workspaceId: string,
      mode: 'add' | 'remove' | 'set',
      request: { keyId: string; roles: readonly string[] },
      actor: Actor,
    ) {
      const text = JSON.stringify({ ...request, rolesMax });
      const [outcome, detail = ''] = await run('keys/setRoles', workspaceId, { mode, request: text, actor });
      return outcome === 'set' ? { numbers: detail } : refusal(outcome, detail);
    },

    /** Returns the id of the successor. */
    async reroll(
      workspaceId: string,
      request: { keyId: string; digest: Buffer; start: string; expiresIn: number; credits: 'copy' | 'move' },
      actor: Actor,
    ) {
      let reply = await run('keys/reroll', workspaceId, { ...request, awaits: 1, actor });
      // As in updateCredits.
      if (reply[0] === 'leased') reply = await run('keys/reroll', workspaceId, { ...request, awaits: 0, actor });
      const [outcome, keyId = ''] = reply;
      if (outcome === 'leased') throw new Error('keys/reroll waits for credits again.');
      return outcome === 'created' ? { keyId } : { refused: outcome, name: keyId };
    },
  };
}

/**
 * The field `bytes` of a key's record: absent for the default length, 0 when unknown. keyReplies.ts has the reverse.
 */
const bytesOf = (byteLength: number | undefined): number | undefined =>
  byteLength === defaultByteLength ? undefined : (byteLength ?? 0);
