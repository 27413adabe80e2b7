// A simple model of holds, credits and the windows of limits. Each charge of a window is a record of its own, which
// ends with its slice.

import { expect } from 'vitest';
import { dayMs, hourMs } from './harness.ts';

export interface ModelLimit {
  name: string;
  limit: number;
  duration: number;
  autoApply: boolean;
}
/** A limit in a request; with `limit` it is of the request. */
export interface Wanted {
  name: string;
  cost: number;
  limit?: number;
  duration?: number;
}
interface Charge {
  units: number;
  end: number;
}
interface HeldWindow {
  name: string;
  units: number;
  isFine: boolean;
  window: Charge[];
  duration: number;
}
interface Hold {
  key: HeldKey;
  state: 'open' | 'released';
  ownId: string;
  shape: string;
  at: number;
  due: number;
  cost: number;
  /** The number of the balance that was charged. */
  balances: number;
  charges: boolean;
  windows: HeldWindow[];
}
interface Settled {
  at: number;
  late: boolean;
  cost: number;
  balance: number | undefined;
  windows: { name: string; units: number }[];
}
export interface HeldKey {
  keyId: string;
  key: string;
  apiId: string;
  limits: ModelLimit[];
  identity: string | undefined;
  limited: boolean;
  balance: number;
  balances: number;
  refill: { amount: number } | undefined;
  refillDue: number;
  enabled: boolean;
  deleted: boolean;
  spent: number;
  /** What the balance that it has now was given. */
  granted: number;
  spentOfBalance: number;
}
export interface Expected {
  status: number;
  code?: string | undefined;
  expires?: number | undefined;
  left?: Record<string, number> | undefined;
  hold?: Hold | undefined;
}

export class HoldModel {
  readonly #clock: { now: number };
  readonly startMs: number;
  readonly #windows = new Map<string, Charge[]>();
  /** By id: open and released holds, and settlements. */
  readonly #holds = new Map<string, Hold>();
  readonly #settled = new Map<string, Settled>();
  readonly #keys: HeldKey[] = [];
  identityLimits: ModelLimit[] = [];

  constructor(clock: { now: number }) {
    this.#clock = clock;
    this.startMs = clock.now;
  }

  addKey(
    made: Pick<HeldKey, 'keyId' | 'key' | 'apiId' | 'limits' | 'identity' | 'refill'> & { balance: number | undefined },
  ) {
    const key: HeldKey = {
      ...made,
      limited: made.balance !== undefined,
      balance: made.balance ?? 0,
      balances: 0,
      refillDue: this.#nextDay(),
      enabled: true,
      deleted: false,
      spent: 0,
      granted: made.balance ?? 0,
      spentOfBalance: 0,
    };
    this.#keys.push(key);
    return key;
  }

  limitsOf(key: HeldKey): ModelLimit[] {
    return [...key.limits, ...(key.identity ? this.identityLimits : [])];
  }

  heldBy(holdId: string): { cost: number; windows: { name: string; units: number }[] } | undefined {
    return this.#holds.get(holdId) ?? this.#settled.get(holdId);
  }

  name({ hold }: Expected, holdId: string) {
    if (hold) this.#holds.set(holdId, hold);
  }

  creditsOf(key: HeldKey): [number | undefined, number | undefined] {
    if (!key.limited) return [undefined, undefined];
    return [Math.max(0, key.balance), key.balance < 0 ? -key.balance : undefined];
  }

  openOf(key: HeldKey) {
    return [...this.#holds]
      .filter(([, hold]) => hold.key === key && hold.state === 'open' && hold.due > this.#clock.now)
      .map(([id, { cost, due }]) => [id, key.limited ? cost : undefined, due])
      .sort();
  }

  /** Deletes or restores a key. Its counters of ad hoc and former limits are erased with it. */
  erase(key: HeldKey) {
    key.deleted = !key.deleted;
    const kept = new Set(key.limits.map(({ name, duration }) => `${key.keyId} ${name} ${duration}`));
    for (const [id, window] of this.#windows)
      if (key.deleted && id.startsWith(`${key.keyId} `) && !kept.has(id)) window.length = 0;
  }

  /** Granted is spent, held and left. */
  checkSums(key: HeldKey) {
    if (!key.limited) return;
    const own = [...this.#holds.values()].filter(
      (hold) => hold.key === key && hold.state === 'open' && hold.balances === key.balances,
    );
    const held = own.reduce((sum, { cost }) => sum + cost, 0);
    expect(key.granted).toBe(key.spentOfBalance + held + key.balance);
  }

  set(key: HeldKey, remaining: number | undefined) {
    this.#refill(key);
    key.limited = remaining !== undefined;
    this.#setBalance(key, remaining ?? 0);
    if (remaining === undefined) key.refill = undefined;
  }

  updateCredits(key: HeldKey, operation: 'set' | 'increment' | 'decrement', value: number): number {
    if (key.deleted) return 404;
    this.#refill(key);
    if (operation === 'set') {
      key.limited = true;
      this.#setBalance(key, value);
      return 200;
    }
    if (!key.limited) return 400;
    if (operation === 'decrement' && value > key.balance) this.#setBalance(key, Math.min(0, key.balance));
    else {
      const more = operation === 'increment' ? value : -value;
      key.balance += more;
      key.granted += more;
    }
    return 200;
  }

  verify(
    key: HeldKey,
    wanted: Wanted[],
    cost: number,
    hold?: { ttl: number; onExpiry?: string; id?: string },
  ): Expected {
    if (key.deleted) return { status: 200, code: 'NOT_FOUND' };
    this.#look(key);
    const shape = JSON.stringify([cost, wanted]);
    const repeated = hold?.id ? this.#repeated(key, hold.id, shape) : undefined;
    if (repeated?.status) return repeated as Expected;
    if (!key.enabled) return { status: 200, code: 'DISABLED' };
    const limits = this.#applying(key, wanted);
    if (repeated)
      return { status: 200, code: 'VALID', expires: repeated.expires, left: repeated.hold ? undefined : {} };
    const now = this.#clock.now;
    if (limits.some(({ window, limit, duration, units }) => totalOf(window, duration, now) + units > limit))
      return { status: 200, code: 'RATE_LIMITED' };
    if (key.limited && key.balance < cost) return { status: 200, code: 'USAGE_EXCEEDED' };
    const windows: HeldWindow[] = [];
    for (const { name, window, limit, duration, units } of limits) {
      if (units > 0) charge(window, limit, duration, units, now);
      windows.push({ name, units, window, duration, isFine: limit <= 64 });
    }
    if (key.limited) key.balance -= cost;
    const left = Object.fromEntries(
      limits.map(({ name, window, limit, duration }) => [
        name + duration,
        Math.max(0, limit - totalOf(window, duration, now)),
      ]),
    );
    if (!hold) {
      if (key.limited) this.#spend(key, cost);
      return { status: 200, code: 'VALID', left };
    }
    const held: Hold = {
      key,
      state: 'open',
      ownId: hold.id ?? '',
      shape,
      at: now,
      due: now + hold.ttl,
      cost: key.limited ? cost : 0,
      balances: key.balances,
      charges: hold.onExpiry === 'charge',
      windows,
    };
    return { status: 200, code: 'VALID', expires: held.due, left, hold: held };
  }

  change(
    holdId: string,
    action: string,
    {
      ttl,
      credits,
      ratelimits,
    }: { ttl: number; credits: number | undefined; ratelimits: { name: string; cost: number }[] },
  ): { status: number; late?: boolean; credits?: [number | undefined, number | undefined] } {
    const known = this.#holds.get(holdId);
    const key = known?.key ?? this.#keys.find(({ keyId }) => holdId.startsWith(`hold_${keyId.slice(4)}`));
    if (!key || key.deleted) return { status: 404 };
    this.#look(key);
    const hold = this.#holds.get(holdId);
    const wanted = new Map(ratelimits.map(({ name, cost }) => [name, cost]));
    if (!hold) {
      const settled = this.#settled.get(holdId);
      if (!settled || Math.floor(this.#clock.now / hourMs) - Math.floor(settled.at / hourMs) > 1)
        return { status: 404 };
      if (action !== 'settle') return { status: 409 };
      const names = settled.windows.map(({ name }) => name);
      const isSame =
        (credits ?? settled.cost) === settled.cost &&
        [...wanted.keys()].every((name) => names.includes(name)) &&
        settled.windows.every(({ name, units }) => (wanted.get(name) ?? units) === units);
      return isSame ? { status: 200, late: settled.late, credits: creditsFor(settled.balance) } : { status: 409 };
    }
    if (action === 'extend') {
      if (hold.state === 'released') return { status: 409 };
      hold.due = this.#clock.now + ttl;
      return { status: 200 };
    }
    if (action === 'release') {
      if (hold.state === 'open') this.#release(hold, this.#clock.now);
      return { status: 200, late: false, credits: this.creditsOf(key) };
    }
    if ([...wanted.keys()].some((name) => !hold.windows.some((window) => window.name === name))) return { status: 412 };
    const late = hold.state === 'released';
    this.#settle(
      holdId,
      hold,
      credits ?? hold.cost,
      hold.windows.map(({ name, units }) => wanted.get(name) ?? units),
    );
    return { status: 200, late, credits: this.creditsOf(key) };
  }

  /** Settles expired holds, and applies refills. */
  sweep() {
    for (const key of this.#keys) this.#expire(key);
    for (const key of this.#keys) if (!key.deleted) this.#refill(key);
  }

  #look(key: HeldKey) {
    this.#expire(key);
    this.#refill(key);
  }

  #expire(key: HeldKey) {
    const { now } = this.#clock;
    for (const [id, hold] of [...this.#holds].sort(([, a], [, b]) => a.due - b.due)) {
      if (hold.key !== key || hold.due > now) continue;
      // Refills are applied with the first that changes the balance.
      this.#refill(key);
      if (hold.state === 'released') this.#holds.delete(id);
      else if (hold.charges)
        this.#settle(
          id,
          hold,
          hold.cost,
          hold.windows.map(({ units }) => units),
        );
      else this.#release(hold, hold.due);
      if (hold.state === 'released' && hold.due <= now) this.#holds.delete(id);
    }
  }

  #release(hold: Hold, at: number) {
    this.#give(
      hold,
      0,
      hold.windows.map(() => 0),
    );
    hold.state = 'released';
    hold.due = at + dayMs;
  }

  #settle(id: string, hold: Hold, cost: number, units: number[]) {
    const late = hold.state === 'released';
    this.#give(hold, cost, units);
    this.#holds.delete(id);
    const { key } = hold;
    const windows = hold.windows.map(({ name }, index) => ({ name, units: units[index]! }));
    this.#settled.set(id, { at: this.#clock.now, late, cost, balance: key.limited ? key.balance : undefined, windows });
  }

  /** Charges these amounts in the place of what is held. */
  #give(hold: Hold, cost: number, units: number[]) {
    const { key, state, windows } = hold;
    const { now } = this.#clock;
    for (const [index, { isFine, units: held, window, duration }] of windows.entries()) {
      const more = units[index]! - (state === 'open' ? held : 0);
      if (more < 0) giveBack(window, hold.at, duration, isFine, -more);
      else if (more > 0) charge(window, Number.MAX_SAFE_INTEGER, duration, more, now);
    }
    if (!key.limited) return;
    this.#refill(key);
    const isOwn = state === 'open' && hold.balances === key.balances;
    const held = state === 'open' ? hold.cost : 0;
    const returned = held - cost;
    if (isOwn || returned < 0) key.balance += returned;
    key.spent += cost;
    key.spentOfBalance += isOwn ? cost : Math.max(0, -returned);
  }

  #spend(key: HeldKey, cost: number) {
    key.spent += cost;
    key.spentOfBalance += cost;
  }

  #setBalance(key: HeldKey, balance: number) {
    key.balance = balance;
    key.balances++;
    key.granted = balance;
    key.spentOfBalance = 0;
  }

  #refill(key: HeldKey) {
    if (!key.refill || !key.limited || this.#clock.now < key.refillDue) return;
    key.refillDue = this.#nextDay();
    this.#setBalance(key, key.refill.amount);
  }

  #nextDay = () => (Math.floor(this.#clock.now / dayMs) + 1) * dayMs;

  #repeated(key: HeldKey, id: string, shape: string): Partial<Expected> | undefined {
    for (const hold of this.#holds.values()) {
      if (hold.key !== key || hold.ownId !== id) continue;
      if (hold.state === 'released' || hold.shape !== shape) return { status: 409 };
      return { expires: hold.due, hold };
    }
    for (const [holdId, { at }] of this.#settled) {
      const isKnown = Math.floor(this.#clock.now / hourMs) - Math.floor(at / hourMs) <= 1;
      if (isKnown && holdId === `hold_${key.keyId.slice(4)}_${id}`) return { status: 409 };
    }
    return undefined;
  }

  /** The limits of a verification with what they charge. */
  #applying(key: HeldKey, wanted: Wanted[]) {
    const applying: { name: string; window: Charge[]; limit: number; duration: number; units: number }[] = [];
    const seen = new Set<string>();
    const costs = new Map(wanted.map((each) => [each.name, each]));
    for (const [owner, limits] of [
      [key.keyId, key.limits],
      [key.identity ?? '', key.identity ? this.identityLimits : []],
    ] as const)
      for (const { name, limit, duration, autoApply } of limits) {
        if (seen.has(name)) continue;
        seen.add(name);
        const asked = costs.get(name);
        if (asked || autoApply)
          applying.push({
            name,
            window: this.#window(owner, name, duration),
            limit,
            duration,
            units: asked?.cost ?? 1,
          });
      }
    for (const { name, cost, limit, duration } of wanted)
      if (limit)
        applying.push({
          name,
          window: this.#window(key.keyId, name, duration!),
          limit,
          duration: duration!,
          units: cost,
        });
    return applying;
  }

  #window(owner: string, name: string, duration: number): Charge[] {
    const id = `${owner} ${name} ${duration}`;
    const window = this.#windows.get(id) ?? [];
    this.#windows.set(id, window);
    return window;
  }
}

const creditsFor = (balance: number | undefined): [number | undefined, number | undefined] =>
  balance === undefined ? [undefined, undefined] : [Math.max(0, balance), balance < 0 ? -balance : undefined];

const totalOf = (window: Charge[], duration: number, now: number) =>
  window.filter(({ end }) => end + duration > now).reduce((sum, { units }) => sum + units, 0);

const sliceEnd = (at: number, duration: number, isFine: boolean) => {
  const slice = isFine ? 1 : (duration - (duration % 64)) / 64;
  return at - (at % slice) + slice;
};

function charge(window: Charge[], limit: number, duration: number, units: number, now: number) {
  const ends = window.filter(({ end }) => end + duration > now).map(({ end }) => end);
  window.push({ units, end: Math.max(sliceEnd(now, duration, limit <= 64), ...ends) });
}

/** Takes units out of the slice in which they were charged at that time, or later ones that end within a slice. */
function giveBack(window: Charge[], at: number, duration: number, isFine: boolean, units: number) {
  const earliest = sliceEnd(at, duration, isFine);
  for (const each of [...window].sort((a, b) => a.end - b.end)) {
    if (each.end < earliest || each.end > at + duration / 64) continue;
    const taken = Math.min(units, each.units);
    each.units -= taken;
    units -= taken;
  }
}
