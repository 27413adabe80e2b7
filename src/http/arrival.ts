// The memory of request bodies that arrive in several parts, or wait for the end of a turn. Other bodies need none.
//
// All such bodies of a process share one budget. A holder may use as much of it as it leaves free: the first holder up
// to a half, the next one up to a quarter, and so on. So one slow sender always leaves room for the others.
// A holder is the workspace of a root key that was accepted recently. All other callers share one holder.

/** The part of each body that is outside the budget, so that a short body passes even when the budget is full. */
const freeBytes = 4_096;

/** The budget of a process. It holds at least four bodies of the longest kind, so that a holder's share fits one. */
export const budgetBytesFor = (bodyBytesMax: number): number => Math.max(64 * 1024 * 1024, 4 * bodyBytesMax);

/** The holder that all callers share whose root key was not accepted recently. */
export const unknownCallers = '';

export class BodyBudget {
  #freeBytes: number;
  readonly #usedBytes = new Map<string, number>();

  constructor(bytes: number) {
    this.#freeBytes = bytes;
  }

  /** Returns false, and reserves nothing, when the holder would then use more than is left free. */
  reserve(holder: string, bytes: number): boolean {
    const used = (this.#usedBytes.get(holder) ?? 0) + bytes;
    if (used > this.#freeBytes - bytes) return false;
    this.#freeBytes -= bytes;
    this.#usedBytes.set(holder, used);
    return true;
  }

  release(holder: string, bytes: number) {
    this.#freeBytes += bytes;
    const left = this.#usedBytes.get(holder)! - bytes;
    if (left === 0) this.#usedBytes.delete(holder);
    else this.#usedBytes.set(holder, left);
  }
}

/** One body. Its buffer grows with the bytes that have arrived, not with the announced length. */
export class ArrivingBody {
  readonly #budget: BodyBudget;
  readonly #holder: string;
  /** No body grows beyond this: the announced length, or the longest that is accepted. */
  readonly #bytesMax: number;
  #buffer: Buffer = Buffer.alloc(0);
  #length = 0;
  #reserved = 0;

  constructor(budget: BodyBudget, holder: string, bytesMax: number) {
    this.#budget = budget;
    this.#holder = holder;
    this.#bytesMax = bytesMax;
  }

  get length(): number {
    return this.#length;
  }

  /** Copies a part. Returns false when the budget has no room for it. */
  add(part: ArrayBuffer): boolean {
    const length = this.#length + part.byteLength;
    if (length > this.#buffer.length && !this.#grow(length)) return false;
    this.#buffer.set(new Uint8Array(part), this.#length);
    this.#length = length;
    return true;
  }

  /** Takes a body that arrived in one part, and has to wait. Returns false when the budget has no room for it. */
  hold(body: Buffer): boolean {
    if (!this.#reserve(body.length)) return false;
    this.#buffer = body;
    this.#length = body.length;
    return true;
  }

  #grow(length: number): boolean {
    const size = Math.max(length, Math.min(2 * length, this.#bytesMax));
    if (!this.#reserve(size)) return false;
    const larger = Buffer.allocUnsafeSlow(size);
    larger.set(this.#buffer.subarray(0, this.#length));
    this.#buffer = larger;
    return true;
  }

  #reserve(size: number): boolean {
    const reserve = Math.max(0, size - freeBytes) - this.#reserved;
    if (reserve <= 0) return true;
    if (!this.#budget.reserve(this.#holder, reserve)) return false;
    this.#reserved += reserve;
    return true;
  }

  /** The bytes that have arrived. */
  get bytes(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }

  /** Releases the reserved bytes. To be called for every body. */
  release() {
    if (this.#reserved > 0) this.#budget.release(this.#holder, this.#reserved);
    this.#reserved = 0;
  }
}
