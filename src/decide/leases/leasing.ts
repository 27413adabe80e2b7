// Leases, their recalls between processes, and the wait of changes for them, put together. src/decide/leases/leases.ts
// describes the life of a lease.

import { randomBytes } from 'node:crypto';
import type { RedisClient } from '../../redis/connection.ts';
import { leaseSession } from '../../scripts/layout.ts';
import { Changes, type ChangesObserver, type ChangesOptions, waitFor } from './changes.ts';
import { type LeaseObserver, type LeaseOptions, Leases } from './leases.ts';
import { Recalls } from './recalls.ts';

export interface LeasingSettings {
  /** The longest term of a lease in milliseconds; 0 for none. */
  leaseMs: number;
  /** Whether keys with credits get leases of units. */
  leaseCredits: boolean;
  /** A lease is asked for from this many decisions in a term on. */
  leaseAfter?: number;
  /** For tests with a fixed clock: milliseconds added to the monotonic clock of leases. */
  leaseClockMs?: () => number;
}

interface LeasingOptions extends LeasingSettings {
  redis: RedisClient;
  settle: LeaseOptions['settle'];
  deactivate: ChangesOptions['deactivate'];
  observe?: (LeaseObserver & ChangesObserver) | undefined;
}

export class Leasing {
  readonly #options: LeasingOptions;
  readonly #session = randomBytes(8).toString('hex');
  readonly leases: Leases;
  readonly changes: Changes;
  readonly #recalls: Recalls;
  readonly #sessions: { stays: Buffer; leaves: Buffer };
  #connectedAt = performance.now();

  constructor(options: LeasingOptions) {
    const {
      redis,
      leaseMs,
      leaseCredits,
      leaseAfter = 12,
      leaseClockMs = () => 0,
      settle,
      deactivate,
      observe,
    } = options;
    this.#options = options;
    redis.on('ready', () => this.reconnected());
    // In a Cluster each node has a connection.
    redis.on('+node', (node: RedisClient) => node.on('ready', () => this.reconnected()));
    this.leases = new Leases({
      termMs: leaseMs,
      after: leaseAfter,
      nowMs: () => performance.now() + leaseClockMs(),
      mayAsk: () =>
        leaseMs > 0 && this.#recalls.isListening && performance.now() - this.#connectedAt > waitFor(leaseMs),
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
      termMs: leaseMs,
      deactivate,
      observe,
    });
    this.#sessions = { stays: this.#pack(leaseCredits, false), leaves: this.#pack(leaseCredits, true) };
  }

  /** A connection on which changes are made is back: perhaps to a Redis that has forgotten which leases are out. */
  reconnected() {
    this.#connectedAt = performance.now();
  }

  /** LEASE_SESSION, which a batch with items of leases has after its items. */
  sessionOf({ leaves }: { leaves: boolean }): Buffer {
    return leaves ? this.#sessions.leaves : this.#sessions.stays;
  }

  /**
   * Takes back the leases of a `leased` refusal, `session.number`, whose longest term this is; resolves when they
   * were settled, or have ended.
   */
  async recall(workspaceId: string, names: readonly string[], termMs: number): Promise<void> {
    // A process that does not hear of the recall settles a lease within a quarter of a term after its end; the rest is
    // for the way.
    const waitMs = waitFor(termMs) + termMs / 2;
    const isOwn = (name: string) => name.startsWith(`${this.#session}.`);
    const numberOf = (name: string) => Number(name.slice(name.indexOf('.') + 1));
    const own = names.filter(isOwn);
    const others = names.filter((name) => !isOwn(name));
    const sessions = [...new Set(others.map((name) => name.slice(0, name.indexOf('.'))))];
    let timer: NodeJS.Timeout | undefined;
    const ended = new Promise<void>((resolve) => (timer = setTimeout(resolve, waitMs)));
    const settled = this.leases.recall(workspaceId, new Set(own.map(numberOf))).catch(() => ended);
    await Promise.all([
      Promise.race([settled, ended]),
      sessions.length > 0 && this.#recalls.send(workspaceId, sessions, waitMs, others),
    ]);
    clearTimeout(timer);
  }

  async close(): Promise<void> {
    await this.leases.close();
    this.#recalls.close();
  }

  #pack(credits: boolean, leaves: boolean): Buffer {
    const values = { id: this.#session, term: this.#options.leaseMs, credits: credits ? 1 : 0, leaves: leaves ? 1 : 0 };
    const packed = Buffer.alloc(leaseSession.bytes);
    leaseSession.write(packed, 0, values);
    return packed;
  }
}
