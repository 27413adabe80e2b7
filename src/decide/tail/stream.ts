// The decisions of a workspace that pass a filter, sampled. Listeners with equal filters share a stream, and so do
// processes.

import type { Outcome } from '../../domain/verification.ts';

/** The filter of a listener. `true` is all ids. */
export interface TailFilter {
  /** Verifications; undefined for none. A NOT_FOUND has no API, so it passes for all APIs only. */
  verifications?: {
    apiIds: true | readonly string[];
    keyId?: string | undefined;
    externalId?: string | undefined;
    outcome?: Outcome | undefined;
  };
  /** Limit checks of namespaces, by the names and ids that requests use; undefined for none. */
  checks?: { namespaces: true | readonly string[] };
}

/** Events of a stream that a process sends in a second. With more decisions it sends one in n. */
const eventsPerSecond = 100;
/** Limit of the texts that wait for the next flush: tags may make an event long. */
const waitingBytesMax = 262_144;

export type EventName = 'verification' | 'ratelimit';

export class TailStream {
  readonly filter: TailFilter;
  readonly text: string;
  #waiting: string[] = [];
  #waitingBytes = 0;
  /** One in this many is sent. */
  #every = 1;
  #matched = 0;
  #sentAtThisRate = 0;

  /** `text` is the filter as JSON. */
  constructor(text: string) {
    this.text = text;
    this.filter = JSON.parse(text) as TailFilter;
  }

  /** Samples a decision that passes the filter. `event`, without the sample, is called for those that are sent. */
  offer(name: EventName, event: () => object) {
    if (++this.#matched % this.#every !== 0) return;
    if (this.#sentAtThisRate >= eventsPerSecond || this.#waitingBytes >= waitingBytesMax) {
      // From here on half as many are sent, so that a sudden flood adds a few hundred events, each with its own rate.
      this.#every *= 2;
      this.#sentAtThisRate = eventsPerSecond / 2;
      return;
    }
    this.#sentAtThisRate++;
    const data = JSON.stringify({ ...event(), sample: this.#every });
    const text = `event: ${name}\ndata: ${data}\n\n`;
    this.#waiting.push(text);
    this.#waitingBytes += text.length;
  }

  /** Returns the waiting events, and forgets them. */
  take(): string {
    if (this.#waiting.length === 0) return '';
    const text = this.#waiting.join('');
    this.#waiting = [];
    this.#waitingBytes = 0;
    return text;
  }

  /** Called every second: chooses the rate by the decisions of the last one. */
  nextSecond() {
    this.#every = Math.max(1, Math.ceil(this.#matched / eventsPerSecond));
    this.#matched = 0;
    this.#sentAtThisRate = 0;
  }
}
