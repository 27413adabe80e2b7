// The typed face of lua/decide.lua: verifications and limit checks. What arrives in one turn of the event loop goes to
// Redis as one call per workspace, so a busy server pays for one command where it had sixty; a lone request waits for
// nothing but the end of its turn.

import type { PresentedRootKey } from '../domain/caller.ts';
import { JsonText } from '../domain/json.ts';
import type { PostfixQuery } from '../domain/permissionQuery.ts';
import { type Outcome, outcomes, printShown, type Ratelimit, type ShownText } from '../domain/verification.ts';
import { ApiError } from '../errors.ts';
import { storeError } from './redis.ts';
import type { Scripts } from './scripts.ts';

export interface VerifyRequest {
  /** SHA-256 of the key string. */
  digest: Buffer;
  /** Credits. */
  cost: number;
  query?: PostfixQuery | undefined;
  ratelimits?: readonly { name: string; cost: number; limit?: number; duration?: number }[] | undefined;
  tags?: readonly string[] | undefined;
}

export interface LimitState {
  exceeded: boolean;
  remaining: number;
  resetAtMs: number;
  /** Where the limit comes from, and its place there. */
  of: 'key' | 'identity' | 'request';
  index: number;
}

export interface Verified {
  outcome: Outcome;
  /** Undefined for NOT_FOUND only. */
  shown: ShownText | undefined;
  /** The balance after charging; undefined for an unlimited key. */
  credits: number | undefined;
  ratelimits: LimitState[];
}

export interface LimitCheck {
  namespace: string;
  identifier: string;
  limit: number;
  durationMs: number;
  cost: number;
}

export interface LimitResult {
  passed: boolean;
  /** The one that counted: an override replaces the request's. */
  limit: number;
  remaining: number;
  resetAtMs: number;
  overrideId: string | undefined;
}

export interface DecideOptions {
  scripts: Scripts;
  usageRetentionMs: number;
  tagsMax: number;
  /** For tests that hold the clock; '' is Redis's own. */
  now: () => number | '';
}

/** A batch goes out when it holds this many items, or as much work as this many plain ones. */
const batchWeightMax = 64;
/** Bytes of printed keys held in memory, in each of two generations. */
const shownBytesMax = 32 * 1024 * 1024;

const VERIFY = 1;
const LIMIT = 2;
const PASSED = 10;
const FAILED = 30;
const refusals = [
  'unauthorized',
  'root_key_disabled',
  'root_key_expired',
  'insufficient_permissions',
  'limit_not_found',
  'namespace_not_found',
  'create_namespace',
] as const;

type Reply = Buffer | [Buffer, unknown[]];

interface Pending {
  root: Buffer;
  item: Buffer;
  weight: number;
  settle(reply: Reply): void;
  reject(error: unknown): void;
}

export function openDecide({ scripts, usageRetentionMs, tagsMax, now }: DecideOptions) {
  let pending = new Map<string, Pending[]>();
  const shown = new ShownCache();

  function enqueue(workspaceId: string, entry: Pending) {
    if (pending.size === 0) setImmediate(sendAll);
    const queue = pending.get(workspaceId);
    if (queue) queue.push(entry);
    else pending.set(workspaceId, [entry]);
  }

  function sendAll() {
    const turn = pending;
    pending = new Map();
    for (const [workspaceId, entries] of turn) {
      let first = 0;
      let weight = 0;
      for (let index = 0; index < entries.length; index++) {
        weight += entries[index]!.weight;
        if (weight >= batchWeightMax || index === entries.length - 1) {
          void send(workspaceId, entries.slice(first, index + 1));
          first = index + 1;
          weight = 0;
        }
      }
    }
  }

  async function send(workspaceId: string, batch: Pending[]) {
    const roots: Buffer[] = [];
    for (const entry of batch) {
      let index = roots.findIndex((root) => root.equals(entry.root));
      if (index < 0) index = roots.push(entry.root) - 1;
      entry.item[1] = index + 1;
    }
    const items = batch.map((entry) => entry.item);
    const digests = roots.length === 1 ? roots[0]! : Buffer.concat(roots);
    try {
      const replies = (await scripts.runPacked('decide', workspaceId, [
        usageRetentionMs,
        tagsMax,
        digests,
        now(),
        ...items,
      ])) as Reply[];
      for (const [index, entry] of batch.entries()) entry.settle(replies[index]!);
    } catch (error) {
      for (const entry of batch) entry.reject(error);
    }
  }

  /** Throws what the script refused. */
  function refuse(packed: Buffer): never {
    const code = packed[0]!;
    const about = packed.toString('utf8', 1);
    if (code === FAILED) {
      const cause = Object.assign(new Error(scripts.locate('decide', about)), { name: 'ReplyError' });
      throw storeError(cause);
    }
    const reason = refusals[code - 20];
    if (reason === 'unauthorized') throw new ApiError(reason, 'The root key is unknown.');
    if (reason === 'root_key_disabled') throw new ApiError(reason, 'The root key is disabled.');
    if (reason === 'root_key_expired') throw new ApiError(reason, 'The root key has expired.');
    if (reason === 'insufficient_permissions') throw new ApiError(reason, `The root key lacks ${about}.`);
    if (reason === 'create_namespace')
      throw new ApiError('insufficient_permissions', 'The root key lacks ratelimit.*.create_namespace.');
    if (reason === 'namespace_not_found') throw new ApiError(reason, `There is no namespace ${about}.`);
    if (reason === 'limit_not_found')
      throw new ApiError(
        'precondition_failed',
        `Neither the key nor its identity has a limit named ${JSON.stringify(about)}.`,
      );
    throw new Error(`decide: unknown outcome ${code}`);
  }

  function readVerified(reply: Reply, digest: string): Verified {
    const packed = Buffer.isBuffer(reply) ? reply : reply[0];
    const code = packed[0]!;
    const outcome = outcomes[code - 1];
    if (outcome === undefined) refuse(packed);
    if (outcome === 'NOT_FOUND') return { outcome, shown: undefined, credits: undefined, ratelimits: [] };
    const text = Buffer.isBuffer(reply) ? shown.get(digest)! : shown.set(digest, reply[1]);
    const ratelimits: LimitState[] = [];
    const count = packed[9]!;
    for (let index = 0, at = 10; index < count; index++, at += 16) {
      const which = packed[at]!;
      ratelimits.push({
        of: which <= 50 ? 'key' : which <= 150 ? 'identity' : 'request',
        index: (which - 1) % 100,
        exceeded: packed[at + 1] === 1,
        remaining: readUInt56(packed, at + 2),
        resetAtMs: readUInt56(packed, at + 9),
      });
    }
    return { outcome, shown: text.shown, credits: packed[1] === 1 ? readUInt56(packed, 2) : undefined, ratelimits };
  }

  return {
    verify(rootKey: PresentedRootKey, request: VerifyRequest): Promise<Verified> {
      const id = `${rootKey.workspaceId}${request.digest.toString('latin1')}`;
      // A version that leaves the cache while its answer is on the way is held here until then.
      const known = shown.entry(id);
      const { query, ratelimits, tags } = request;
      const extras =
        query || ratelimits || tags
          ? JSON.stringify({
              query,
              limits: ratelimits?.map((r) =>
                r.limit === undefined ? [r.name, r.cost] : [r.name, r.cost, r.limit, r.duration],
              ),
              tags,
            })
          : '';
      const versionBytes = known?.version.length ?? 0;
      const item = Buffer.allocUnsafe(42 + versionBytes + Buffer.byteLength(extras));
      item[0] = VERIFY;
      request.digest.copy(item, 2);
      writeUInt56(item, request.cost, 34);
      item[41] = versionBytes;
      known?.version.copy(item, 42);
      if (extras !== '') item.write(extras, 42 + versionBytes);
      const weight = 1 + (ratelimits?.length ?? 0) / 4 + (query?.length ?? 0) / 4 + (tags?.length ?? 0) / 4;
      return new Promise((resolve, reject) => {
        enqueue(rootKey.workspaceId, {
          root: rootKey.digest,
          item,
          weight,
          settle(reply) {
            try {
              if (known && Buffer.isBuffer(reply)) shown.keep(id, known);
              resolve(readVerified(reply, id));
            } catch (error) {
              reject(error);
            }
          },
          reject,
        });
      });
    },

    /** One check, or several of which all pass or none is charged. */
    limit(
      rootKey: PresentedRootKey,
      checks: readonly LimitCheck[],
    ): Promise<{ passed: boolean; checks: LimitResult[] }> {
      const sizes = checks.map(
        (check) => [Buffer.byteLength(check.namespace), Buffer.byteLength(check.identifier)] as const,
      );
      const item = Buffer.allocUnsafe(sizes.reduce((sum, [a, b]) => sum + 25 + a + b, 3));
      item[0] = LIMIT;
      item[2] = checks.length;
      let at = 3;
      for (const [index, check] of checks.entries()) {
        const [namespaceBytes, identifierBytes] = sizes[index]!;
        writeUInt56(item, check.cost, at);
        writeUInt56(item, check.limit, at + 7);
        writeUInt56(item, check.durationMs, at + 14);
        item.writeUInt16BE(namespaceBytes, at + 21);
        item.write(check.namespace, at + 23);
        at += 23 + namespaceBytes;
        item.writeUInt16BE(identifierBytes, at);
        item.write(check.identifier, at + 2);
        at += 2 + identifierBytes;
      }
      return new Promise((resolve, reject) => {
        enqueue(rootKey.workspaceId, {
          root: rootKey.digest,
          item,
          weight: checks.length,
          settle(reply) {
            try {
              resolve(readLimited(reply as Buffer));
            } catch (error) {
              reject(error);
            }
          },
          reject,
        });
      });
    },
  };

  function readLimited(packed: Buffer) {
    const code = packed[0]!;
    if (code !== PASSED && code !== PASSED + 1) refuse(packed);
    const checks: LimitResult[] = [];
    for (let index = 0, at = 2; index < packed[1]!; index++) {
      const overrideBytes = packed[at + 22]!;
      checks.push({
        passed: packed[at] === 1,
        limit: readUInt56(packed, at + 1),
        remaining: readUInt56(packed, at + 8),
        resetAtMs: readUInt56(packed, at + 15),
        overrideId:
          overrideBytes === 0 ? undefined : `rlor_${packed.toString('latin1', at + 23, at + 23 + overrideBytes)}`,
      });
      at += 23 + overrideBytes;
    }
    return { passed: code === PASSED, checks };
  }
}

interface CachedShown {
  /** Opaque bytes that the script compares with what is stored. */
  version: Buffer;
  shown: ShownText;
  bytes: number;
}

/** Printed keys by digest, each with its version; the script confirms the version in the round trip that decides. */
class ShownCache {
  #young = new Map<string, CachedShown>();
  #old = new Map<string, CachedShown>();
  #youngBytes = 0;

  entry(id: string): CachedShown | undefined {
    return this.#young.get(id) ?? this.#old.get(id);
  }

  get(id: string): CachedShown | undefined {
    return this.entry(id);
  }

  /** Holds on to an entry that was just confirmed. */
  keep(id: string, entry: CachedShown) {
    if (this.#young.get(id) === entry) return;
    this.#add(id, entry);
  }

  set(id: string, reply: unknown[]): CachedShown {
    const shown = printShown(readShown(reply));
    const entry = { version: reply[0] as Buffer, shown, bytes: 200 + id.length + 2 * shown.fields.length };
    this.#add(id, entry);
    return entry;
  }

  #add(id: string, entry: CachedShown) {
    if (this.#youngBytes + entry.bytes > shownBytesMax) {
      this.#old = this.#young;
      this.#young = new Map();
      this.#youngBytes = 0;
    }
    this.#young.set(id, entry);
    this.#youngBytes += entry.bytes;
  }
}

const textOf = (value: unknown): string => (value as Buffer).toString('utf8');

function readRatelimits(rows: unknown): Ratelimit[] {
  return (rows as [Buffer, Buffer, Buffer, Buffer, number][]).map(([id, name, limit, duration, autoApply]) => ({
    id: `rl_${textOf(id)}`,
    name: textOf(name),
    limit: Number(textOf(limit)),
    duration: Number(textOf(duration)),
    autoApply: autoApply === 1,
  }));
}

/** In the order of shown_of in lua/decide.lua. */
function readShown(reply: unknown[]) {
  const [, key24, , enabled, expires, name, meta, slugs, roles, limits, identity] = reply;
  const who = identity as [Buffer, Buffer, Buffer | null, unknown] | null;
  return {
    keyId: `key_${textOf(key24)}`,
    enabled: enabled === 1,
    expires: expires ? Number(textOf(expires)) : undefined,
    name: name ? textOf(name) : undefined,
    meta: meta ? new JsonText(textOf(meta)) : undefined,
    permissions: (slugs as Buffer[]).map(textOf),
    roles: (roles as Buffer[]).map(textOf),
    ratelimits: readRatelimits(limits),
    identity: who
      ? {
          id: `id_${textOf(who[0])}`,
          externalId: textOf(who[1]),
          meta: new JsonText(who[2] ? textOf(who[2]) : '{}'),
          ratelimits: readRatelimits(who[3]),
        }
      : undefined,
  };
}

function writeUInt56(buffer: Buffer, value: number, at: number) {
  buffer.writeUIntBE(Math.floor(value / 2 ** 32), at, 3);
  buffer.writeUInt32BE(value % 2 ** 32, at + 3);
}

const readUInt56 = (buffer: Buffer, at: number): number =>
  buffer.readUIntBE(at, 3) * 2 ** 32 + buffer.readUInt32BE(at + 3);
