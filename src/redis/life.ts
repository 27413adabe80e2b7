// How long Redis has forgotten nothing. A life of Redis is the time in which one process of it is the master without a
// break. It ends with the process, and when the process becomes a replica, whose data is that of another. In a new life
// the last writes may be missing.
//
// INFO names a life: by the id of the process, and the id of the history of its writes, which changes when a replica
// becomes a master. A process of Tollgate measures how long it has seen a life, by its monotonic clock, because the
// uptime that Redis reports is by a clock that may be set.
//
// A Redis that begins with every write of the one before it has forgotten nothing either, whatever its age: an embedded
// one that was stopped (redis/complete.ts). So its first life counts as old.

import { allEndedMs } from '../domain/leaseTerms.ts';
import type { RedisClient } from './connection.ts';
import { fieldsOf } from './facts.ts';

/** Hexadecimal digits of each id: enough that no two are equal. */
const idDigits = 16;

interface RedisLifeOptions {
  /** A monotonic clock in milliseconds. Tests replace it. */
  monotonicMs?: (() => number) | undefined;
  /** Whether Redis began with every write of the one before it, and is still the same process. */
  isComplete?: (() => boolean) | undefined;
}

export class RedisLife {
  readonly #redis: Pick<RedisClient, 'info' | 'isCluster'>;
  readonly #monotonicMs: () => number;
  readonly #isComplete: () => boolean;
  #hasLooked = false;
  #name: string | undefined;
  #since = 0;
  #ms = 0;

  constructor(redis: Pick<RedisClient, 'info' | 'isCluster'>, options: RedisLifeOptions = {}) {
    const { monotonicMs = () => performance.now(), isComplete = () => false } = options;
    this.#redis = redis;
    this.#monotonicMs = monotonicMs;
    this.#isComplete = isComplete;
  }

  /** The life that was seen last; undefined for a Cluster, and where INFO is not allowed. */
  get name(): string | undefined {
    return this.#name;
  }

  /** For how long Redis has forgotten nothing at least, in milliseconds. */
  get ms(): number {
    return this.#ms;
  }

  /** Reads which life it is now. Without a reply nothing is known any more. */
  async look(): Promise<void> {
    const askedAt = this.#monotonicMs();
    const name = await this.#nameNow().catch(() => undefined);
    if (name !== undefined && name === this.#name) {
      this.#ms = Math.max(this.#ms, Math.floor(askedAt - this.#since));
      return;
    }
    this.#name = name;
    this.#since = this.#monotonicMs();
    this.#ms = name !== undefined && !this.#hasLooked && this.#isComplete() ? allEndedMs : 0;
    this.#hasLooked = true;
  }

  async #nameNow(): Promise<string | undefined> {
    // A workspace may move from one node to another, which may have had another life.
    if (this.#redis.isCluster) return undefined;
    const [server, replication] = (
      await Promise.all([this.#redis.info('server'), this.#redis.info('replication')])
    ).map((text) => fieldsOf(text));
    const [id, history] = [server!.get('run_id'), replication!.get('master_replid')];
    if (!id || !history || replication!.get('role') !== 'master') return undefined;
    return id.slice(0, idDigits) + history.slice(0, idDigits);
  }
}
