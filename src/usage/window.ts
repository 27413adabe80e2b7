// Sums of many customers in order, within a bound of memory: those of the first customers after a place. Customers
// beyond the bound are left out: the next window begins at `upTo`. A place is an externalId, which has ASCII characters
// only, so the order is that of Redis.

import { countPlaces, spentPlace } from '../scripts/layout.ts';
import { type Counts, noCounts } from './days.ts';
import { Ordered } from './ordered.ts';
import { Steps } from './steps.ts';

/** Limit of the bytes of the names in a window. */
const nameBytesMax = 32 * 2 ** 20;
/** Customers whose counts are in one array: a longer one would have to be copied to grow. */
const blockRows = 1024;
/** The place of VALID in counts. */
const validPlace = 0;

export interface Customer {
  /** '' for keys without an identity. */
  externalId: string;
  counts: Counts;
  /** The VALID count of each API that is counted apart, and its credits spent. */
  apart: Counts;
}

export class CustomerWindow {
  /** The place after which it begins; undefined for the beginning. */
  readonly after: string | undefined;
  readonly #max: number;
  readonly #apart: readonly string[];
  /** Counts of a row. */
  readonly #width: number;
  /** The place up to which it has all customers; undefined for all. */
  #upTo: string | undefined;
  readonly #rows = new Ordered<number>();
  readonly #blocks: Float64Array[] = [];
  /** Rows of customers that were left out. */
  readonly #free: number[] = [];
  #nameBytes = 0;
  readonly #newRow = (): number => this.#takeRow();

  /** `max` is the limit of its customers, `apart` has the ids of APIs that are counted apart, too. */
  constructor(after: string | undefined, max: number, apart: readonly string[] = []) {
    this.after = after;
    this.#max = max;
    this.#apart = apart;
    this.#width = countPlaces + 2 * apart.length;
  }

  get upTo(): string | undefined {
    return this.#upTo;
  }

  get size(): number {
    return this.#rows.size;
  }

  /** Adds counts of a customer, if it is in the window. */
  add(place: string, counts: Counts, apiId = '') {
    if (this.after !== undefined && place <= this.after) return;
    if (this.#upTo !== undefined && place > this.#upTo) return;
    const before = this.#rows.size;
    const row = this.#rows.getOrAdd(place, this.#newRow);
    if (this.#rows.size > before) this.#nameBytes += place.length;
    const block = this.#blocks[Math.floor(row / blockRows)]!;
    const at = (row % blockRows) * this.#width;
    for (let index = 0; index < countPlaces; index++) block[at + index]! += counts[index]!;
    const api = this.#apart.indexOf(apiId);
    if (api < 0) return;
    block[at + countPlaces + 2 * api]! += counts[validPlace]!;
    block[at + countPlaces + 2 * api + 1]! += counts[spentPlace]!;
  }

  /** Leaves out the last customers if there are too many. It is called after some were added. */
  settle() {
    while (this.#rows.size > this.#max || this.#nameBytes > nameBytesMax) {
      for (const [place, row] of this.#rows.removeLast()) {
        this.#nameBytes -= place.length;
        this.#free.push(row);
      }
      this.#upTo = this.#rows.last()!;
    }
  }

  /** A row of zeros. */
  #takeRow(): number {
    const free = this.#free.pop();
    if (free !== undefined) {
      const at = (free % blockRows) * this.#width;
      this.#blocks[Math.floor(free / blockRows)]!.fill(0, at, at + this.#width);
      return free;
    }
    const row = this.#rows.size;
    if (row === this.#blocks.length * blockRows) this.#blocks.push(new Float64Array(blockRows * this.#width));
    return row;
  }

  /** Ends the window: nothing is added any more. Its pages are then in order without sorting. */
  async finish(): Promise<this> {
    const steps = new Steps();
    for (const _part of this.#rows.after(undefined)) if (steps.isOver) await steps.next();
    return this;
  }

  /** Whether the customers after a place begin in this window. */
  has(after: string | undefined): boolean {
    if (after === undefined) return this.after === undefined;
    return (this.after === undefined || after >= this.after) && (this.#upTo === undefined || after < this.#upTo);
  }

  /** A row for each of the customers after a place, in order. The object of a customer is used again. */
  page<Row>(after: string | undefined, limit: number, rowOf: (customer: Customer) => Row): Row[] {
    const page: Row[] = [];
    const customer: Customer = { externalId: '', counts: noCounts(), apart: [] };
    for (const places of this.#rows.after(after)) {
      for (const place of places) {
        if (page.length === limit) return page;
        this.#read(place, customer);
        page.push(rowOf(customer));
      }
    }
    return page;
  }

  /** All customers. Their object is used again. */
  *all(): Generator<Customer> {
    const customer: Customer = { externalId: '', counts: noCounts(), apart: [] };
    for (const places of this.#rows.after(undefined)) {
      for (const place of places) {
        this.#read(place, customer);
        yield customer;
      }
    }
  }

  #read(place: string, customer: Customer) {
    const row = this.#rows.get(place)!;
    const block = this.#blocks[Math.floor(row / blockRows)]!;
    const at = (row % blockRows) * this.#width;
    customer.externalId = place;
    for (let index = 0; index < countPlaces; index++) customer.counts[index] = block[at + index]!;
    for (let index = countPlaces; index < this.#width; index++)
      customer.apart[index - countPlaces] = block[at + index]!;
  }
}
