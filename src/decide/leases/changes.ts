// A change is answered when every lease that covers it has been returned, or has ended. A change takes back all leases
// of its workspace: they are asked for again with the next requests, which see the change.

import { setTimeout as sleep } from 'node:timers/promises';
import { addedTermMax, allEndedMs, waitFor } from '../../domain/leaseTerms.ts';
import { longestTerm } from '../../scripts/layout.ts';
import type { Leases } from './leases.ts';
import type { Recalls } from './recalls.ts';

export interface ChangesOptions {
  session: string;
  leases: Leases;
  recalls: Recalls;
  /** When Redis was connected last, by `performance.now()`. */
  connectedAt: () => number;
  /** How old Redis is at least, in milliseconds; 0 if it may have forgotten its last writes. */
  redisAgeMs: () => Promise<number>;
  /** The longest term that a server with these settings grants, without what is added for the distance to Redis. */
  termMs: number;
  /** Marks holders as inactive. */
  deactivate: (workspaceId: string, holders: readonly string[]) => Promise<unknown>;
  observe?: ChangesObserver | undefined;
}

export interface ChangesObserver {
  /** A change waited this long for leases. */
  waited(ms: number): void;
}

export class Changes {
  readonly #options: ChangesOptions;
  /** The longest term that a change found in the registry of any workspace. */
  #longestMs = 0;
  /** Workspaces that this process created, and when Redis had been connected last before that. */
  readonly #created = new Map<string, number>();

  constructor(options: ChangesOptions) {
    this.#options = options;
  }

  /** This process is about to create a workspace. There are no leases of it yet, so Redis cannot have forgotten any. */
  creating(workspaceId: string): void {
    this.#created.set(workspaceId, this.#options.connectedAt());
  }

  /**
   * Resolves when no process decides by the state before the change any more. `holders` are those of
   * lua/include/change.lua.
   */
  async changed(workspaceId: string, holders: readonly string[]): Promise<void> {
    const { session, leases, recalls, deactivate, observe } = this.#options;
    // The leases of this process end now, and what they leave is returned before the change is answered, if Redis
    // replies.
    const own = leases.recall(workspaceId).catch(() => {});
    const registered = holders.map(holderOf);
    const others = registered.filter(({ id }) => id !== session && id !== longestTerm);
    const longestMs = registered.find(({ id }) => id === longestTerm)?.termMs ?? 0;
    this.#longestMs = Math.max(this.#longestMs, longestMs);
    const startedAt = performance.now();
    const afterConnect = this.#waitAfterConnect(workspaceId, startedAt);
    if (others.length === 0 && afterConnect === undefined) return own;
    const waits = new Map(others.map(({ id, termMs }) => [id, waitFor(termMs)]));
    const silentIds = others.length === 0 ? new Set<string>() : await recalls.send(workspaceId, waits);
    await afterConnect;
    await own;
    observe?.waited(performance.now() - startedAt);
    const silent = others.filter(({ id }) => silentIds.has(id));
    if (silent.length > 0) {
      const holding = silent.map(({ holder }) => holder);
      await deactivate(workspaceId, holding).catch(() => {});
    }
  }

  /**
   * A Redis that was restarted may have lost the last entries of the registry. Leases that it does not know of end
   * after the longest term, which may be that of a server that is further away or has a longer LEASE_MS. Redis may have
   * lost this term of the workspace, too, so the longest term of any workspace counts, also if this process has no
   * leases. Nothing is lost in a Redis that is older than all leases, nor in a workspace that this process created
   * since it connected. Returns the promise to wait for; undefined if all these leases have ended.
   */
  #waitAfterConnect(workspaceId: string, nowMs: number): Promise<void> | undefined {
    const { termMs, connectedAt, redisAgeMs } = this.#options;
    if (this.#created.get(workspaceId) === connectedAt()) return undefined;
    const longest = Math.max(termMs, this.#longestMs);
    if (longest === 0) return undefined;
    const untilMs = connectedAt() + waitFor(longest + addedTermMax);
    if (nowMs >= untilMs) return undefined;
    // A timer has whole milliseconds, and may be one early.
    const rest = () => sleep(Math.ceil(untilMs - performance.now()) + 1);
    return redisAgeMs().then((ageMs) => (ageMs < allEndedMs ? rest() : undefined));
  }
}

function holderOf(holder: string): { holder: string; id: string; termMs: number } {
  const [id, term] = holder.split('.') as [string, string];
  return { holder, id, termMs: Number(term) };
}
