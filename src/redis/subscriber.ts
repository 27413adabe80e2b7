// A connection on which a process receives what others publish. A subscription sends nothing, so neither a Redis that
// hangs nor a master that was replaced is noticed by it. Therefore the process publishes echoes to itself on its other
// connection, and opens a new one if an echo does not arrive.

import { setTimeout as delay } from 'node:timers/promises';
import type { RedisClient } from './connection.ts';

/** Limit of connecting and subscribing: with Sentinel and Cluster, ioredis tries without end. */
const subscribeMs = 2000;
/** An echo that takes longer is lost. */
const echoMs = 1000;

/** How often an echo is published. */
const checkMs = 2000;

export class Subscriber {
  readonly #redis: RedisClient;
  readonly #echoChannel: string;
  readonly #onMessage: (channel: string, text: string) => void;
  readonly #channels = new Set<string>();
  #connection: Promise<RedisClient> | undefined;
  #checking: NodeJS.Timeout | undefined;
  /** The connection, while it seems to be subscribed to all channels. */
  #subscribed: RedisClient | undefined;
  /** When the last echo was published, by a monotonic clock; undefined when it has arrived. */
  #echoAt: number | undefined;

  constructor(redis: RedisClient, echoChannel: string, onMessage: (channel: string, text: string) => void) {
    this.#redis = redis;
    this.#echoChannel = echoChannel;
    this.#onMessage = onMessage;
  }

  /** Whether messages seem to arrive. */
  get isReady(): boolean {
    return this.#subscribed !== undefined;
  }

  async subscribe(...channels: string[]): Promise<void> {
    for (const channel of channels) this.#channels.add(channel);
    this.#checking ??= setInterval(() => this.#check(), checkMs).unref();
    const connection = await this.#connected();
    await inTime(connection.subscribe(...channels));
  }

  unsubscribe(channel: string) {
    this.#channels.delete(channel);
    if (this.#channels.size === 0) this.close();
    else this.#connection?.then((connection) => connection.unsubscribe(channel)).catch(() => {});
  }

  /** Replaces the connection if the last echo was lost, and publishes the next one. */
  #check() {
    if (this.#echoAt !== undefined) {
      if (performance.now() - this.#echoAt < echoMs) return;
      this.#disconnect();
    }
    this.#connected()
      .then(async () => {
        this.#echoAt = performance.now();
        await this.#redis.publish(this.#echoChannel, '');
      })
      // Without Redis there are no messages.
      .catch(() => {
        this.#echoAt = undefined;
      });
  }

  close() {
    clearInterval(this.#checking);
    this.#checking = undefined;
    this.#channels.clear();
    this.#disconnect();
  }

  #disconnect() {
    this.#connection?.then((connection) => connection.disconnect()).catch(() => {});
    this.#connection = undefined;
    this.#subscribed = undefined;
    this.#echoAt = undefined;
  }

  #connected(): Promise<RedisClient> {
    if (this.#connection) return this.#connection;
    const connection = this.#connect();
    this.#connection = connection;
    connection.catch(() => {
      if (this.#connection === connection) this.#connection = undefined;
    });
    return connection;
  }

  async #connect(): Promise<RedisClient> {
    const connection = this.#redis.duplicate();
    // The other connection reports what is wrong with Redis.
    connection.on('error', () => {});
    connection.on('message', (channel: string, text: string) => {
      if (channel === this.#echoChannel) this.#echoAt = undefined;
      else this.#onMessage(channel, text);
    });
    connection.on('close', () => {
      if (this.#subscribed === connection) this.#subscribed = undefined;
    });
    const subscribe = async () => {
      await connection.subscribe(this.#echoChannel, ...this.#channels);
      this.#subscribed = connection;
    };
    try {
      await inTime(connection.connect().then(subscribe));
      // ioredis connects again when the connection is lost.
      connection.on('ready', () => {
        subscribe().catch(() => {});
      });
      return connection;
    } catch (cause) {
      connection.disconnect();
      throw cause;
    }
  }
}

/** Rejects if it takes too long. */
async function inTime(subscribed: Promise<unknown>): Promise<void> {
  const late = delay(subscribeMs, undefined, { ref: false }).then(() => {
    throw new Error('The subscription was not confirmed in time.');
  });
  await Promise.race([subscribed, late]);
}
