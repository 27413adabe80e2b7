// A circuit breaker between the server and Redis. Without it, every request to a Redis that hangs waits for the whole
// command timeout. A command that times out makes the breaker send a probe. If the probe has no reply after
// `confirmMs`, the breaker opens: commands fail immediately and are not sent. The first reply to a probe closes it.
//
// A timeout alone does not open it, because the server itself may have stalled: its timers then run before it reads the
// replies that are waiting in the socket. A lost connection does not open it either: its commands fail immediately
// anyway. Probes are independent of requests, so the first request after a quiet hour is not refused because of an old
// hang.

import { setTimeout as delay } from 'node:timers/promises';
import { storeError } from './connection.ts';

/** Time between two probes that fail immediately. */
const probePauseMs = 100;

/**
 * Maximum targets that are probed at a time. Requests to further targets wait for the command timeout, as without a
 * breaker.
 */
const targetsMax = 100;

interface BreakerOptions {
  /** Sends a command to a target; it fails after the command timeout. */
  probe(target: string): Promise<unknown>;
  /** A probe without a reply opens the breaker after this time. */
  confirmMs: number;
  /** The client was closed for good. */
  isClosed(): boolean;
  onEvent?: ((message: string) => void) | undefined;
}

/** Has a state per target: the Redis server, or in a Redis Cluster a workspace, because one node may hang alone. */
export class Breaker {
  readonly #options: BreakerOptions;
  /** Targets that are probed now, and whether the breaker is open for each. */
  readonly #probed = new Map<string, boolean>();

  constructor(options: BreakerOptions) {
    this.#options = options;
  }

  /** Throws while the breaker is open for this target. */
  check(target: string): void {
    if (this.#probed.size > 0 && this.#probed.get(target)) {
      throw storeError(new Error('Redis does not reply, so the command was not sent'));
    }
  }

  /** Call for every failed command. */
  failed(target: string, error: Error): void {
    if (error.message !== 'Command timed out') return;
    if (this.#probed.has(target) || this.#probed.size >= targetsMax) return;
    this.#probed.set(target, false);
    void this.#probeUntilReply(target);
  }

  async #probeUntilReply(target: string) {
    const { confirmMs, isClosed } = this.#options;
    const startedAt = performance.now();
    const confirmed = setTimeout(() => this.#open(target), confirmMs).unref();
    while (!isClosed() && !(await this.#replies(target))) await delay(probePauseMs, undefined, { ref: false });
    clearTimeout(confirmed);
    const wasOpen = this.#probed.get(target);
    this.#probed.delete(target);
    if (wasOpen && !isClosed()) {
      const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
      this.#options.onEvent?.(`Redis: it replies again, ${seconds} s after the first timeout`);
    }
  }

  async #replies(target: string): Promise<boolean> {
    try {
      await this.#options.probe(target);
      return true;
    } catch (error) {
      // An error reply is a reply: Redis does not hang. Commands report the error themselves.
      return (error as Error).name === 'ReplyError';
    }
  }

  #open(target: string) {
    this.#probed.set(target, true);
    this.#options.onEvent?.('Redis: it does not reply; commands fail at once until it does');
  }
}
