// Leases, their recalls between processes, and the wait of changes for them, put together. src/decide/leases/leases.ts
// describes the life of a lease.

import { randomBytes } from 'node:crypto';
import { waitFor } from '../../domain/leaseTerms.ts';
import type { RedisClient } from '../../redis/connection.ts';
import { leaseSession } from '../../scripts/layout.ts';
import { Changes, type ChangesObserver, type ChangesOptions } from './changes.ts';
import { type LeaseObserver, type LeaseOptions, Leases } from './leases.ts';
import { Recalls } from './recalls.ts';
import { RoundTrip } from './roundTrip.ts';

export interface LeasingSettings {
  /** The term of a lease in milliseconds, without what is added for the distance to Redis; 0 for none. */
  leaseMs: number;
  /**
   * The term of a lease that charges nothing, or units of a limit or balance with much room. Values below `leaseMs` are
   * raised to it.
   */
  leaseLongMs?: number;
  /** Whether keys with credits get leases of units. */
  leaseCredits: boolean;
  /** A lease is asked for from this many decisions in a term on. */
  leaseAfter?: number;
  /** The monotonic clock of leases, for tests with a fixed clock. */
  leaseNowMs?: () => number;
}

interface LeasingOptions extends LeasingSettings {
  redis: RedisClient;
  settle: LeaseOptions['settle'];
  deactivate: ChangesOptions['deactivate'];
  /**
   * Whether terms may be longer than LEASE_MS: servers that read no data of this version do not wait for them after a
   * restart of Redis.
   */
  mayLengthen: () => boolean;
  redisAgeMs: ChangesOptions['redisAgeMs'];
  observe?: (LeaseObserver & ChangesObserver) | undefined;
}

export class Leasing {
  readonly #options: LeasingOptions;
  readonly #session = randomBytes(8).toString('hex');
  readonly leases: Leases;
  readonly changes: Changes;
  readonly #recalls: Recalls;
  readonly #roundTrip = new RoundTrip();
  /** The last LEASE_SESSION of a session that stays, and the values that it was packed with. */
  #stays: { addedMs: number; isLong: boolean; packed: Buffer };
  #connectedAt = performance.now();
  #isReconnected = false;

  constructor(options: LeasingOptions) {
    const { redis, leaseMs, leaseLongMs = 0, leaseAfter = 12, leaseNowMs = () => performance.now() } = options;
    const { settle, deactivate, mayLengthen, observe } = options;
    this.#options = options;
    const longMs = leaseMs === 0 ? 0 : Math.max(leaseMs, leaseLongMs);
    this.leases = new Leases({
      termMs: leaseMs,
      longMs: () => (mayLengthen() ? longMs : leaseMs),
      after: leaseAfter,
      nowMs: leaseNowMs,
      mayAsk: () =>
        leaseMs > 0 && this.#recalls.isListening && performance.now() - this.#connectedAt > waitFor(leaseMs),
      roundTripMs: () => this.#addedMs,
      settle,
      observe,
    });
    this.#recalls = new Recalls({
      redis,
      session: this.#session,
      recall: (workspaceId, numbers) => {
        this.leases.registered(workspaceId);
        return this.leases.recall(workspaceId, numbers);
      },
    });
    this.changes = new Changes({
      session: this.#session,
      leases: this.leases,
      recalls: this.#recalls,
      connectedAt: () => this.#connectedAt,
      // A Redis whose connections were lost may have been set back to an earlier state, whatever its age is.
      redisAgeMs: async () => (this.#isReconnected ? 0 : this.#options.redisAgeMs()),
      termMs: longMs,
      deactivate,
      observe,
    });
    this.#stays = { addedMs: 0, isLong: false, packed: this.#packed(0, false, 0) };
  }

  /** A connection on which changes are made was restored, perhaps to a Redis that has forgotten leases. */
  reconnected() {
    this.#isReconnected = true;
    this.#connectedAt = performance.now();
  }

  /** LEASE_SESSION, which a batch with items of leases has after its items. */
  sessionOf({ leaves }: { leaves: number }): Buffer {
    const addedMs = this.#addedMs;
    const isLong = this.#options.mayLengthen();
    if (leaves > 0) return this.#packed(addedMs, isLong, leaves);
    if (addedMs !== this.#stays.addedMs || isLong !== this.#stays.isLong)
      this.#stays = { addedMs, isLong, packed: this.#packed(addedMs, isLong, 0) };
    return this.#stays.packed;
  }

  /** A call to Redis took this long. */
  measured(ms: number) {
    this.#roundTrip.measured(ms, performance.now());
  }

  get #addedMs(): number {
    return this.#options.mayLengthen() ? this.#roundTrip.ms : 0;
  }

  /**
   * Takes back the leases that a `leased` refusal names (`session.number`); `termMs` is the longest of their terms.
   * Resolves when they were settled, or have ended.
   */
  async recall(workspaceId: string, names: readonly string[], termMs: number): Promise<void> {
    // A process that does not receive the recall settles a lease within a quarter of a term after its end; the rest is
    // for the way.
    const waitMs = waitFor(termMs) + termMs / 2;
    const isOwn = (name: string) => name.startsWith(`${this.#session}.`);
    const numberOf = (name: string) => Number(name.slice(name.indexOf('.') + 1));
    const own = names.filter(isOwn);
    const others = names.filter((name) => !isOwn(name));
    const waits = new Map(others.map((name) => [name.slice(0, name.indexOf('.')), waitMs]));
    let timer: NodeJS.Timeout | undefined;
    const ended = new Promise<void>((resolve) => (timer = setTimeout(resolve, waitMs)));
    const settled = this.leases.recall(workspaceId, new Set(own.map(numberOf))).catch(() => ended);
    await Promise.all([
      Promise.race([settled, ended]),
      waits.size > 0 && this.#recalls.send(workspaceId, waits, others),
    ]);
    clearTimeout(timer);
  }

  async close(): Promise<void> {
    await this.leases.close();
    this.#recalls.close();
  }

  #packed(addedMs: number, isLong: boolean, leaves: number): Buffer {
    const { leaseMs, leaseLongMs = 0, leaseCredits } = this.#options;
    const long = isLong ? leaseLongMs : 0;
    const credits = leaseCredits ? 1 : 0;
    const bytes = Buffer.alloc(leaseSession.bytes);
    leaseSession.write(bytes, 0, { id: this.#session, term: leaseMs, long, added: addedMs, credits, leaves });
    return bytes;
  }
}
