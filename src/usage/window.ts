// Sums of many customers in order, within a bound of memory: those of the first customers after a place. What is
// counted of customers beyond the bound is left out, and `upTo` says where: the next window begins there. A place is an
// externalId, which has ASCII characters only, so the order is that of Redis.

import { setImmediate as otherRequests } from 'node:timers/promises';
import { countPlaces } from '../scripts/layout.ts';
import type { Counts } from './days.ts';

/** Limit of the bytes of the names in a window. */
const nameBytesMax = 32 * 2 ** 20;
/** Customers that are looked at in one turn of the event loop. */
const turnStep = 20_000;
/** Customers that are sorted in one turn. */
const sortStep = 5000;
/** Customers of which the middle is taken to halve a window. */
const sampleMax = 1000;

export interface Customer {
  /** '' for keys without an identity. */
  externalId: string;
  counts: Counts;
}

export class CustomerWindow {
  /** The place after which it begins; undefined for the beginning. */
  readonly after: string | undefined;
  readonly #max: number;
  /** The place up to which it has all customers; undefined for all. */
  #upTo: string | undefined;
  #rows = new Map<string, number>();
  #counts = new Float64Array(1024 * countPlaces);
  #nameBytes = 0;
  /** Places in order, in parts. */
  #sorted: string[][] = [];

  /** `max` is the limit of its customers. */
  constructor(after: string | undefined, max: number) {
    this.after = after;
    this.#max = max;
  }

  get upTo(): string | undefined {
    return this.#upTo;
  }

  get size(): number {
    return this.#rows.size;
  }

  /** Adds counts of a customer, if it is in the window. */
  add(place: string, counts: Counts) {
    if (this.after !== undefined && place <= this.after) return;
    if (this.#upTo !== undefined && place > this.#upTo) return;
    let row = this.#rows.get(place);
    if (row === undefined) {
      row = this.#rows.size;
      this.#rows.set(place, row);
      this.#nameBytes += place.length;
      this.#reserve(row + 1);
    }
    const at = row * countPlaces;
    for (let index = 0; index < countPlaces; index++) this.#counts[at + index]! += counts[index]!;
  }

  /** Leaves out the last customers if there are too many. It is called after some were added. */
  settle(): Promise<void> | undefined {
    return this.#isFull() ? this.#halve() : undefined;
  }

  #isFull(): boolean {
    return this.#rows.size > this.#max || this.#nameBytes > nameBytesMax;
  }

  async #halve(): Promise<void> {
    while (this.#isFull()) {
      const every = Math.max(1, Math.floor(this.#rows.size / sampleMax));
      const sample: string[] = [];
      let index = 0;
      for (const place of this.#rows.keys()) if (index++ % every === 0) sample.push(place);
      sample.sort();
      this.#upTo = sample[Math.floor(sample.length / 2)]!;
      await this.#leaveOut();
    }
  }

  /** Leaves out what is after `upTo`. */
  async #leaveOut() {
    const [before, counts] = [this.#rows, this.#counts];
    this.#rows = new Map();
    this.#nameBytes = 0;
    let seen = 0;
    for (const [place, row] of before) {
      if (++seen % turnStep === 0) await otherRequests();
      if (place > this.#upTo!) continue;
      // A row moves forward only, so none is overwritten before it is moved.
      const next = this.#rows.size;
      this.#rows.set(place, next);
      this.#nameBytes += place.length;
      counts.copyWithin(next * countPlaces, row * countPlaces, (row + 1) * countPlaces);
    }
    counts.fill(0, this.#rows.size * countPlaces);
  }

  #reserve(rows: number) {
    if (rows * countPlaces <= this.#counts.length) return;
    const larger = new Float64Array(this.#counts.length * 2);
    larger.set(this.#counts);
    this.#counts = larger;
  }

  /** Ends the window: nothing is added any more. */
  async finish(): Promise<this> {
    const places = this.#rows.keys();
    for (let part = take(places, sortStep); part.length > 0; part = take(places, sortStep)) {
      this.#sorted.push(part.sort());
      await otherRequests();
    }
    return this;
  }

  /** Whether the customers after a place begin in this window. */
  has(after: string | undefined): boolean {
    if (after === undefined) return this.after === undefined;
    return (this.after === undefined || after >= this.after) && (this.#upTo === undefined || after < this.#upTo);
  }

  /** The customers after a place, in order. */
  page(after: string | undefined, limit: number): Customer[] {
    const heads = this.#sorted.map((places) => ({ places, at: after === undefined ? 0 : firstAfter(places, after) }));
    const page: Customer[] = [];
    while (page.length < limit) {
      let least: (typeof heads)[number] | undefined;
      for (const head of heads) {
        const place = head.places[head.at];
        if (place !== undefined && (!least || place < least.places[least.at]!)) least = head;
      }
      if (!least) break;
      page.push(this.#customer(least.places[least.at++]!));
    }
    return page;
  }

  /** All customers, in no order. */
  *all(): Generator<Customer> {
    for (const place of this.#rows.keys()) yield this.#customer(place);
  }

  #customer(place: string): Customer {
    const at = this.#rows.get(place)! * countPlaces;
    return { externalId: place, counts: [...this.#counts.subarray(at, at + countPlaces)] };
  }
}

function take(places: Iterator<string>, count: number): string[] {
  const taken: string[] = [];
  while (taken.length < count) {
    const { done, value } = places.next();
    if (done) break;
    taken.push(value);
  }
  return taken;
}

/** The index of the first place after another. */
function firstAfter(places: readonly string[], after: string): number {
  let [from, to] = [0, places.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (places[middle]! <= after) from = middle + 1;
    else to = middle;
  }
  return from;
}
