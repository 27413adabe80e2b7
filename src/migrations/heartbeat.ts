// Registers this process in Redis, with the data versions that it reads and writes, and learns the version of the data.
// Data is migrated only while every registered process supports the next version. A process that was paused for so long
// that its entry was removed may find data that it does not support; so it reads the version before its next script.
//
// The entry also has for how long the process has seen the same life of Redis (redis/life.ts). Processes that start
// later need it before they can have seen it themselves.

import { randomBytes } from 'node:crypto';
import { repeat } from '../domain/repeat.ts';
import { ApiError } from '../errors.ts';
import type { RedisClient } from '../redis/connection.ts';
import { RedisLife } from '../redis/life.ts';
import { serversKey } from '../redis/names.ts';
import { refusalOf } from '../redis/refusedWrites.ts';
import type { Run } from '../scripts/calls.ts';
import {
  type DataVersion,
  isUnsupported,
  type RunningMigration,
  readData,
  type StoredData,
  type Supported,
} from '../scripts/dataVersion.ts';

/** How often a process registers. */
const beatMs = 2_000;
/** How long an entry is kept without that, by Redis's clock. */
const lifeMs = 30_000;
/** After this time without a beat, by the monotonic clock, the version is read before the next script. */
const staleMs = 10_000;
/** Limit of the processes. */
export const serversMax = 512;

/** Another process, as it registered. */
export interface RegisteredServer {
  id: string;
  oldest: number;
  newest: number;
  release: string;
  /** The life of Redis that it sees, and how old that is at least, in milliseconds. */
  life?: string | undefined;
  lifeMs: number;
}

interface HeartbeatOptions {
  redis: RedisClient;
  run: Run;
  supported: Supported;
  /** Called once, when the data has a version that this process does not support. */
  onUnsupported?: ((error: Error) => void) | undefined;
  /** Whether Redis began with every write of the one before it: of the embedded one. */
  isComplete?: (() => boolean) | undefined;
  /** A monotonic clock in milliseconds. Tests replace it. */
  monotonicMs?: (() => number) | undefined;
}

export class Heartbeat implements DataVersion {
  /** The id of this process among the registered ones. */
  readonly id = randomBytes(8).toString('hex');
  readonly #options: HeartbeatOptions;
  readonly #monotonicMs: () => number;
  readonly #life: RedisLife;
  #data: StoredData;
  /** As of the last beat. */
  #others: RegisteredServer[] = [];
  #beatAt: number;
  #beating: Promise<RegisteredServer[]> | undefined;
  #unsupported: Error | undefined;
  #beats: ReturnType<typeof repeat> | undefined;
  #isClosed = false;

  /** `data` is what was read at the start. */
  constructor(data: StoredData, options: HeartbeatOptions) {
    this.#data = data;
    this.#options = options;
    this.#monotonicMs = options.monotonicMs ?? (() => performance.now());
    this.#beatAt = this.#monotonicMs();
    this.#life = new RedisLife(options.redis, { monotonicMs: this.#monotonicMs, isComplete: options.isComplete });
  }

  get current(): number {
    return this.#data.version;
  }

  get migration(): RunningMigration | undefined {
    return this.#data.migration;
  }

  /** Resolves when this process is registered and supports the data. */
  async start(): Promise<void> {
    await this.beat();
    this.#beats = repeat(beatMs, () => this.beat().catch(() => {}));
  }

  /** Registers, and reads the version of the data. Returns the other processes. Calls at the same time share one. */
  beat(): Promise<RegisteredServer[]> {
    this.#beating ??= this.#beatOnce().finally(() => {
      this.#beating = undefined;
    });
    return this.#beating;
  }

  /** How old Redis is at least, in milliseconds, by what this process and others have seen. */
  async redisAgeMs(): Promise<number> {
    await this.#life.look();
    const { name, ms } = this.#life;
    if (name === undefined) return 0;
    const seen = this.#others.filter(({ life }) => life === name).map(({ lifeMs }) => lifeMs);
    return Math.max(ms, ...seen);
  }

  async #beatOnce(): Promise<RegisteredServer[]> {
    const { redis, supported, isComplete, onUnsupported } = this.#options;
    const startedAt = this.#monotonicMs();
    try {
      const looked = this.#life.look();
      // The first look finds no age unless Redis is complete, so else the start of a process does not wait for it.
      if (this.#beats || isComplete?.()) await looked;
      // In this order: a process that migrates stores the target before it reads the entries. So it finds this entry,
      // or this process finds the target.
      const others = await this.#register();
      this.#others = others;
      this.#data = await readData(redis, supported);
      this.#beatAt = startedAt;
      return others;
    } catch (error) {
      if (isUnsupported(error) && !this.#unsupported) {
        this.#unsupported = error as Error;
        // At the start, the caller gets the error.
        if (this.#beats) onUnsupported?.(this.#unsupported);
      }
      throw error;
    }
  }

  async #register(): Promise<RegisteredServer[]> {
    const { run, supported } = this.#options;
    const { oldest, newest, release } = supported;
    const { name, ms } = this.#life;
    const seen = ms > 0 ? ` ${name} ${ms}` : '';
    const versions = this.#isClosed ? '' : `${oldest} ${newest} ${release}${seen}`;
    try {
      const [isRegistered, ...others] = await run('data/beat', serversKey, {
        server: this.id,
        versions,
        lifeMs,
        count: serversMax,
      });
      if (!isRegistered) throw new Error(`More than ${serversMax} processes of Tollgate use this Redis.`);
      return registeredIn(others);
    } catch (error) {
      // A full Redis serves reads. It cannot be migrated either.
      if (refusalOf(causeOf(error as Error))) return [];
      throw error;
    }
  }

  /**
   * A promise to wait for before a script; undefined if the version was read recently. Rejects if the data is not
   * supported. Without a reply of Redis the script may run: then nothing can be migrated.
   */
  fresh(): Promise<void> | undefined {
    if (this.#unsupported) return Promise.reject(refusedBy(this.#unsupported));
    if (this.#monotonicMs() - this.#beatAt < staleMs) return undefined;
    return this.beat().then(
      () => {},
      (error) => {
        if (isUnsupported(error)) throw refusedBy(error as Error);
        this.#beatAt = this.#monotonicMs() - staleMs + beatMs;
      },
    );
  }

  /** Removes the entry. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#beats?.stop();
    await this.#beating?.catch(() => {});
    await this.#register().catch(() => {});
  }
}

const refusedBy = (cause: Error) =>
  new ApiError('store_unavailable', 'The stored data is of a later release than this server.', { cause });

const causeOf = (error: Error): string => ((error.cause as Error | undefined) ?? error).message;

function registeredIn(flat: readonly string[]): RegisteredServer[] {
  const found: RegisteredServer[] = [];
  for (let at = 0; at < flat.length; at += 2) {
    const [oldest, newest, release, life, lifeMs = 0] = flat[at + 1]!.split(' ');
    const versions = { oldest: Number(oldest), newest: Number(newest), release: release! };
    found.push({ id: flat[at]!, ...versions, life, lifeMs: Number(lifeMs) });
  }
  return found;
}
