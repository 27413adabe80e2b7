// The streams of decisions that processes listen to: a hash in Redis with an entry per process that has listeners. Each
// serving process reads it every two seconds, with one command; it is usually empty. An entry that does not change is
// of a process that ended, so no clocks are compared.

import { orStoreError, type RedisClient } from '../../redis/connection.ts';
import { tailsKey } from '../../redis/names.ts';

/** A stream that a process wants: its workspace, its filter as JSON, and the number of listeners there. */
export interface WantedStream {
  workspaceId: string;
  text: string;
  listeners: number;
}

interface Entry {
  beat: number;
  streams: WantedStream[];
}

/** An entry that did not change for this long is forgotten. */
const silentMs = 10_000;
/** The hash expires after this long without a write. */
const expiresMs = 60_000;

export class TailRegistry {
  readonly #redis: RedisClient;
  readonly #server: string;
  #beat = 0;
  #isWritten = false;
  /** The last entry of each other process, and when it changed, by a monotonic clock. */
  readonly #others = new Map<string, { entry: string; changedAt: number }>();

  constructor(redis: RedisClient, server: string) {
    this.#redis = redis;
    this.#server = server;
  }

  /** Writes the streams that this process listens to, if any. */
  async write(streams: readonly WantedStream[]): Promise<void> {
    if (streams.length > 0) {
      this.#isWritten = true;
      const entry = { beat: ++this.#beat, streams };
      await orStoreError(this.#redis.hset(tailsKey, this.#server, JSON.stringify(entry)));
      await orStoreError(this.#redis.pexpire(tailsKey, expiresMs));
    } else if (this.#isWritten) {
      await orStoreError(this.#redis.hdel(tailsKey, this.#server));
      this.#isWritten = false;
    }
  }

  /** Returns the streams that other processes listen to. */
  async read(): Promise<WantedStream[]> {
    const entries = await orStoreError(this.#redis.hgetall(tailsKey));
    const now = performance.now();
    for (const server of this.#others.keys()) if (entries[server] === undefined) this.#others.delete(server);
    const wanted: WantedStream[] = [];
    for (const [server, entry] of Object.entries(entries)) {
      if (server === this.#server) continue;
      const known = this.#others.get(server);
      if (known?.entry !== entry) this.#others.set(server, { entry, changedAt: now });
      else if (now - known.changedAt > silentMs) {
        await orStoreError(this.#redis.hdel(tailsKey, server));
        continue;
      }
      wanted.push(...(JSON.parse(entry) as Entry).streams);
    }
    return wanted;
  }
}
