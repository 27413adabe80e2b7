// Typed functions for the scripts of lua/moves/: an API is moved to another workspace of this installation, key by key,
// while all its keys are verified.
//
// A key is *taken* out of its workspace: from then on that one decides nothing about it. Leases of before are taken
// back, as after any change. Then everything that is stored of it is put into the other workspace, and the first one is
// told that it has arrived. Meanwhile its verifications wait. Afterwards the first workspace sends them on (`moved` in
// src/decide/decider.ts). Every step may be repeated, by any process: the record of a taken key has all of it until it
// has arrived, so a verification that has waited for long brings it there itself.

import { randomBytes } from 'node:crypto';
import type { Actor } from '../domain/caller.ts';
import { dayMs } from '../domain/time.ts';
import { orStoreError, storeError } from '../redis/connection.ts';
import {
  apiKey,
  keyRecordKey,
  keysOnTheWayKey,
  moveKey,
  receiptKey,
  takenKeysKey,
  workspaceKey,
} from '../redis/names.ts';
import type { Returned } from '../scripts/calls.ts';
import type { StoreContext } from '../scripts/context.ts';
import { keyFixed, moved, tagField } from '../scripts/layout.ts';
import { Reader, readUint } from '../scripts/struct.ts';
import type { openUsageExport } from '../usage/exported.ts';
import type { openUsageImport } from '../usage/imported.ts';
import { monthOf } from '../usage/sums.ts';
import { openMovedGrants } from './movedGrants.ts';
import type { openRbac } from './rbac.ts';
import type { openRootKeys } from './rootKeys.ts';

/** The actor of a move in the audit log. */
export const moveActor: Actor = { rootKeyId: 'cli', operation: 'cli.move', requestId: '' };
/** Steps write no events. */
const quietActor = { ...moveActor, isQuiet: true } as const;

export interface Move {
  from: string;
  to: string;
  apiId: string;
}

/** What keys share by their identity; `spent`: a balance of 0 without a refill. */
type Shares = '' | 'limits' | 'balance' | 'spent';

export interface PlannedKey {
  digest: Buffer;
  keyId: string;
  /** '' without an identity. */
  externalId: string;
  identity16: string;
  shares: Shares;
  /** Keys of its identity in the API, and whether it has keys of other APIs. */
  own: number;
  hasOthers: boolean;
  /** The digests of keys that share its credits, and of all keys of its identity at one of them. */
  members: Buffer[];
}

/** Why an API or a key cannot be moved. */
export interface Obstacle {
  reason:
    | 'api_exists'
    | 'shared_limits'
    | 'shared_balance'
    | 'too_many_keys'
    | 'key_exists'
    | 'identity_exists'
    | 'identity_limited';
  /** The externalId, or the id of the API or key. */
  of: string;
}

/** How keys may be moved. */
export interface Permitted {
  /** Limits that keys of other APIs share are copied. */
  mayCopy: boolean;
  /** Keys may get limits or a balance by another identity of the same name. */
  mayJoin: boolean;
}

/** An identity with more keys in the API that share limits or a balance is not moved at once. */
export const membersMax = 500;
/** Bytes of keys that one script reads, and another one stores. */
const bytesMax = 131_072;
/** Counts of one script, and former keys that are moved at once. */
const countsStep = 500;
const formerStep = 200;
/** Leaves of sums by customer that one script removes. */
const leavesStep = 100;
/** Keys whose forwarding ends in one script. */
const forgottenStep = 500;
const digestBytes = 32;
const id16Chars = 16;
const packedIdBytes = 12;
/** How often a verification looks whether its key has arrived, and after which time it brings the key itself. */
const arrivalMs = { poll: 20, bring: 1000 };

type Run = StoreContext['run'];
type ReadKey = Returned<'moves/read'>[1][number];

interface Parts {
  rbac: ReturnType<typeof openRbac>;
  rootKeys: () => ReturnType<typeof openRootKeys>;
  usageExport: ReturnType<typeof openUsageExport>;
  usageImport: ReturnType<typeof openUsageImport>;
}

export function openMoves(context: StoreContext, parts: Parts) {
  const { run, redis } = context;
  const carry = openCarrying(context, parts);
  return {
    ...openPlan(run),
    ...openEnding(context, parts),
    ...carry,
    ...openArrivals(context, carry.bring),
    differingRoles: openMovedGrants(context, parts.rbac, quietActor).differing,
    newGrants: openMovedGrants(context, parts.rbac, quietActor).created,

    /**
     * Begins or continues a move: creates the API in the other workspace, and there a root key that the first one sends
     * verifications on with.
     */
    async begin({ from, to, apiId }: Move) {
      const given = { apiId, to, root: randomBytes(digestBytes).toString('hex'), actor: moveActor };
      const [outcome, name = '', createdMs = '', root = ''] = await run('moves/begin', from, given);
      if (outcome !== 'begun') return { outcome, other: outcome === 'moved' ? undefined : name };
      const [received] = await run('moves/receive', to, { apiId, name, createdMs, from, actor: moveActor });
      if (received === 'exists') return { outcome: received };
      const digest = Buffer.from(root, 'hex');
      const presented = { workspaceId: to, digest, digestText: digest.toString('latin1') };
      const known = await parts.rootKeys().authenticate(presented);
      if ('refused' in known && known.refused === 'unauthorized') {
        const rootKey = {
          digest,
          start: '',
          name: forwardingName(apiId, from),
          permissions: [`api.${apiId}.verify_key`],
        };
        await parts.rootKeys().create(to, rootKey, moveActor);
      }
      return { outcome };
    },

    /** The other workspace, and how far the move is; undefined if there is none. One read of one record. */
    async find(from: string, apiId: string): Promise<{ to: string; state: string; taken: number } | undefined> {
      const workspace = workspaceKey(from);
      const [api, to, state] = await orStoreError(redis.hmget(moveKey(workspace, apiId), 'api', 'to', 'state'));
      if (api !== apiId || !to || !state) return undefined;
      return { to, state, taken: await orStoreError(redis.zcard(takenKeysKey(workspace, apiId))) };
    },

    /** The workspace from which an API is still being moved here. One read of one record. */
    async receivedFrom(workspaceId: string, apiId: string): Promise<string | undefined> {
      const receipt = receiptKey(workspaceKey(workspaceId), apiId);
      return (await orStoreError(redis.hget(receipt, 'from'))) ?? undefined;
    },

    /**
     * The workspace that the API with this id is or was moved to, or that of the key with this id; undefined if the API
     * came back. One read or two.
     */
    async targetOf(from: string, id: string): Promise<string | undefined> {
      const workspace = workspaceKey(from);
      const [api, to, state] = await orStoreError(redis.hmget(moveKey(workspace, id), 'api', 'to', 'state'));
      if (!api || !to || !(id.startsWith('key_') || api === id)) return undefined;
      const isBack = state === 'moved' && (await orStoreError(redis.exists(apiKey(workspace, id)))) === 1;
      return isBack ? undefined : to;
    },

    /** The workspace that the key with this digest is being moved to, or was. Two reads. */
    async targetOfKey(from: string, digest: Buffer): Promise<string | undefined> {
      const workspace = workspaceKey(from);
      const state = await orStoreError(redis.hgetBuffer(keyRecordKey(workspace, digest), 'state'));
      if (!state || readUint(state, keyFixed.at.expires, keyFixed.fields.expires.bytes) !== moved) return undefined;
      const { at, fields } = keyFixed;
      const api8 = state.toString('latin1', at.api8, at.api8 + fields.api8.bytes);
      return (await orStoreError(redis.hget(moveKey(workspace, api8), 'to'))) ?? undefined;
    },

    /** The digests of keys that were taken and have not arrived, some of them. One read of one list. */
    async onTheWay({ from, apiId }: Move): Promise<Buffer[]> {
      const list = keysOnTheWayKey(workspaceKey(from), apiId);
      const members = (await orStoreError(redis.callBuffer('ZRANGE', list, '0', `${membersMax}`))) as Buffer[];
      return members.map((member) => member.subarray(packedIdBytes));
    },
  };
}

/** The name of the root key of a forwarding. */
const forwardingName = (apiId: string, from: string) => `forwards ${apiId} from ${from}`;

function openPlan(run: Run) {
  return {
    /** The next keys, or deleted keys, of an API in order of creation, after a key id or ''. */
    async plan(
      { from, apiId }: Pick<Move, 'from' | 'apiId'>,
      page: { isDeleted: boolean; after: string; count: number },
    ): Promise<{ keys: PlannedKey[]; next: string; roleLists: string[] }> {
      const { isDeleted, after, count } = page;
      const given = { api8: apiId.slice(-8), deleted: isDeleted ? 1 : 0, after, count, membersMax };
      const [keys, next, roleLists] = await run('moves/plan', from, given);
      const planned = keys.map(([digest, id24, externalId, identity16, shares, own, hasOthers, members]) => ({
        digest,
        keyId: `key_${id24.toString('latin1')}`,
        externalId: externalId.toString(),
        identity16: identity16.toString('latin1'),
        shares: shares.toString() as Shares,
        own,
        hasOthers: hasOthers === 1,
        members,
      }));
      return { keys: planned, next: next.toString('latin1'), roleLists: roleLists.map(String) };
    },

    /** Why keys of a page cannot be moved, empty if they can; and how many of their identities are new there. */
    async obstacles(
      { from, to, apiId }: Move,
      keys: readonly PlannedKey[],
      permitted: Permitted,
    ): Promise<{ obstacles: Obstacle[]; newIdentities: string[] }> {
      const identities = new Map(
        keys.filter(({ identity16 }) => identity16 !== '').map((key) => [key.externalId, key]),
      );
      const externalIds = JSON.stringify([...identities.keys()]);
      const digests = Buffer.concat(keys.map(({ digest }) => digest));
      const [receives, there, identitiesThere] = await run('moves/fits', to, { apiId, from, digests, externalIds });
      const obstacles: Obstacle[] = receives ? [] : [{ reason: 'api_exists', of: apiId }];
      for (const [index, { keyId }] of keys.entries()) {
        const id24 = there[index]!;
        if (id24 !== '') obstacles.push({ reason: 'key_exists', of: keyId });
      }
      for (const [index, key] of [...identities.values()].entries()) {
        const reason = obstacleOf(key, identitiesThere[index]!, permitted);
        if (reason) obstacles.push({ reason, of: key.externalId });
      }
      const newIdentities = [...identities.keys()].filter((_, index) => identitiesThere[index] === '');
      return { obstacles, newIdentities };
    },
  };
}

function obstacleOf(
  { shares, own, hasOthers, identity16 }: PlannedKey,
  there: string,
  { mayCopy, mayJoin }: Permitted,
): Obstacle['reason'] | undefined {
  const [there16, isLimited] = [there.slice(0, id16Chars), there.length > id16Chars];
  if (shares === '') return isLimited && there16 !== identity16 && !mayJoin ? 'identity_limited' : undefined;
  const hasBalance = shares !== 'limits';
  if (hasOthers && hasBalance) return 'shared_balance';
  if (hasOthers && !mayCopy) return 'shared_limits';
  if (own > membersMax && (hasBalance || !mayCopy)) return 'too_many_keys';
  // What exists is never changed: limits that were copied before go on there, and a balance would be lost.
  if (there !== '' && (there16 !== identity16 || shares === 'balance')) return 'identity_exists';
  return undefined;
}

/** Takes keys and brings them to the other workspace. */
function openCarrying(context: StoreContext, { rbac, usageExport, usageImport }: Parts) {
  const { run, usageRetentionMs } = context;
  const grants = openMovedGrants(context, rbac, quietActor);

  /** Before the keys are valid in the other workspace, as usage that is stored there is never added to. */
  async function bringUsage({ from, to, apiId }: Move, keys: readonly ReadKey[]) {
    const ids = keys.map(([, id24]) => `key_${id24.toString('latin1')}`);
    const usage = await usageExport.keys(from, ids);
    const used = keys.flatMap(([, , link, deletedHour], index) => {
      const days = usage.get(ids[index]!);
      if (!days) return [];
      const externalId = link.length > 0 ? link.toString('utf8', 16) : undefined;
      const deleted = deletedHour.length > 0 ? { deletedHour: Number(deletedHour.toString()) } : {};
      return [{ keyId: ids[index]!, days, part: 1, externalId, ...deleted }];
    });
    if (used.length > 0) await usageImport.keys(to, apiId.slice(-8), used, false);
  }

  /** What moves/put takes for keys. */
  async function itemsOf({ from, to }: Move, keys: readonly ReadKey[]): Promise<(Buffer | string | number)[]> {
    const listsOf = (name: string) => keys.map(([, , , , fields]) => fieldOf(fields, name)?.toString() ?? '');
    const direct = await grants.convert('permission', from, to, listsOf('direct'));
    const roles = await grants.convert('role', from, to, listsOf('roles'));
    return keys.flatMap((key) => itemOf(key, { direct, roles }));
  }

  /** Reads some keys that were taken, with their usage and permissions; `store` puts them into the other workspace. */
  async function readOnTheWay(move: Move, digests: readonly Buffer[]) {
    const { from, to, apiId } = move;
    const api8 = apiId.slice(-8);
    const [read, keys] = await run('moves/read', from, { digests: Buffer.concat(digests), bytesMax });
    const items = keys.length > 0 ? await itemsOf(move, keys) : [];
    async function store() {
      if (keys.length === 0) return;
      await bringUsage(move, keys);
      const [outcome, keyId] = await run('moves/put', to, { api8, from, actor: quietActor, items });
      if (outcome === 'taken') throw new Error(`${to} has another key with the string of a key: ${keyId}.`);
      if (outcome !== 'put') throw new Error(`${to} does not receive ${apiId}: the API was deleted there.`);
      await run('moves/done', from, { api8, digests: Buffer.concat(keys.map(([digest]) => digest)) });
    }
    return { read, store };
  }

  /** Brings keys that were taken to the other workspace. Leases of them that were granted before end first. */
  async function bring(move: Move, digests: readonly Buffer[]) {
    await take(move, digests, false);
    for (let first = 0; first < digests.length; ) {
      const { read, store } = await readOnTheWay(move, digests.slice(first));
      await store();
      first += read;
    }
  }

  const take = ({ from, apiId }: Move, digests: readonly Buffer[], mayCopy: boolean): Promise<number> =>
    run('moves/take', from, {
      api8: apiId.slice(-8),
      digests: Buffer.concat(digests),
      mayCopy: mayCopy ? 1 : 0,
      usageRetentionMs,
      actor: quietActor,
    });

  return {
    bring,
    readOnTheWay,

    /** Moves keys. Returns how many were taken: keys to whose identity another key was added meanwhile stay. */
    async moveKeys(move: Move, digests: readonly Buffer[], mayCopy: boolean): Promise<number> {
      const taken = await take(move, digests, mayCopy);
      if (taken > 0) await bring(move, digests);
      return taken;
    },
  };
}

/** What moves/put takes for a key, whose lists of permissions and roles are converted. */
function itemOf(
  [digest, id24, link, , fields, windows, settled, identity]: ReadKey,
  converting: Record<string, (list: string) => string>,
): (Buffer | string | number)[] {
  const converted = pairsOf(fields).map(([name, value]) => {
    const convert = converting[name.toString('latin1')];
    return [name, convert ? convert(value.toString()) : value] as const;
  });
  const kept = converted.filter(([, value]) => value !== '');
  const items = [digest, id24, link, kept.length, ...kept.flat()];
  items.push(windows.length / 3, ...windows, settled.length / 3, ...settled);
  if (identity.length === 0) return [...items, 0];
  const [externalId, id16, ofIdentity, windowsOfIdentity] = identity;
  items.push(1, externalId, id16, ofIdentity.length / 2, ...ofIdentity);
  return [...items, windowsOfIdentity.length / 3, ...windowsOfIdentity];
}

const pairsOf = (list: readonly Buffer[]): [name: Buffer, value: Buffer][] =>
  Array.from({ length: list.length / 2 }, (_, index) => [list[2 * index]!, list[2 * index + 1]!]);
const fieldOf = (fields: readonly Buffer[], name: string): Buffer | undefined =>
  pairsOf(fields).find(([each]) => each.toString('latin1') === name)?.[1];

/** What follows when all keys have been moved: the counts of the API, and of keys that were deleted before. */
function openEnding(context: StoreContext, { rootKeys, usageExport, usageImport }: Parts) {
  const { run, currentMs, usageRetentionMs } = context;

  async function moveCounts({ from, to, apiId }: Move, kind: 'a' | 't', day: number) {
    const api8 = apiId.slice(-8);
    for (let arrived = 0; ; ) {
      const next = await run('moves/counts', from, { api8, arrived, kind, day, count: countsStep });
      if (next.length === 0) return;
      const [part, ofKind, ofDay, counts] = next;
      const keptMs = Math.max(0, (Number(ofDay.toString()) + 2) * dayMs + usageRetentionMs - (await currentMs()));
      const tags = ofKind.toString() === 't' ? tagsIn(counts) : [];
      const given = { api8, from, part, kind: ofKind, day: ofDay, tags: JSON.stringify(tags), keptMs, counts };
      if ((await run('moves/addCounts', to, given)) === 0) throw new Error(`${to} does not receive ${apiId}.`);
      arrived = part;
    }
  }

  async function moveFormerKeys({ from, to, apiId }: Move) {
    const api8 = apiId.slice(-8);
    for (;;) {
      const former = await usageExport.formerKeys(from, api8, 0, formerStep);
      if (former.length === 0) return;
      const usage = await usageExport.keys(
        from,
        former.map(({ keyId }) => keyId),
      );
      const used = former.flatMap(({ keyId, deletedHour }) => {
        const days = usage.get(keyId);
        return days ? [{ keyId, deletedHour, days, part: 1 }] : [];
      });
      if (used.length > 0) await usageImport.keys(to, api8, used, false);
      await run('moves/forget', from, { api8, keys: former.map(({ keyId }) => keyId.slice('key_'.length)) });
    }
  }

  async function removeForwardingKey(from: string, to: string, apiId: string) {
    let after: string | undefined;
    for (let more = true; more; ) {
      const page = await rootKeys().list(to, { after, count: 100 });
      for (const { rootKeyId, name } of page.rootKeys) {
        if (name === forwardingName(apiId, from)) await rootKeys().delete(to, rootKeyId, moveActor);
      }
      after = page.rootKeys.at(-1)?.rootKeyId;
      more = page.more;
    }
  }

  return {
    /** Closes the API in the workspace that it leaves. False while it has keys. */
    close: async ({ from, apiId }: Move): Promise<boolean> =>
      (await run('moves/close', from, { apiId, actor: moveActor })) === 1,

    /** Ends a move whose API is closed. */
    async finish(move: Move, onDay?: (done: number, days: number) => void) {
      const { from, to, apiId } = move;
      const { first, last } = await usageExport.days();
      for (let day = first; day <= last; day++) {
        await moveCounts(move, 'a', day);
        await moveCounts(move, 't', day);
        onDay?.(day - first + 1, last - first + 1);
      }
      await moveFormerKeys(move);
      await forgetSums(run, move, [monthOf(first), monthOf(last)]);
      await run('moves/finish', from, { api8: apiId.slice(-8), firstDay: first, lastDay: last });
      await run('moves/received', to, { apiId, from, actor: moveActor });
    },

    /** Also of a move that has ended: the process may have been killed before the last step. */
    received: async ({ from, to, apiId }: Move) =>
      void (await run('moves/received', to, { apiId, from, actor: moveActor })),

    /** Ends the forwarding of an API that was moved. Returns the number of keys, or why it cannot end. */
    async unforward(from: string, apiId: string): Promise<number | 'none' | 'moving'> {
      for (let count = 0; ; ) {
        const given = { apiId, count: forgottenStep, actor: moveActor };
        const [outcome, to, some] = await run('moves/unforward', from, given);
        if (outcome === 'none' || outcome === 'moving') return outcome;
        count += some;
        if (outcome === 'more') continue;
        await removeForwardingKey(from, to, apiId);
        return count;
      }
    },
  };
}

/** Removes the sums by customer of an API, whose keys took their counts with them. */
async function forgetSums(run: Run, { from, apiId }: Move, [first, last]: [month: number, month: number]) {
  for (let month = first; month <= last; month++) {
    while ((await run('moves/forgetSums', from, { api8: apiId.slice(-8), month, count: leavesStep })) === 1);
  }
}

/** The distinct tags in counts by tag: field, count, …. */
function tagsIn(counts: readonly Buffer[]): string[] {
  const names = pairsOf(counts).flatMap(([name]) => (name.length === 0 || name[0] === 's'.charCodeAt(0) ? [] : [name]));
  return [...new Set(names.map((name) => tagField.read(new Reader(name)).tag))].filter((tag) => tag !== '');
}

/** Waits of verifications for keys that are on their way. */
function openArrivals({ redis }: StoreContext, bring: (move: Move, digests: readonly Buffer[]) => Promise<void>) {
  /** By workspace and digest. */
  const waits = new Map<string, Promise<void>>();

  async function wait(workspaceId: string, api8: string, digest: Buffer) {
    const workspace = workspaceKey(workspaceId);
    const record = keyRecordKey(workspace, digest);
    for (const since = performance.now(); performance.now() - since < arrivalMs.bring; ) {
      await new Promise((resolve) => setTimeout(resolve, arrivalMs.poll));
      if ((await orStoreError(redis.hexists(record, 'moved'))) === 0) return;
    }
    const [apiId, to] = await orStoreError(redis.hmget(moveKey(workspace, api8), 'api', 'to'));
    if (apiId && to) await bring({ from: workspaceId, to, apiId }, [digest]).catch(failed);
  }

  const failed = (cause: Error) => {
    throw storeError(cause);
  };

  return {
    /** Resolves when a key has arrived. If the process that moves it ended, this one brings it. */
    arrival(workspaceId: string, api8: string, digest: string): Promise<void> {
      const id = workspaceId + digest;
      let waiting = waits.get(id);
      if (!waiting) {
        waiting = wait(workspaceId, api8, Buffer.from(digest, 'latin1')).finally(() => waits.delete(id));
        waits.set(id, waiting);
      }
      return waiting;
    },
  };
}
