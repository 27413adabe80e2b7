// The typed face of lua/decide.lua: verifications and limit checks. What arrives in one turn of the event loop goes to
// Redis as one call per workspace, so a busy server pays for one command where it had sixty; a lone request waits for
// nothing but the end of its turn.

import type { PresentedRootKey } from '../domain/caller.ts';
import type { PostfixQuery } from '../domain/permissionQuery.ts';
import { type Outcome, outcomes, type ShownText } from '../domain/verification.ts';
import { ApiError, rootKeyRefusals } from '../errors.ts';
import type { AcceptedRootKeys } from './accepted.ts';
import { type Answer, readReply, readUInt56, unreadable } from './decideReply.ts';
import { type Gathering, Lanes } from './lanes.ts';
import { storeError, tooManyRecords } from './redis.ts';
import type { Scripts } from './scripts.ts';
import { type CachedShown, noVersion, readTold, ShownCache } from './shown.ts';
import { areNumbers } from './slugs.ts';
import type { StoreObserver } from './store.ts';

export interface VerifyRequest {
  /** SHA-256 of the key string, a byte a character. */
  digest: string;
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
  /** When it was decided, on the clock that decides: Redis's. */
  atMs: number;
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

export interface Limited {
  passed: boolean;
  checks: LimitResult[];
  /** When it was decided, on the clock that decides: Redis's. */
  atMs: number;
}

export interface DecideOptions {
  scripts: Scripts;
  accepted: AcceptedRootKeys;
  /** The slugs of those lists of numbers. */
  slugsOf: (workspaceId: string, lists: readonly string[]) => Promise<string[]>;
  usageRetentionMs: number;
  tagsMax: number;
  tagBytesMax: number;
  identifiersMax: number;
  recordsMax: number;
  inFlightMax: number;
  commandTimeoutMs: number;
  /** For tests that hold the clock; '' is Redis's own. */
  now: () => number | '';
  observe?: StoreObserver | undefined;
}

/**
 * A batch goes out when it holds this many items, or as much work as this many plain ones. Larger ones would cost Redis a
 * little less each, but server and Redis would wait for one another: 24 served a fifth more at 64 connections than 64 did,
 * and as many as 16 did for less of Redis.
 */
const batchWeightMax = 24;

/**
 * While so much of a workspace is at Redis, its next batches wait: more than 64 connections of plain requests amount to. Less
 * would serve as many here, but fewer where Redis is milliseconds away, as this is what can be under way in a round trip.
 */
const workMax = 8 * batchWeightMax;

/** Counters that a key may have of limits that requests bring, as in lua/include/counters.lua. */
const countersMax = 1000;
/** Calls of newcomers that may be at Redis at once: a request of a known caller waits for some 64 short scripts at most. */
const newcomersAtOnce = 64;

const VERIFY = 1;
const LIMIT = 2;
/** Added to the outcome of a verification: the key's snapshot came with an earlier answer of the batch. */
const SHOWN_BEFORE = 128;
const PASSED = 10;
const BLOCKED = 11;
const FAILED = 30;
const refusals = [
  'unauthorized',
  'root_key_disabled',
  'root_key_expired',
  'insufficient_permissions',
  'limit_not_found',
  'namespace_not_found',
  'create_namespace',
  'too_many_counters',
  'too_many_records',
] as const;

/** Snapshots that came with answers of a batch, by the digest of the key: its other verifications have the same. */
type Brought = Map<string, ShownText | Promise<ShownText>>;

interface Waiting {
  /** Reads its answer; throws when that cannot be read. */
  settle(answer: Answer, brought: Brought): void;
  reject(error: unknown): void;
}

/** What gathers for a workspace in one turn of the event loop, packed as lua/decide.lua reads it. */
class Batch implements Gathering {
  readonly roots: Buffer[] = [];
  readonly waiting: Waiting[] = [];
  weight = 0;
  #items = Buffer.allocUnsafe(4096);
  #bytes = 0;

  get count(): number {
    return this.waiting.length;
  }

  fail(error: unknown) {
    for (const entry of this.waiting) entry.reject(error);
  }

  /** The items so far, from number `first` on. */
  itemsFrom(first: number): Buffer {
    let at = 0;
    for (let number = 0; number < first; number++) at += 4 + this.#items.readUInt32BE(at);
    return this.#items.subarray(at, this.#bytes);
  }

  /** Makes room for an item whose fields take so many bytes, writes its beginning, and answers where they go. */
  add(kind: number, root: Buffer, fieldBytes: number, weight: number, waiting: Waiting): { items: Buffer; at: number } {
    const needed = this.#bytes + 6 + fieldBytes;
    if (needed > this.#items.length) {
      const larger = Buffer.allocUnsafe(2 * needed);
      this.#items.copy(larger, 0, 0, this.#bytes);
      this.#items = larger;
    }
    // Callers have few root keys, and nearly always one.
    let rootIndex = this.roots.findIndex((known) => known === root || known.equals(root));
    if (rootIndex < 0) rootIndex = this.roots.push(root) - 1;
    const items = this.#items;
    items.writeUInt32BE(2 + fieldBytes, this.#bytes);
    items[this.#bytes + 4] = kind;
    items[this.#bytes + 5] = rootIndex + 1;
    const at = this.#bytes + 6;
    this.#bytes = needed;
    this.weight += weight;
    this.waiting.push(waiting);
    return { items, at };
  }
}

export function openDecide(options: DecideOptions) {
  const { scripts, accepted, slugsOf, usageRetentionMs, inFlightMax, commandTimeoutMs, now, observe } = options;
  const usageMax = `${options.tagsMax} ${options.tagBytesMax} ${options.identifiersMax} ${options.recordsMax}`;
  const shownCache = new ShownCache();
  const lanes = new Lanes({
    newBatch: () => new Batch(),
    send,
    weightMax: batchWeightMax,
    workMax,
    inFlightMax,
    newcomersAtOnce,
    waitMs: commandTimeoutMs,
    overloaded: () => observe?.overloaded(),
  });

  async function send(workspaceId: string, batch: Batch) {
    observe?.sent(batch.count);
    // A call that takes long leaves items for another one, so that other workspaces come between.
    for (let first = 0; first < batch.count; ) first += await sendFrom(first, workspaceId, batch);
  }

  /** Sends the items from number `first` on. Returns how many of them were decided: at least one. */
  async function sendFrom(first: number, workspaceId: string, batch: Batch): Promise<number> {
    const { roots, waiting } = batch;
    const digests = roots.length === 1 ? roots[0]! : Buffer.concat(roots);
    const args = [usageRetentionMs, usageMax, digests, batch.itemsFrom(first), now()];
    const reply = (await scripts.runPacked('decide', workspaceId, args)) as [Buffer, number, number, ...Buffer[]];
    const [packed, identifiers, tags, ...shown] = reply;
    const answers = readReply(packed, shown, waiting.length - first);
    if (identifiers + tags > 0) observe?.uncounted(identifiers, tags);
    const brought: Brought = new Map();
    for (const [index, answer] of answers.entries()) {
      const entry = waiting[first + index]!;
      try {
        entry.settle(answer, brought);
      } catch (cause) {
        // A bug of ours, in one answer: the others were decided and charged, and are returned.
        entry.reject(cause);
      }
    }
    return answers.length;
  }

  /** Reads what the script told of a key, and remembers it. */
  function tell(workspaceId: string, digest: string, packed: Buffer, known: CachedShown | undefined) {
    const told = readTold(packed);
    const remember = () => shownCache.add(workspaceId, digest, told, known);
    if (!areNumbers(told.shown.permissions)) return remember();
    return slugsOf(workspaceId, told.shown.permissions).then((slugs) => {
      told.shown.permissions = slugs;
      return remember();
    });
  }

  /** What the script refused, as an error. `ratelimits` are those that the request named. */
  function readRefusal(
    { packed, at, end, shown }: Answer,
    rootKey: PresentedRootKey,
    ratelimits: VerifyRequest['ratelimits'] = [],
  ): Error {
    const code = packed[at]!;
    if (end - at < 3 || packed.readUInt16BE(at + 1) !== end - at - 3 || shown) throw unreadable();
    const about = packed.toString('utf8', at + 3, end);
    if (code === FAILED) {
      return storeError(Object.assign(new Error(scripts.locate('decide', about)), { name: 'ReplyError' }));
    }
    const refusal = refusals[code - 20];
    switch (refusal) {
      case 'unauthorized':
      case 'root_key_disabled':
      case 'root_key_expired':
        accepted.note(rootKey, false);
        return rootKeyRefusals[refusal];
      case 'insufficient_permissions':
        return new ApiError('insufficient_permissions', `The root key lacks ${about}.`);
      case 'create_namespace':
        return new ApiError('insufficient_permissions', 'The root key lacks ratelimit.*.create_namespace.');
      case 'too_many_records':
        observe?.recordsRefused();
        return tooManyRecords(about);
      case 'namespace_not_found':
        return new ApiError('namespace_not_found', `There is no namespace ${JSON.stringify(about)}.`);
      case 'limit_not_found': {
        const name = JSON.stringify(about);
        return new ApiError('precondition_failed', `Neither the key nor its identity has a limit named ${name}.`);
      }
      case 'too_many_counters': {
        const location = `body.ratelimits[${ratelimits.findIndex(({ name }) => name === about)}].name`;
        const message = `needs a counter, and the key has ${countersMax} of limits that requests brought`;
        const fix = 'Bring limits of fewer names and durations, or wait until a duration has passed.';
        return new ApiError('invalid_input', `${location} ${message}.`, { fields: [{ location, message, fix }] });
      }
      default:
        return new Error(`decide: unknown outcome ${code}`);
    }
  }

  return {
    /** Verifications and limit checks that wait for Redis. */
    waiting: () => lanes.inFlight,

    verify(rootKey: PresentedRootKey, request: VerifyRequest): Promise<Verified> {
      const { workspaceId } = rootKey;
      const { digest, query, ratelimits, tags } = request;
      const known = shownCache.find(workspaceId, digest);
      const extras =
        query || ratelimits || tags
          ? Buffer.from(JSON.stringify({ query, limits: ratelimits?.map(limitItem), tags }))
          : none;
      const version = known?.version ?? noVersion;
      // What a verification names beyond its key costs a fraction of a plain one.
      const named = (ratelimits?.length ?? 0) + (query?.length ?? 0) + (tags?.length ?? 0);
      const weight = 1 + named / 4 + (known?.moreWork ?? 0);
      const isKnown = accepted.has(rootKey);

      return new Promise((resolve, reject) => {
        const { items, at } = lanes
          .join(workspaceId, isKnown)
          .add(VERIFY, rootKey.digest, 39 + version.length + extras.length, weight, {
            settle(answer, brought) {
              const code = answer.packed[answer.at]!;
              const outcome = outcomes[(code & ~SHOWN_BEFORE) - 1];
              if (outcome === undefined) return reject(readRefusal(answer, rootKey, ratelimits));
              const verified = readVerified(answer, outcome);
              observe?.verified(outcome);
              if (!isKnown) accepted.note(rootKey, true);
              let shown: Verified['shown'] | Promise<ShownText>;
              if (answer.shown) {
                shown = tell(workspaceId, digest, answer.shown, known);
                brought.set(digest, shown);
              } else if (code & SHOWN_BEFORE) {
                shown = brought.get(digest);
                if (!shown) throw new Error("The key's snapshot came with an answer that could not be read.");
              } else if (known && outcome !== 'NOT_FOUND') {
                // Confirmed in this very round trip: what was known stands.
                shown = shownCache.keep(digest, known);
              }
              const finish = (shown: Verified['shown']) => {
                verified.shown = shown;
                resolve(verified);
              };
              if (shown instanceof Promise) shown.then(finish, reject);
              else finish(shown);
            },
            reject,
          });
        writeBytes(items, digest, at);
        writeUInt56(items, request.cost, at + 32);
        writeBytes(items, version, at + 39);
        items.set(extras, at + 39 + version.length);
      });
    },

    /** One check, or several of which all pass or none is charged. */
    limit(rootKey: PresentedRootKey, checks: readonly LimitCheck[]): Promise<Limited> {
      const texts = checks.map(
        ({ namespace, identifier }) => [Buffer.from(namespace), Buffer.from(identifier)] as const,
      );
      const fieldBytes = texts.reduce(
        (sum, [namespace, identifier]) => sum + 25 + namespace.length + identifier.length,
        1,
      );
      const isKnown = accepted.has(rootKey);
      return new Promise((resolve, reject) => {
        const room = lanes.join(rootKey.workspaceId, isKnown).add(LIMIT, rootKey.digest, fieldBytes, checks.length, {
          settle(answer) {
            const code = answer.packed[answer.at]!;
            if (code !== PASSED && code !== BLOCKED) return reject(readRefusal(answer, rootKey));
            const limited = readLimited(answer);
            observe?.limited(code === PASSED);
            if (!isKnown) accepted.note(rootKey, true);
            resolve(limited);
          },
          reject,
        });
        const { items } = room;
        let { at } = room;
        items[at++] = checks.length;
        for (const [index, check] of checks.entries()) {
          writeUInt56(items, check.cost, at);
          writeUInt56(items, check.limit, at + 7);
          writeUInt56(items, check.durationMs, at + 14);
          at += 21;
          for (const text of texts[index]!) {
            items.writeUInt16BE(text.length, at);
            items.set(text, at + 2);
            at += 2 + text.length;
          }
        }
      });
    },
  };
}

const none = Buffer.alloc(0);

const limitItem = ({ name, cost, limit, duration }: NonNullable<VerifyRequest['ratelimits']>[number]) =>
  limit === undefined ? [name, cost] : [name, cost, limit, duration];

/** The decision; the key's snapshot comes from elsewhere. */
function readVerified({ packed, at, end, atMs, shown }: Answer, outcome: Outcome): Verified {
  if (outcome === 'NOT_FOUND') {
    if (end - at !== 1 || shown) throw unreadable();
    return { outcome, shown: undefined, credits: undefined, ratelimits: [], atMs };
  }
  const count = end - at < 10 ? 0 : packed[at + 9]!;
  if (end - at !== 10 + 16 * count) throw unreadable();
  const credits = packed[at + 1] === 1 ? readUInt56(packed, at + 2) : undefined;
  const ratelimits: LimitState[] = [];
  at += 10;
  for (let index = 0; index < count; index++, at += 16) {
    const which = packed[at]!;
    ratelimits.push({
      of: which <= 50 ? 'key' : which <= 150 ? 'identity' : 'request',
      index: (which - 1) % 100,
      exceeded: packed[at + 1] === 1,
      remaining: readUInt56(packed, at + 2),
      resetAtMs: readUInt56(packed, at + 9),
    });
  }
  return { outcome, shown: undefined, credits, ratelimits, atMs };
}

function readLimited({ packed, at, end, atMs, shown }: Answer): Limited {
  const passed = packed[at] === PASSED;
  const count = packed[at + 1]!;
  const checks: LimitResult[] = [];
  at += 2;
  for (let index = 0; index < count && at + 23 <= end; index++) {
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
  if (checks.length !== count || at !== end || shown) throw unreadable();
  return { passed, checks, atMs };
}

/** `text` has a byte a character. For so few of them, `write` would take ten times as long. */
function writeBytes(buffer: Buffer, text: string, at: number) {
  for (let index = 0; index < text.length; index++) buffer[at + index] = text.charCodeAt(index);
}

function writeUInt56(buffer: Buffer, value: number, at: number) {
  buffer.writeUIntBE(Math.floor(value / 2 ** 32), at, 3);
  buffer.writeUInt32BE(value % 2 ** 32, at + 3);
}
