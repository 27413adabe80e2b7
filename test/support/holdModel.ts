// A simple model of holds, credits of keys and identities, and the windows and slots of limits. Each charge of a window
// is a record of its own, which ends with its slice, and each taken slot one that ends by itself.

import { expect } from 'vitest';
import { periodAt, quotaCodes, quotaOf } from '../../src/domain/quota.ts';
import { dayMs, hourMs } from './harness.ts';

export interface ModelLimit {
  name: string;
  limit: number;
  /** Of a quota its code. */
  duration: number;
  autoApply: boolean;
  type?: 'concurrency' | undefined;
  /** Of a temporary one: its end, and what applies then. */
  until?: number | undefined;
  former?: { limit: number; duration: number; autoApply: boolean } | undefined;
}
/** A limit as a change has it; `null` makes it permanent. */
export type ChangedLimit = Omit<ModelLimit, 'until' | 'former'> & { until?: number | null | undefined };
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
/** Slots of one limit, which are in the list of all that are taken of it. */
interface HeldSlots {
  name: string;
  ofIdentity: boolean;
  taken: Charge;
  all: Charge[];
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
  slots: HeldSlots[];
  /** The identity whose balance was charged, and the number of that; `alone`: the key was not. */
  shared: SharedBalance | undefined;
  sharedBalances: number;
  alone: boolean;
  /** That of the key, when it was made. */
  identity: string | undefined;
  tags: string[];
}
interface Settled {
  at: number;
  late: boolean;
  cost: number;
  balance: number | undefined;
  shared: number | undefined;
  windows: { name: string; units: number }[];
}
type Shown = [credits: number | undefined, debt: number | undefined];
interface Balance {
  balance: number;
  balances: number;
  refill: { amount: number } | undefined;
  refillDue: number;
  /** What the balance that it has now was given. */
  granted: number;
  spentOfBalance: number;
}
/** An identity. One that is deleted and created again is another one. */
export interface SharedBalance extends Balance {
  /** Whether it has a balance. */
  exists: boolean;
  limits: ModelLimit[];
}
export interface HeldKey extends Balance {
  keyId: string;
  key: string;
  apiId: string;
  limits: ModelLimit[];
  identity: string | undefined;
  limited: boolean;
  enabled: boolean;
  deleted: boolean;
  spent: number;
  /** Under '' what is counted by no tag. */
  spentByTag: Record<string, number>;
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
  readonly #identities = new Map<string, SharedBalance>();
  /** Hours in which a VALID verification counted a tag: credits of holds are counted by tag in these only. */
  readonly #tagged = new Set<string>();

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
      spentByTag: {},
      granted: made.balance ?? 0,
      spentOfBalance: 0,
    };
    this.#keys.push(key);
    return key;
  }

  /** Sets the limits of a key or an identity. Returns the status. */
  setLimits(of: { limits: ModelLimit[] }, limits: readonly ChangedLimit[]): number {
    const before = new Map(this.#current(of).map((limit) => [limit.name, limit]));
    const changed = limits.map((limit) => this.#withEnd(limit, before.get(limit.name)));
    if (changed.includes(undefined)) return 400;
    of.limits = changed as ModelLimit[];
    return 200;
  }

  /** Changes one limit that exists, with the values that are given. */
  setLimit(of: { limits: ModelLimit[] }, change: Partial<ChangedLimit> & { name: string }): number {
    const limits = this.#current(of);
    const others: ChangedLimit[] = limits.map(({ former: _, ...limit }) => limit);
    return this.setLimits(
      of,
      others.map((limit) => (limit.name === change.name ? { ...limit, until: undefined, ...change } : limit)),
    );
  }

  /**
   * A limit without a type keeps that of the one with its name. One without an end keeps it if its values are the same.
   * Undefined if its type is not that of what applies after its end.
   */
  #withEnd({ until, ...values }: ChangedLimit, before: ModelLimit | undefined): ModelLimit | undefined {
    const limit = { ...values, type: values.type ?? before?.type };
    const { name: _, type: _type, until: end, former, ...permanent } = before ?? { ...limit, until: undefined };
    const isSame = end !== undefined && limit.limit === before!.limit && limit.duration === before!.duration;
    if (until === null || (until === undefined && !(isSame && limit.type === before!.type))) return limit;
    if (until === undefined || until === end) return { ...limit, until: end, former };
    const then = !before || end !== undefined ? former : permanent;
    return then && limit.type !== before!.type ? undefined : { ...limit, until, former: then };
  }

  /** The limits in force: from its end on a temporary one is the former one, or none. */
  #current(of: { limits: ModelLimit[] }): ModelLimit[] {
    of.limits = of.limits.flatMap((limit) => {
      const { name, type, until, former } = limit;
      if (until === undefined || this.#clock.now < until) return [limit];
      return former ? [{ name, type, ...former }] : [];
    });
    return of.limits;
  }

  ownLimitsOf(key: HeldKey): ModelLimit[] {
    return this.#current(key);
  }

  identityLimitsOf(externalId: string | undefined): ModelLimit[] {
    const identity = this.#identities.get(externalId ?? '');
    return identity ? this.#current(identity) : [];
  }

  identity(externalId: string): SharedBalance {
    return this.#identities.get(externalId)!;
  }

  limitsOf(key: HeldKey): ModelLimit[] {
    return [...this.#current(key), ...this.identityLimitsOf(key.identity)];
  }

  /** Ids of holds of the key in this state. */
  idsOf(key: HeldKey, state: Hold['state']): string[] {
    return [...this.#holds].filter(([, hold]) => hold.key === key && hold.state === state).map(([id]) => id);
  }

  heldBy(holdId: string): { cost: number; windows: { name: string; units: number }[] } | undefined {
    return this.#holds.get(holdId) ?? this.#settled.get(holdId);
  }

  name({ hold }: Expected, holdId: string) {
    if (hold) this.#holds.set(holdId, hold);
  }

  /** The balance of the key itself. */
  creditsOf(key: HeldKey): Shown {
    return creditsFor(key.limited ? key.balance : undefined);
  }

  /** What a verification shows: of the key, else of its identity; then of its identity. */
  shownOf(key: HeldKey): [Shown, Shown] {
    const shared = this.sharedOf(key.identity)?.balance;
    return [creditsFor(key.limited ? key.balance : shared), creditsFor(shared)];
  }

  /** What the end of a hold shows. */
  #shownOfHold({ key, shared }: Hold): [Shown, Shown] {
    const left = this.#existing(shared)?.balance;
    return [creditsFor(key.limited ? key.balance : left), creditsFor(left)];
  }

  /** Creates an identity without a balance, also in the place of one of this name, whose keys have none then. */
  addIdentity(externalId: string, limits: ModelLimit[]) {
    const before = this.#identities.get(externalId);
    if (before) before.exists = false;
    for (const key of this.#keys) if (key.identity === externalId) key.identity = undefined;
    for (const [id, window] of this.#windows) {
      if (!id.startsWith(`${externalId} `)) continue;
      // Holds that took slots of it have none.
      window.length = 0;
      this.#windows.delete(id);
    }
    const none = { balance: 0, balances: 0, refill: undefined, refillDue: 0, granted: 0, spentOfBalance: 0 };
    this.#identities.set(externalId, { ...none, exists: false, limits });
  }

  /** The balance of an identity; undefined without one. */
  sharedOf = (externalId: string | undefined): SharedBalance | undefined =>
    this.#existing(this.#identities.get(externalId ?? ''));

  #existing(shared: SharedBalance | undefined): SharedBalance | undefined {
    if (!shared?.exists) return undefined;
    this.#refill(shared);
    return shared;
  }

  /** Sets or removes a balance; a refill of null is removed, of undefined stays. */
  setShared(externalId: string, remaining: number | undefined, refill?: { amount: number } | null) {
    const shared = this.#identities.get(externalId)!;
    this.#existing(shared);
    if (!shared.exists) shared.refill = undefined;
    shared.exists = remaining !== undefined;
    this.#setBalance(shared, remaining ?? 0);
    if (refill !== undefined) {
      shared.refill = refill ?? undefined;
      shared.refillDue = this.#nextDay();
    }
  }

  updateShared(externalId: string, operation: 'set' | 'increment' | 'decrement', value: number): number {
    if (operation === 'set') {
      this.setShared(externalId, value);
      return 200;
    }
    const shared = this.sharedOf(externalId);
    if (!shared) return 400;
    this.#change(shared, operation, value);
    return 200;
  }

  openOf(key: HeldKey) {
    return [...this.#holds]
      .filter(([, hold]) => hold.key === key && hold.state === 'open' && hold.due > this.#clock.now)
      .map(([id, { cost, due, shared, slots }]) => [
        id,
        key.limited || shared ? cost : undefined,
        due,
        slots.map(({ name, taken }) => `${name} ${taken.units}`).join(),
      ])
      .sort();
  }

  /** Deletes or restores a key. Its counters of ad hoc and former limits stay. */
  erase(key: HeldKey) {
    key.deleted = !key.deleted;
  }

  /** Granted is spent, held and left. */
  checkSums(key: HeldKey) {
    const open = [...this.#holds.values()].filter(({ state }) => state === 'open');
    const held = (holds: Hold[]) => holds.reduce((sum, { cost }) => sum + cost, 0);
    const own = open.filter((hold) => hold.key === key && hold.balances === key.balances && !hold.alone);
    if (key.limited) expect(key.granted).toBe(key.spentOfBalance + held(own) + key.balance);
    const shared = this.sharedOf(key.identity);
    const ofIdentity = open.filter((hold) => hold.shared === shared && hold.sharedBalances === shared?.balances);
    if (shared) expect(shared.granted).toBe(shared.spentOfBalance + held(ofIdentity) + shared.balance);
  }

  set(key: HeldKey, remaining: number | undefined) {
    if (key.limited) this.#refill(key);
    key.limited = remaining !== undefined;
    this.#setBalance(key, remaining ?? 0);
    if (remaining === undefined) key.refill = undefined;
  }

  updateCredits(key: HeldKey, operation: 'set' | 'increment' | 'decrement', value: number): number {
    if (key.deleted) return 404;
    if (key.limited) this.#refill(key);
    if (operation === 'set') {
      key.limited = true;
      this.#setBalance(key, value);
      return 200;
    }
    if (!key.limited) return 400;
    this.#change(key, operation, value);
    return 200;
  }

  #change(of: Balance, operation: 'increment' | 'decrement', value: number) {
    if (operation === 'decrement' && value > of.balance) {
      this.#setBalance(of, Math.min(0, of.balance));
      return;
    }
    const more = operation === 'increment' ? value : -value;
    of.balance += more;
    of.granted += more;
  }

  /** `tags` are counted of a verification with a hold only. */
  verify(
    key: HeldKey,
    wanted: Wanted[],
    cost: number,
    hold?: { ttl: number; onExpiry?: string; id?: string },
    tags: string[] = [],
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
    if (
      limits.some(
        (applying) => totalOf(applying.window, windowDuration(applying), now) + applying.units > applying.limit,
      )
    )
      return { status: 200, code: 'RATE_LIMITED' };
    const shared = this.sharedOf(key.identity);
    const charged = [...(key.limited ? [key] : []), ...(shared ? [shared] : [])];
    if (charged.some(({ balance }) => balance < cost)) return { status: 200, code: 'USAGE_EXCEEDED' };
    const windows: HeldWindow[] = [];
    const slots: HeldSlots[] = [];
    const taking = limits.filter(({ type, units }) => type && units > 0);
    const due = taking.length > 0 || hold ? expiryOf(now, hold?.ttl, taking) : undefined;
    for (const { name, window, limit, duration, units, type, ofIdentity } of limits) {
      if (type) {
        if (units === 0) continue;
        const taken = { units, end: slotEnd(due!, limit, duration) };
        window.push(taken);
        slots.push({ name, ofIdentity, taken, all: window });
        continue;
      }
      if (units > 0) charge(window, limit, duration, units, now);
      windows.push({ name, units, window, duration, isFine: limit <= 64 });
    }
    for (const each of charged) each.balance -= cost;
    const left = Object.fromEntries(
      limits.map((applying) => [
        applying.name + applying.duration,
        Math.max(0, applying.limit - totalOf(applying.window, windowDuration(applying), now)),
      ]),
    );
    if (due === undefined) {
      for (const each of charged) each.spentOfBalance += cost;
      if (charged.length > 0) this.#spend(key, cost, []);
      return { status: 200, code: 'VALID', left };
    }
    for (const tag of tags) this.#tagged.add(this.#taggedHour(key, tag));
    const held: Hold = {
      key,
      state: 'open',
      ownId: hold?.id ?? '',
      shape,
      at: now,
      due,
      cost: charged.length > 0 ? cost : 0,
      balances: key.balances,
      charges: hold?.onExpiry === 'charge',
      windows,
      slots,
      shared,
      sharedBalances: shared?.balances ?? 0,
      alone: !key.limited,
      identity: key.identity,
      // They count credits only.
      tags: charged.length > 0 ? tags : [],
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
  ): { status: number; late?: boolean; expires?: number; shown?: [Shown, Shown] } {
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
      const isSame =
        (credits ?? settled.cost) === settled.cost &&
        [...wanted].every(([name, units]) => named(settled.windows, name)?.units === units);
      const shown: [Shown, Shown] = [creditsFor(settled.balance ?? settled.shared), creditsFor(settled.shared)];
      return isSame ? { status: 200, late: settled.late, shown } : { status: 409 };
    }
    if (action === 'extend') {
      if (hold.state === 'released') return { status: 409 };
      this.#extend(hold, ttl);
      return { status: 200, expires: hold.due };
    }
    if (action === 'release') {
      if (hold.state === 'open') this.#release(hold, this.#clock.now);
      return { status: 200, late: false, shown: this.#shownOfHold(hold) };
    }
    if ([...wanted.keys()].some((name) => !named(hold.windows, name))) return { status: 412 };
    const late = hold.state === 'released';
    const unitsOf = (window: HeldWindow) =>
      (named(hold.windows, window.name) === window ? wanted.get(window.name) : undefined) ?? window.units;
    this.#settle(holdId, hold, credits ?? hold.cost, hold.windows.map(unitsOf));
    return { status: 200, late, shown: this.#shownOfHold(hold) };
  }

  /** Settles expired holds, and applies refills. */
  sweep() {
    for (const key of this.#keys) this.#expire(key);
    for (const key of this.#keys) if (!key.deleted && key.limited) this.#refill(key);
  }

  #look(key: HeldKey) {
    this.#expire(key);
    if (key.limited) this.#refill(key);
  }

  #expire(key: HeldKey) {
    const { now } = this.#clock;
    for (const [id, hold] of [...this.#holds].sort(([a, { due }], [b, other]) => due - other.due || bySuffix(a, b))) {
      if (hold.key !== key || hold.due > now) continue;
      // Refills are applied with the first that changes the balance.
      if (key.limited) this.#refill(key);
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

  /** Moves its slots, as far as they are still there. */
  #extend(hold: Hold, ttl: number) {
    const { now } = this.#clock;
    hold.slots = hold.slots.filter(({ all, taken }) => all.includes(taken));
    const limitOf = ({ name, ofIdentity }: HeldSlots) =>
      (ofIdentity ? this.identityLimitsOf(hold.identity) : this.#current(hold.key)).find(
        (limit) => limit.type && limit.name === name,
      );
    hold.due = expiryOf(
      now,
      ttl,
      hold.slots.flatMap((slots) => limitOf(slots) ?? []),
    );
    for (const slots of hold.slots) {
      const limit = limitOf(slots);
      slots.taken.end = limit ? slotEnd(hold.due, limit.limit, limit.duration) : hold.due;
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
    const balance = key.limited ? key.balance : undefined;
    const shared = this.#existing(hold.shared)?.balance;
    this.#settled.set(id, { at: this.#clock.now, late, cost, balance, shared, windows });
  }

  /** Charges these amounts in the place of what is held. */
  #give(hold: Hold, cost: number, units: number[]) {
    const { key, state, windows } = hold;
    const { now } = this.#clock;
    for (const { all, taken } of hold.slots) if (all.includes(taken)) all.splice(all.indexOf(taken), 1);
    hold.slots = [];
    for (const [index, held] of windows.entries()) {
      const more = units[index]! - (state === 'open' ? held.units : 0);
      if (more < 0) giveBack(held, hold.at, now, -more);
      else if (more > 0 && !isOver(held, hold.at, now))
        charge(held.window, Number.MAX_SAFE_INTEGER, held.duration, more, now);
    }
    const shared = this.#existing(hold.shared);
    const held = state === 'open' ? hold.cost : 0;
    if (shared) this.#giveCredits(shared, held, cost, state === 'open' && hold.sharedBalances === shared.balances);
    if (key.limited || shared) this.#spend(key, cost, hold.tags);
    if (!key.limited) return;
    this.#refill(key);
    const isOwn = state === 'open' && hold.balances === key.balances && !hold.alone;
    this.#giveCredits(key, hold.alone ? 0 : held, cost, isOwn);
  }

  /** `isOwn`: the balance is the one that was charged. */
  #giveCredits(of: Balance, held: number, cost: number, isOwn: boolean) {
    const returned = held - cost;
    if (isOwn || returned < 0) of.balance += returned;
    of.spentOfBalance += isOwn ? cost : Math.max(0, -returned);
  }

  #setBalance(of: Balance, balance: number) {
    of.balance = balance;
    of.balances++;
    of.granted = balance;
    of.spentOfBalance = 0;
  }

  #refill(of: Balance) {
    if (!of.refill || this.#clock.now < of.refillDue) return;
    of.refillDue = this.#nextDay();
    this.#setBalance(of, of.refill.amount);
  }

  #taggedHour = (key: HeldKey, tag: string) =>
    [Math.floor(this.#clock.now / hourMs), key.keyId, key.identity ?? '', tag].join(' ');

  #spend(key: HeldKey, cost: number, tags: string[]) {
    key.spent += cost;
    const counted = [...new Set(tags)].filter((tag) => this.#tagged.has(this.#taggedHour(key, tag)));
    for (const tag of counted.length > 0 ? counted : ['']) key.spentByTag[tag] = (key.spentByTag[tag] ?? 0) + cost;
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
    const applying: Applying[] = [];
    const seen = new Set<string>();
    const costs = new Map(wanted.map((each) => [each.name, each]));
    for (const [owner, limits] of [
      [key.keyId, this.#current(key)],
      [key.identity ?? '', this.identityLimitsOf(key.identity)],
    ] as const)
      for (const { name, limit, duration, autoApply, type } of limits) {
        if (seen.has(name)) continue;
        seen.add(name);
        let asked = costs.get(name);
        if (asked?.limit) {
          // It replaces the limit of the key, and leaves that of the identity as it is.
          if (owner === key.keyId) continue;
          asked = undefined;
        }
        if (asked || autoApply)
          applying.push({
            name,
            window: this.#window(owner, name, windowDuration({ duration, type })),
            limit,
            duration,
            type,
            ofIdentity: owner !== key.keyId,
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
          type: undefined,
          ofIdentity: false,
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

interface Applying {
  name: string;
  window: Charge[];
  limit: number;
  duration: number;
  type: 'concurrency' | undefined;
  ofIdentity: boolean;
  units: number;
}

/** Slots do not depend on the duration of their limit. */
const windowDuration = ({ duration, type }: { duration: number; type?: string | undefined }) => (type ? 0 : duration);

const sliceOf = (limit: number, duration: number) => (limit <= 64 ? 1 : (duration - (duration % 64)) / 64);
/** Rounded up to a slice. */
function slotEnd(due: number, limit: number, duration: number) {
  const slice = sliceOf(limit, duration);
  return Math.ceil(due / slice) * slice;
}

/** When a hold ends that takes slots of these limits: none of them is taken for longer than its duration. */
function expiryOf(now: number, ttl = dayMs, limits: readonly { limit: number; duration: number }[]) {
  let due = Math.min(now + ttl, ...limits.map(({ duration }) => now + duration));
  for (const { limit, duration } of limits) {
    const slice = sliceOf(limit, duration);
    if (slotEnd(due, limit, duration) > now + duration) due = Math.floor(due / slice) * slice;
  }
  return due;
}

/** The window that a settlement means by a name: the ad hoc one, which is the last, if the identity's has it, too. */
const named = <Window extends { name: string }>(windows: readonly Window[], name: string): Window | undefined =>
  windows.findLast((window) => window.name === name);

/** By the ends of the ids of holds: numbers first, in their order, as they are stored. */
function bySuffix(a: string, b: string): number {
  const [one, other] = [a, b].map((id) => id.slice('hold_'.length + 24));
  if (one!.startsWith('.') && other!.startsWith('.')) return Number(one!.slice(1)) - Number(other!.slice(1));
  return one! < other! ? -1 : 1;
}

export const creditsFor = (balance: number | undefined): Shown =>
  balance === undefined ? [undefined, undefined] : [Math.max(0, balance), balance < 0 ? -balance : undefined];

/** Units of a quota count until the end of their period. */
const countsUntil = (end: number, duration: number) => (duration < quotaCodes ? end + duration : end);
const totalOf = (window: Charge[], duration: number, now: number) =>
  window.filter(({ end }) => countsUntil(end, duration) > now).reduce((sum, { units }) => sum + units, 0);

/** Whether the period of a quota has ended in which a hold was made. */
const isOver = ({ duration }: HeldWindow, at: number, now: number) =>
  duration >= quotaCodes && sliceEnd(at, duration, false) <= now;

const sliceEnd = (at: number, duration: number, isFine: boolean) => {
  const quota = quotaOf(duration);
  if (quota) return periodAt(quota, at).end;
  const slice = sliceOf(isFine ? 64 : 65, duration);
  return at - (at % slice) + slice;
};

function charge(window: Charge[], limit: number, duration: number, units: number, now: number) {
  // A slice of which all units came back is gone.
  const ends = window.filter((each) => each.units > 0 && countsUntil(each.end, duration) > now).map(({ end }) => end);
  window.push({ units, end: Math.max(sliceEnd(now, duration, limit <= 64), ...ends) });
}

/**
 * Takes units out of the slice in which they were charged at that time, or later ones that end within a slice; out of
 * none once that slice has ended.
 */
function giveBack({ window, duration, isFine }: HeldWindow, at: number, now: number, units: number) {
  const earliest = sliceEnd(at, duration, isFine);
  if (countsUntil(earliest, duration) <= now) return;
  for (const each of [...window].sort((a, b) => a.end - b.end)) {
    if (each.end < earliest || each.end > (duration < quotaCodes ? at + sliceOf(65, duration) : earliest)) continue;
    const taken = Math.min(units, each.units);
    each.units -= taken;
    units -= taken;
  }
}
