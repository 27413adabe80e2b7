// Decisions as they happen, for listeners in any process (analytics.tail).
//
//   decide     `Decider` offers each decision while `isOpen`, which is one test per decision while nobody listens.
//   stream     Each stream of the workspace (a filter) takes it or not, and samples what it takes.
//   flush      Every 250 ms, what waits goes to the listeners of this process, and is published on the channel of the
//              workspace if other processes have listeners of this stream.
//   registry   Every two seconds each process reads which streams others want, and writes its own.
//   subscriber Receives what other processes publish, while this one has listeners.
//
// A change of a root key is published on the channel of its workspace, too: listeners then check their root key before
// they send more.
//
// Nothing waits for a listener: the server drops the connection of a slow one. A message that is lost is a gap in the
// tail.

import { randomBytes } from 'node:crypto';
import { mayTake } from '../../domain/share.ts';
import { ApiError } from '../../errors.ts';
import { type RedisClient, storeError } from '../../redis/connection.ts';
import { echoChannel, tailChannel } from '../../redis/names.ts';
import { Subscriber } from '../../redis/subscriber.ts';
import { TailRegistry, type WantedStream } from './registry.ts';
import { type EventName, type TailFilter, TailStream } from './stream.ts';

/** Where a decision was made. */
export type DecisionSource = 'redis' | 'lease';

interface TailListener {
  /** Takes the text of events; must not wait. */
  take(events: string): void;
  /** A root key of the workspace was changed. */
  rootKeysChanged(): void;
}

interface Heard {
  stream: TailStream;
  listeners: Set<TailListener>;
  isWantedElsewhere: boolean;
}

const flushMs = 250;
const readMs = 2000;
/** Limits of the listeners of a workspace in all processes, and of this process. */
const tailListenersMax = 10;
const ownListenersMax = 100;
/**
 * Besides its first listener, a workspace has at most an eighth of the places of this process that it leaves free. A
 * lone workspace has ten, ten workspaces five or six each, and the last places go to workspaces without a listener.
 */
const shareOfFree = 1 / 8;
/** Limit of a filter as JSON: the registry has it once per process. */
const filterBytesMax = 8192;

type Message = { from: string } & ({ filter: string; events: string } | { rootKeysChanged: true });

export class Tail {
  /** Whether any workspace has listeners, here or in another process. */
  isOpen = false;
  readonly #redis: RedisClient;
  readonly #server = randomBytes(8).toString('hex');
  readonly #registry: TailRegistry;
  /** By workspace, then by the text of the filter. */
  readonly #heard = new Map<string, Map<string, Heard>>();
  #elsewhere: readonly WantedStream[] = [];
  readonly #subscriber: Subscriber;
  #reading: NodeJS.Timeout | undefined;
  #flushing: NodeJS.Timeout | undefined;
  #flushes = 0;

  constructor(redis: RedisClient) {
    this.#redis = redis;
    this.#registry = new TailRegistry(redis, this.#server);
    this.#subscriber = new Subscriber(redis, echoChannel(this.#server), (channel, text) =>
      this.#onMessage(channel, text),
    );
  }

  /** Begins to read the streams of other processes. For processes that decide. */
  watch() {
    this.#reading ??= setInterval(() => this.refresh().catch(() => {}), readMs).unref();
  }

  /** Reads the streams of other processes, and writes those of this one. */
  async refresh(): Promise<void> {
    this.#elsewhere = await this.#registry.read();
    for (const streams of this.#heard.values()) for (const heard of streams.values()) heard.isWantedElsewhere = false;
    for (const { workspaceId, text } of this.#elsewhere) this.#hear(workspaceId, text).isWantedElsewhere = true;
    for (const [workspaceId, streams] of this.#heard) {
      for (const heard of streams.values()) this.#forgetUnused(workspaceId, heard);
    }
    await this.#registry.write(this.#own());
  }

  /** Adds a listener. Returns the function that removes it. */
  async listen(workspaceId: string, filter: TailFilter, listener: TailListener): Promise<() => void> {
    const text = JSON.stringify(filter);
    if (text.length > filterBytesMax) {
      throw new ApiError('invalid_input', 'The root key has grants for too many ids. Name one of them.', {
        fields: [],
      });
    }
    await this.refresh();
    this.#checkRoom(workspaceId);
    const heard = this.#hear(workspaceId, text);
    heard.listeners.add(listener);
    const stop = () => {
      if (!heard.listeners.delete(listener)) return;
      this.#forgetUnused(workspaceId, heard);
      this.#registry.write(this.#own()).catch(() => {});
      if (!this.#own().some((stream) => stream.workspaceId === workspaceId)) {
        this.#subscriber.unsubscribe(tailChannel(workspaceId));
      }
    };
    try {
      await this.#subscriber.subscribe(tailChannel(workspaceId));
      await this.#registry.write(this.#own());
    } catch (cause) {
      stop();
      throw storeError(cause);
    }
    return stop;
  }

  /**
   * Makes the listeners of the workspace in all processes check their root keys. Events that are published later arrive
   * after it. If Redis cannot be reached, other processes notice it with their next heartbeat.
   */
  async rootKeysChanged(workspaceId: string): Promise<void> {
    this.#checkListeners(workspaceId);
    const message: Message = { from: this.#server, rootKeysChanged: true };
    await this.#redis.publish(tailChannel(workspaceId), JSON.stringify(message)).catch(() => {});
  }

  #checkListeners(workspaceId: string) {
    for (const { listeners } of this.#heard.get(workspaceId)?.values() ?? [])
      for (const listener of listeners) listener.rootKeysChanged();
  }

  /** Offers a decision, while `isOpen`, to the streams of its workspace whose filter it `passes`. */
  offer(
    workspaceId: string,
    name: EventName,
    passes: (filter: TailFilter) => boolean,
    event: () => object,
    source: DecisionSource,
    latencyMs: number,
  ) {
    for (const { stream } of this.#heard.get(workspaceId)?.values() ?? []) {
      if (passes(stream.filter)) stream.offer(name, () => ({ ...event(), latencyMs: rounded(latencyMs), source }));
    }
  }

  async close(): Promise<void> {
    clearInterval(this.#reading);
    clearInterval(this.#flushing);
    this.#heard.clear();
    this.isOpen = false;
    this.#subscriber.close();
    await this.#registry.write([]).catch(() => {});
  }

  #own(): WantedStream[] {
    return [...this.#heard].flatMap(([workspaceId, streams]) =>
      [...streams.values()]
        .filter(({ listeners }) => listeners.size > 0)
        .map(({ stream, listeners }) => ({ workspaceId, text: stream.text, listeners: listeners.size })),
    );
  }

  #checkRoom(workspaceId: string) {
    const own = this.#own();
    const sum = (streams: readonly WantedStream[]) => streams.reduce((sum, { listeners }) => sum + listeners, 0);
    const ofWorkspace = (streams: readonly WantedStream[]) =>
      sum(streams.filter((stream) => stream.workspaceId === workspaceId));
    if (ofWorkspace([...own, ...this.#elsewhere]) >= tailListenersMax) {
      throw new ApiError('too_many_requests', `The workspace has ${tailListenersMax} listeners; close one of them.`);
    }
    if (!mayTake(ofWorkspace(own), sum(own), ownListenersMax, shareOfFree)) {
      throw new ApiError('too_many_requests', 'The server has too many listeners; retry later.');
    }
  }

  #hear(workspaceId: string, text: string): Heard {
    let streams = this.#heard.get(workspaceId);
    if (!streams) {
      streams = new Map();
      this.#heard.set(workspaceId, streams);
    }
    let heard = streams.get(text);
    if (!heard) {
      heard = { stream: new TailStream(text), listeners: new Set(), isWantedElsewhere: false };
      streams.set(text, heard);
    }
    this.isOpen = true;
    this.#flushing ??= setInterval(() => this.#flush(), flushMs).unref();
    return heard;
  }

  #forgetUnused(workspaceId: string, { stream, listeners, isWantedElsewhere }: Heard) {
    if (listeners.size > 0 || isWantedElsewhere) return;
    const streams = this.#heard.get(workspaceId);
    streams?.delete(stream.text);
    if (streams?.size === 0) this.#heard.delete(workspaceId);
    this.isOpen = this.#heard.size > 0;
    if (this.isOpen) return;
    clearInterval(this.#flushing);
    this.#flushing = undefined;
  }

  #flush() {
    const isNewSecond = ++this.#flushes % (1000 / flushMs) === 0;
    for (const [workspaceId, streams] of this.#heard) {
      for (const { stream, listeners, isWantedElsewhere } of streams.values()) {
        const events = stream.take();
        if (isNewSecond) stream.nextSecond();
        if (events === '') continue;
        for (const listener of listeners) listener.take(events);
        if (!isWantedElsewhere) continue;
        const message: Message = { from: this.#server, filter: stream.text, events };
        this.#redis.publish(tailChannel(workspaceId), JSON.stringify(message)).catch(() => {});
      }
    }
  }

  #onMessage(channel: string, text: string) {
    const message = JSON.parse(text) as Message;
    if (message.from === this.#server) return;
    const workspaceId = channel.slice(tailChannel('').length);
    if ('rootKeysChanged' in message) return this.#checkListeners(workspaceId);
    const { filter, events } = message;
    for (const listener of this.#heard.get(workspaceId)?.get(filter)?.listeners ?? []) listener.take(events);
  }
}

/** Milliseconds with three decimals. */
const rounded = (ms: number): number => Math.round(ms * 1000) / 1000;
