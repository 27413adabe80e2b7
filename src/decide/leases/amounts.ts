// How much is used of the windows and balances that leases of this process charge, as far as this process knows.
//
// Redis counts all units of a lease as used from its grant on. So each answer of Redis is corrected by what leases of
// this process hold and have not used, and decisions by leases count on from there: one server alone returns
// `remaining` and `credits` as Redis alone would. Charges of other servers are known with the next answer of Redis.

import { quotaCodes } from '../../domain/quota.ts';

/** A window or balance. */
class Amount {
  /** Digest of the key or identity that has it, or of the window itself if that belongs to a namespace. */
  readonly owner: string;
  /** Name of the window; '' for a balance. */
  readonly name: string;
  /** The duration of the window, in milliseconds; 0 for a balance. */
  readonly duration: number;
  /** Units that count now; for a balance, minus the balance. */
  used = 0;
  /** Units that were charged for leases of this process, and are neither used nor known to be returned. */
  held = 0;
  /** How many leases refer to it, and returns of leases that are not confirmed. */
  uses = 0;
  /** Increases with each change of `used`. */
  version = 0;
  /** The next one of the same owner. */
  next: Amount | undefined;

  constructor(owner: string, name: string, duration: number, next: Amount | undefined) {
    this.owner = owner;
    this.name = name;
    this.duration = duration;
    this.next = next;
  }
}

/** An amount in a decision, and what the decision charges to it. */
export interface DecidedAmount {
  owner: string;
  name: string;
  duration: number;
  /** 0 for a balance. */
  limit: number;
  /** The units left after the decision; below 0 if more than the limit is used. */
  left: number;
  units: number;
}

/** An amount in the decision that a lease repeats. */
export interface Charge {
  readonly amount: Amount;
  /** The charge of each decision by a lease of units. */
  readonly units: number;
  readonly limit: number;
  /** The version of the amount then. A lease without units repeats its decision for this version only. */
  readonly version: number;
}

/** The units left for decisions with this limit. */
export const leftOf = ({ amount, limit }: Charge): number =>
  amount.duration === 0 ? -amount.used : Math.max(0, limit - amount.used);

/**
 * The reset of a limit `elapsedMs` after a decision, at `atMs`. A cost that exceeds its limit never fits: its reset is
 * one duration from now, except that of a quota. The reset of an empty window is now.
 */
export function resetAfter(
  { amount, limit, units }: Charge,
  isExceeded: boolean,
  resetAtMs: number,
  elapsedMs: number,
  atMs: number,
) {
  const isNever = isExceeded && (limit === 0 || units > limit) && amount.duration < quotaCodes;
  return isNever ? resetAtMs + elapsedMs : Math.max(resetAtMs, atMs);
}

/** The amounts of a workspace that leases of this process charge. */
export class Amounts {
  /** The last amount of each owner; the others follow by `next`. */
  readonly #owners = new Map<string, Amount>();

  get isEmpty(): boolean {
    return this.#owners.size === 0;
  }

  /** Whether amounts of this owner are known. */
  concerns(owner: string): boolean {
    return this.#owners.has(owner);
  }

  /** The units left according to this process, after an answer of Redis; `left` are those of the answer. */
  corrected({ owner, name, duration, limit, left }: Omit<DecidedAmount, 'units'>): number {
    const amount = this.#find(owner, name, duration);
    const used = limit - left - (amount?.held ?? 0);
    if (amount && used !== amount.used) {
      amount.used = used;
      amount.version++;
    }
    return duration === 0 ? limit - used : Math.max(0, limit - used);
  }

  /** A charge of a lease, until `release`. */
  charge({ owner, name, duration, limit, left, units }: DecidedAmount): Charge {
    let amount = this.#find(owner, name, duration);
    if (!amount) {
      amount = new Amount(owner, name, duration, this.#owners.get(owner));
      amount.used = limit - left;
      this.#owners.set(owner, amount);
    }
    amount.uses++;
    return { amount, units, limit, version: amount.version };
  }

  release({ amount }: Charge) {
    amount.uses--;
    if (amount.uses > 0) return;
    const { owner, next } = amount;
    let before = this.#owners.get(owner);
    if (before === amount) {
      if (next) this.#owners.set(owner, next);
      else this.#owners.delete(owner);
      return;
    }
    while (before && before.next !== amount) before = before.next;
    if (before) before.next = next;
  }

  #find(owner: string, name: string, duration: number): Amount | undefined {
    let amount = this.#owners.get(owner);
    while (amount && (amount.duration !== duration || amount.name !== name)) amount = amount.next;
    return amount;
  }
}
