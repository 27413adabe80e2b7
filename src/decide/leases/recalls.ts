// Recalls of leases between processes: a process asks others to give leases back, and they acknowledge it when they
// have. A message may get lost, so the process that asks waits no longer than the leases last.

import { randomBytes } from 'node:crypto';
import type { RedisClient } from '../../redis/connection.ts';
import { echoChannel, recallChannel, recalledChannel } from '../../redis/names.ts';
import { Subscriber } from '../../redis/subscriber.ts';

/** A message to all processes. */
interface RecallMessage {
  id: string;
  /** The channel for acknowledgements. */
  to: string;
  workspaceId: string;
  sessions: string[];
  /** The leases to give back, `session.number`; all of the workspace if undefined. */
  leases?: string[];
}

interface RecallOptions {
  redis: RedisClient;
  session: string;
  /** Gives back leases of this process; resolves when they are settled. */
  recall: (workspaceId: string, numbers: ReadonlySet<number> | undefined) => Promise<void>;
}

/** A subscription that failed is tried again after this time. */
const subscribeAgainMs = 1000;

interface Waiting {
  sessions: Set<string>;
  finish: () => void;
}

export class Recalls {
  readonly #options: RecallOptions;
  readonly #replyChannel: string;
  readonly #waiting = new Map<string, Waiting>();
  readonly #subscriber: Subscriber;
  #subscribed: Promise<boolean> | undefined;

  constructor(options: RecallOptions) {
    this.#options = options;
    const id = randomBytes(8).toString('hex');
    this.#replyChannel = recalledChannel(id);
    this.#subscriber = new Subscriber(options.redis, echoChannel(id), (channel, text) => {
      if (channel === recallChannel) void this.#onRecall(JSON.parse(text) as RecallMessage);
      else this.#onAcknowledged(JSON.parse(text) as { id: string; session: string });
    });
  }

  /** Whether this process receives recalls. The first call subscribes. */
  get isListening(): boolean {
    void this.#listen();
    return this.#subscriber.isReady;
  }

  /**
   * Asks sessions to give leases back, and waits for each of them at most as many milliseconds as `waits` has for it.
   * Returns those that have not acknowledged it by then.
   */
  async send(workspaceId: string, waits: ReadonlyMap<string, number>, leases?: string[]): Promise<Set<string>> {
    const startedAt = performance.now();
    const remaining = new Set(waits.keys());
    const silent = new Set<string>();
    const id = randomBytes(8).toString('hex');
    const answered = new Promise<void>((finish) => this.#waiting.set(id, { sessions: remaining, finish }));
    const message: RecallMessage = {
      id,
      to: this.#replyChannel,
      workspaceId,
      sessions: [...waits.keys()],
      ...(leases && { leases }),
    };
    const publish = async () => {
      if (await this.#listen()) await this.#options.redis.publish(recallChannel, JSON.stringify(message));
      await answered;
    };
    const timers: NodeJS.Timeout[] = [];
    const ended = new Promise<void>((resolve) => {
      for (const [session, waitMs] of waits) {
        const end = () => {
          if (remaining.delete(session)) silent.add(session);
          if (remaining.size === 0) resolve();
        };
        timers.push(setTimeout(end, Math.max(0, startedAt + waitMs - performance.now())));
      }
    });
    // If the recall fails, the leases end by themselves.
    await Promise.race([publish().catch(() => ended), ended]);
    for (const timer of timers) clearTimeout(timer);
    this.#waiting.delete(id);
    return silent;
  }

  close() {
    this.#subscriber.close();
  }

  #listen(): Promise<boolean> {
    this.#subscribed ??= this.#subscriber.subscribe(recallChannel, this.#replyChannel).then(
      () => true,
      () => {
        // Later, because otherwise every request would try, even if the account may not use channels.
        setTimeout(() => (this.#subscribed = undefined), subscribeAgainMs).unref();
        return false;
      },
    );
    return this.#subscribed;
  }

  async #onRecall({ id, to, workspaceId, sessions, leases }: RecallMessage) {
    const { session, recall, redis } = this.#options;
    if (!sessions.includes(session)) return;
    const own = leases
      ?.filter((name) => name.startsWith(`${session}.`))
      .map((name) => Number(name.slice(session.length + 1)));
    try {
      await recall(workspaceId, own && new Set(own));
      await redis.publish(to, JSON.stringify({ id, session }));
    } catch {
      // The process that asked waits until the leases have ended.
    }
  }

  #onAcknowledged({ id, session }: { id: string; session: string }) {
    const waiting = this.#waiting.get(id);
    if (!waiting) return;
    waiting.sessions.delete(session);
    if (waiting.sessions.size === 0) waiting.finish();
  }
}
