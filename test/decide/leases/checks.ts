// The promises of leases, checked after every step of a run (world.ts) by what really happened.
//
// What is lost with Redis's last writes is not promised: a charge that was lost does not count, a change that was lost
// was not made. A step forward of Redis's clock is time that has passed: windows start again, and what was out at the
// step is admitted on top. A step back costs nothing.
import {
  type Ask,
  balanceOf,
  boundOf,
  type Change,
  type Charged,
  type Decided,
  drift,
  type Hold,
  hourMs,
  type Key,
  limitsOf,
  linked,
  type Owner,
  type RedisState,
  type Registered,
  type Setting,
  type Settlement,
  settleEvery,
  type Witness,
} from './model.ts';
import type { Lease, Session, Verification } from './session.ts';

interface Granted {
  session: string;
  key: number;
  keyId: string;
  count: number;
  charges: readonly Charged[];
  hasCredits: boolean;
  write: number;
  at: number;
  segment: number;
  /** Number of the balance of the key, by these checks. */
  era: number;
  /** How often the link of the key was changed before. */
  links: number;
  /** Granted to a connection that was lost before. */
  isBurnt: boolean;
  used: number;
  /** By owner. */
  returns: Map<string, { write: number; count: number }[]>;
}

interface Admission {
  at: number;
  segment: number;
  write: number;
  units: number;
  limit: number;
  /** Charged by the settlement of a hold, which asks no limit. */
  isAbove: boolean;
}

interface Held {
  era: number;
  /** The script run that ended it. */
  endedBy?: number;
  charges: readonly Charged[];
  admissions: Admission[];
}

interface Changed {
  keys: readonly number[];
  /** The number of the script run is the version of the key from then on. */
  write: number;
  /** The terms of the sessions for which it waits. */
  terms: ReadonlyMap<string, number>;
  repliedAt: number;
  answeredAt: number;
}

/** What the checks read of the world. */
export interface Observed {
  readonly setting: Setting;
  readonly now: number;
  /** Redis's clock. */
  readonly redisNow: number;
  /** Redis's clock as if it had never been stepped. */
  readonly redisElapsed: number;
  readonly redis: RedisState;
  /** Leases of a key by which a session would decide a moment later. */
  leasesOf(key: number): Lease[];
  /** Whether a session was ever paused, disconnected or slow. */
  isSlow(session: string): boolean;
  /** When a session connected last. */
  connectedAt(session: string): number;
  /** Until when a session was paused, disconnected, slow or killed. */
  faultUntil(session: string): number;
}

const broken = (promise: string, facts: object): never => {
  throw new Error(`${promise}: ${JSON.stringify(facts)}`);
};
/** Times are sums of fractions. */
const rounding = 1e-6;
/**
 * Room for the messages of a request that is decided after a recall, or after that of another: ten, of 3 ms at most
 * (explore.ts).
 */
const messagesMs = 30;

export class Checks implements Witness {
  private readonly world: Observed;
  /** Number of the last script run in Redis. */
  write = 0;
  private readonly lost: [number, number][] = [];
  private segment = 0;
  private scripts = 0;
  private scriptAt = 0;
  /** Whether the connection that sent the script is lost. */
  isFromDead = false;
  private faultAt = -1;
  private isRestarted = false;
  /** When the slices of an owner's windows moved. */
  private readonly ownerFaultAt = new Map<string, number>();
  private readonly grants = new Map<string, Granted>();
  /** By window. */
  private readonly admissions = new Map<string, Admission[]>();
  /** Units of each slice by window: what was charged, less what came back. */
  private readonly slices = new Map<string, { owner: string; duration: number; units: Map<number, number> }>();
  private readonly holds = new Map<number, Held>();
  private lastCharged: Pick<Held, 'charges' | 'admissions'> = { charges: [], admissions: [] };
  /** When a hold that charged an identity expired, or was noted to have. */
  private readonly expiredAt = new Map<string, number>();
  /** Balances that a settlement has brought below zero. */
  private readonly owing = new Set<number>();
  private readonly changes = new Map<Change, Changed>();
  private readonly floors: Changed[] = [];
  private readonly balances: { era: number; credits: number }[];
  /** When the oldest units of the windows of a leased decision expire. */
  private readonly unitsExpire = new Map<string, number>();
  private readonly settled: { session: string; write: number; count: number }[] = [];
  private readonly decisions: number[] = [];
  /** By what is counted, hour and outcome: by Redis, by sessions. */
  private readonly usage = new Map<string, { byRedis: number; bySession: Map<string, number> }>();
  /** How often the link of each key was changed, and when last. */
  private readonly links: number[];
  private readonly linkedAt: number[];
  private changer = { by: '', begun: 0 };
  private readonly usageBySession = new Map<string, number>();

  constructor(world: Observed) {
    this.world = world;
    this.links = world.redis.keys.map(() => 0);
    this.linkedAt = world.redis.keys.map(() => -1);
    this.balances = world.redis.keys.map(({ credits }) => ({ era: 0, credits: credits ?? 0 }));
  }

  private isLost(write: number) {
    return this.lost.some(([after, until]) => write > after && write <= until);
  }

  // ---- What happens in Redis

  charged(
    { key: index, session }: Ask,
    count: number,
    number: number | undefined,
    charges: readonly Charged[],
    hasCredits: boolean,
  ) {
    const key = this.key(index);
    if (hasCredits) this.balances[index]!.credits -= count;
    for (const charge of charges) this.addToSlice(charge, count);
    if (number === undefined) {
      const admissions = this.admit(index, { write: this.write, segment: this.segment, charges });
      this.lastCharged = { charges, admissions };
      return;
    }
    const owners = [key.id, linked(this.world.redis, key)?.id].filter((id) => id !== undefined);
    this.grants.set(`${session}/${number}`, {
      session,
      key: index,
      keyId: key.id,
      count,
      charges,
      hasCredits,
      write: this.write,
      segment: this.segment,
      at: this.world.now,
      era: this.balances[index]!.era,
      links: this.links[index]!,
      isBurnt: this.isFromDead,
      used: 0,
      returns: new Map(owners.map((id) => [id, []])),
    });
  }

  held(index: number, { number }: Hold) {
    this.holds.set(number, { ...this.lastCharged, era: this.balances[index]!.era });
  }

  /** What was not used is not admitted. What exceeds the hold is charged whatever is left. */
  holdEnded(index: number, hold: Hold, used: number, more: readonly Charged[], isExpired: boolean) {
    const held = this.holds.get(hold.number);
    if (!held || (held.endedBy !== undefined && !this.isLost(held.endedBy)))
      return broken('A hold ends twice', { hold });
    held.endedBy = this.write;
    const balance = this.balances[index]!;
    const returned = hold.credits * (1 - used);
    if (this.key(index).credits !== undefined && (returned < 0 || held.era === balance.era))
      balance.credits += returned;
    if (balance.credits < 0) this.owing.add(index);
    if (used === 0) {
      for (const charge of held.charges) this.addToSlice(charge, -1);
      for (const admission of held.admissions) admission.units = 0;
    }
    for (const charge of more) {
      this.addToSlice(charge, 1);
      this.admitAbove(charge);
    }
    if (isExpired) for (const { owner } of hold.windows) this.expiredAt.set(owner, this.world.redisNow);
    this.checkWindows();
  }

  private admitAbove({ window, cost, limit }: Charged) {
    const admitted = this.admissions.get(window) ?? [];
    const { segment, write } = this;
    admitted.push({ at: this.world.redisElapsed, segment, write, units: cost, limit, isAbove: true });
    this.admissions.set(window, admitted);
  }

  private addToSlice({ owner, window, end, duration, cost }: Charged, count: number) {
    let slices = this.slices.get(window);
    if (!slices) {
      slices = { owner, duration, units: new Map() };
      this.slices.set(window, slices);
    }
    slices.units.set(end, (slices.units.get(end) ?? 0) + count * cost);
  }

  returned(owner: string, session: string, number: number, count: number) {
    const grant = this.grants.get(`${session}/${number}`);
    if (!grant) return broken('A lease is returned that was never granted', { session, number });
    grant.returns.get(owner)!.push({ write: this.write, count });
    for (const charge of grant.charges) if (charge.owner === owner) this.addToSlice(charge, -count);
    const balance = this.balances[grant.key]!;
    if (owner === grant.keyId && grant.hasCredits && grant.era === balance.era) balance.credits += count;
    this.checkUsed(grant);
    this.checkWindows(owner);
  }

  private checkUsed(grant: Granted) {
    for (const owner of grant.returns.keys()) {
      if (grant.used + this.returnsOf(grant, owner) > grant.count) broken('Units are spent and given back', { grant });
    }
  }

  private returnsOf({ returns }: Granted, owner: string) {
    return (returns.get(owner) ?? []).reduce((sum, { write, count }) => sum + (this.isLost(write) ? 0 : count), 0);
  }

  /** Nothing lost: the units of each slice are what was charged and did not come back. */
  private checkWindows(owner?: string) {
    if (this.faultAt >= 0) return;
    const { redisNow } = this.world;
    for (const [window, { owner: id, duration, units }] of this.slices) {
      const found = (owner === undefined || owner === id) && this.ownerOf(id);
      if (!found) continue;
      const stored = found.windows[window.slice(id.length + 1)] ?? [];
      const actualAt = (end: number) => stored.find((one) => one.end === end)?.units ?? 0;
      // What a fine limit charged after a coarse one, in the same millisecond, comes back from the older of their
      // slices. So within a slice of the duration units may count longer than they should, and never shorter.
      const groupOf = (end: number) => Math.ceil(end / Math.floor(duration / 64));
      let [group, longer] = [Number.NaN, 0];
      for (const end of [...units.keys()].sort((a, b) => b - a)) {
        if (end + duration <= redisNow) {
          units.delete(end);
          continue;
        }
        if (groupOf(end) !== group && longer > 0) break;
        group = groupOf(end);
        const [actual, expected] = [actualAt(end), units.get(end)!];
        longer += actual - expected;
        if (longer < 0)
          broken('Units of a window are not what was charged less what came back', { window, end, actual, expected });
      }
      if (longer > 0)
        broken('Units of a window are not what was charged less what came back', { window, group, longer });
    }
  }

  private ownerOf(id: string): Owner | undefined {
    const { keys, identities } = this.world.redis;
    return keys.find((key) => key.id === id && key.state !== 'gone') ?? identities.find((one) => one.id === id);
  }

  /**
   * Never wrongly refused: no units are out that would change it, other than of a session that was killed, paused, slow
   * or disconnected.
   */
  refused(index: number, by: string, windows: readonly string[] | undefined) {
    this.checkNothingOut(index, by, windows, 'Refused while units are out');
  }

  private checkNothingOut(index: number, by: string, windows: readonly string[] | undefined, promise: string) {
    const { redisNow } = this.world;
    for (const [id, grant] of this.grants) {
      if (grant.isBurnt || this.isLost(grant.write)) continue;
      for (const owner of grant.returns.keys()) {
        const out = grant.count - grant.used - this.returnsOf(grant, owner);
        if (out <= 0) continue;
        const counts = windows
          ? grant.charges.some(
              (one) => one.owner === owner && windows.includes(one.window) && one.end + one.duration > redisNow,
            )
          : grant.key === index && owner === grant.keyId && grant.hasCredits && grant.era === this.balances[index]!.era;
        const faults = [grant.session, by].map((session) => this.world.faultUntil(session));
        const faultAt = Math.max(this.faultAt, this.ownerFaultAt.get(owner) ?? -1, ...faults);
        if (counts && faultAt < grant.at) broken(promise, { id, owner, out });
        const isHeld = this.world.leasesOf(grant.key).some((lease) => id === `${lease.session}/${lease.number}`);
        if (counts && isHeld && this.faultAt < 0 && !this.world.isSlow(by))
          broken('A lease still decides for which a refusal no longer waits', { id, owner, out });
      }
    }
  }

  counted(settlement: Settlement) {
    const count = settlement.tallies.reduce((sum, tally) => sum + tally.count, 0);
    this.settled.push({ session: settlement.session, write: this.write, count });
  }

  decidedByRedis({ outcome, keyId, identity, grant }: Decided, at: number, ask: Ask) {
    this.decisions.push(outcome === 'NOT_FOUND' ? -1 : this.write);
    this.count(outcome, keyId, identity, at, undefined);
    if (!grant) return;
    const key = this.key(ask.key);
    const oldest = limitsOf(this.world.redis, key, key.requests[ask.request]!).map((one) => {
      return (one.owner.windows[`${one.name}/${one.duration}`]?.[0]?.end ?? Infinity) + one.duration;
    });
    this.unitsExpire.set(`${ask.session}/${grant.number}`, Math.min(...oldest));
  }

  private count(outcome: string, key: string, identity: number | undefined, at: number, session: string | undefined) {
    if (outcome === 'NOT_FOUND') return;
    const hour = Math.floor(at / hourMs);
    for (const name of [key, 'all', ...(identity === undefined ? [] : [`i${identity}`])]) {
      const field = `${name} ${hour} ${outcome}`;
      const counted = this.usage.get(field) ?? { byRedis: 0, bySession: new Map() };
      this.usage.set(field, counted);
      if (session === undefined) counted.byRedis++;
      else counted.bySession.set(session, (counted.bySession.get(session) ?? 0) + 1);
    }
  }

  balanceSet(index: number, added?: number) {
    if (added === undefined) {
      this.balances[index] = { era: this.balances[index]!.era + 1, credits: this.key(index).credits ?? 0 };
      if (this.balances[index].credits >= 0) this.owing.delete(index);
      return;
    }
    this.balances[index]!.credits += added;
    this.checkNoCreditsOut(index, 'A balance is changed while credits are out');
  }

  balanceClamped(index: number) {
    this.checkNoCreditsOut(index, 'A balance is emptied while credits are out');
  }

  /**
   * Other credits may be out when the server was paused for longer than a recall pauses grants, and when Redis's clock
   * was stepped meanwhile, as the end of a pause is a time of it.
   */
  private checkNoCreditsOut(index: number, promise: string) {
    const { by, begun } = this.changer;
    if (this.world.faultUntil(by) < begun && this.faultAt < begun) this.checkNothingOut(index, by, undefined, promise);
  }

  windowAdapted(owner: string) {
    this.ownerFaultAt.set(owner, this.world.now);
  }

  /** Credits are never negative; what was granted is charged or left. */
  afterScript() {
    this.scripts = this.world.now === this.scriptAt ? this.scripts + 1 : 0;
    this.scriptAt = this.world.now;
    if (this.scripts > 500) broken('Redis is asked without end', { at: this.scriptAt });
    for (const { id, windows } of [...this.world.redis.keys, ...this.world.redis.identities]) {
      for (const window of Object.values(windows))
        if (window.some(({ units }) => units < 0)) broken('A window entry is negative', { id, window });
    }
    for (const [index, { credits }] of this.world.redis.keys.entries()) {
      if (credits === undefined) continue;
      if (credits < 0 && !this.owing.has(index)) broken('Credits are negative', { index, credits });
      const expected = this.balances[index]!.credits;
      if (credits !== expected)
        broken('Credits left are not what was granted less what was charged', { index, credits, expected });
    }
  }

  // ---- What sessions answer

  decided(verification: Verification, outcome: string, version: number, lease: Lease | undefined, server: string) {
    const { key: index, begun, recalls } = verification;
    const waited = this.world.now - begun;
    const isPrompt = this.world.faultUntil(server) < begun && this.faultAt < begun;
    // A key that was linked to another identity meanwhile has other windows, whose units are recalled, too.
    const most = this.linkedAt[index]! < begun ? 1 : 2;
    const isLate = recalls > most || waited > most * boundOf(this.world.setting) * drift + messagesMs;
    if (isPrompt && isLate) broken('A verification waits longer', { index, waited, recalls });
    for (const change of this.floors) {
      if (change.keys.includes(index) && change.answeredAt + rounding < begun && version < change.write) {
        broken('A verification that began after a change was answered sees the old state', {
          version,
          change,
          by: lease,
        });
      }
    }
    if (!lease) return;
    if (outcome !== 'NOT_FOUND')
      this.usageBySession.set(lease.session, (this.usageBySession.get(lease.session) ?? 0) + 1);
    this.count(outcome, lease.keyId, lease.identity, this.world.redisNow, lease.session);
    if (lease.count !== undefined) this.spend(verification, lease);
    else this.checkRefusal(verification, outcome, lease);
  }

  /** A lease ends, at `end` by Redis's clock, before what it relies on does. */
  accepted(lease: Lease, end: number) {
    const key = this.key(lease.key);
    if (this.faultAt >= 0 || this.versionOf(key) !== lease.version || lease.outcome === 'NOT_FOUND') return;
    const { expires, refill, credits } = key;
    const grant = this.grants.get(`${lease.session}/${lease.number}`);
    const isValid = lease.outcome === 'VALID';
    const isCharged = isValid || lease.outcome === 'RATE_LIMITED' || lease.outcome === 'USAGE_EXCEEDED';
    const charges = lease.count !== undefined ? grant!.charges : [];
    const reliesOn = {
      hour: (Math.floor(lease.at / hourMs) + 1) * hourMs,
      slice: Math.min(...charges.map((one) => one.end)),
      expiry: (isValid && expires) || Infinity,
      refill: (isCharged && lease.outcome !== 'RATE_LIMITED' && credits !== undefined && refill?.at) || Infinity,
      units: isCharged ? this.unitsExpire.get(`${lease.session}/${lease.number}`)! : Infinity,
    };
    if (end > Math.min(...Object.values(reliesOn)) + rounding)
      broken('A lease outlasts what it relies on', { lease, end, reliesOn });
  }

  private versionOf(key: Key) {
    return Math.max(key.version, linked(this.world.redis, key)?.version ?? 0);
  }

  private spend({ key: index, request }: Verification, { session, number }: Lease) {
    const grant = this.grants.get(`${session}/${number}`);
    if (!grant) return broken('A lease is spent that was never granted', { session, number });
    grant.used++;
    this.checkUsed(grant);
    const { cost } = this.key(index).requests[request]!;
    this.admit(index, { ...grant, charges: grant.charges.map((one) => ({ ...one, cost })) });
  }

  /**
   * Never over: in any interval of the duration at most the limit is admitted; at most the largest, where requests have
   * several. All of it counts.
   */
  private admit(
    index: number,
    { write, segment, charges }: Pick<Granted, 'write' | 'segment' | 'charges'>,
  ): Admission[] {
    const { expires } = this.key(index);
    const [at, now] = [this.world.redisElapsed, this.world.redisNow];
    const made: Admission[] = [];
    if (segment !== this.segment || this.isLost(write)) return made;
    if (expires !== undefined && this.world.redisNow >= expires) broken('Admitted after the expiry', { index });
    for (const { owner, window, duration, limit, cost } of charges) {
      const admitted = this.admissions.get(window) ?? [];
      const admission = { at, segment, write, units: cost, limit, isAbove: false };
      admitted.push(admission);
      made.push(admission);
      const inView = admitted.filter(
        (one) => one.at > at - duration && one.segment === segment && !this.isLost(one.write),
      );
      const sum = inView.reduce((total, { units }) => total + units, 0);
      const most = Math.max(...inView.map((one) => one.limit));
      const stored = this.ownerOf(owner)?.windows[window.slice(owner.length + 1)];
      const counting = stored?.reduce((total, { end, units }) => total + (end + duration > now ? units : 0), 0) ?? sum;
      if (counting < sum) broken('A window counts less than was admitted', { window, sum, counting });
      const above = inView.reduce((total, { units, isAbove }) => total + (isAbove ? units : 0), 0);
      if (sum - above > most)
        broken('Admitted more than the limit', { window, sum, limit: most, from: inView[0]!.at, to: at });
      this.admissions.set(window, admitted.length > inView.length + 50 ? inView : admitted);
    }
    return made;
  }

  /** A refusal by a lease is what Redis would answer now. */
  private checkRefusal({ key: index, request }: Verification, outcome: string, lease: Lease) {
    const key = this.key(index);
    if (this.versionOf(key) !== lease.version || this.faultAt >= 0) return;
    const now = this.world.redisNow;
    if (outcome === 'VALID' && key.expires !== undefined && now >= key.expires)
      broken('VALID after the expiry', { index });
    if (outcome === 'RATE_LIMITED') {
      const { cost } = key.requests[request]!;
      const limits = limitsOf(this.world.redis, key, key.requests[request]!);
      const isFree = limits.every(({ owner, name, limit, duration }) => {
        const window = owner.windows[`${name}/${duration}`] ?? [];
        return cost + window.reduce((sum, { end, units }) => sum + (end + duration > now ? units : 0), 0) <= limit;
      });
      // src/decide/leases/README.md: leases of other keys see the expiry of a hold of an identity up to a term late.
      const isOfExpired = limits.some(({ owner }) => owner !== key && (this.expiredAt.get(owner.id) ?? -1) >= lease.at);
      if (isFree && !isOfExpired) broken('Refused by a lease though units are free', { index });
    }
    if (outcome === 'USAGE_EXCEEDED' && (key.credits! > 0 || (key.refill && now >= key.refill.at))) {
      broken('Refused by a lease though credits are left', { index });
    }
  }

  changing({ begun }: Change, by: string) {
    this.changer = { by, begun };
  }

  changed(change: Change, registry: ReadonlyMap<string, Registered>) {
    const { key, mutation } = change;
    const { keys } = this.world.redis;
    const { identity } = keys[key]!;
    const isOfIdentity = mutation.set === 'limit' && mutation.on === 'identity';
    if (mutation.set === 'link' || mutation.set === 'gone') {
      this.links[key]!++;
      this.linkedAt[key] = this.world.now;
    }
    const affected = isOfIdentity
      ? [...keys.keys()].filter((index) => identity !== undefined && keys[index]!.identity === identity)
      : [key];
    const terms = new Map([...registry].map(([session, { term }]) => [session, term]));
    this.changes.set(change, { keys: affected, write: this.write, terms, repliedAt: 0, answeredAt: 0 });
  }

  replied(change: Change) {
    this.changes.get(change)!.repliedAt = this.world.now;
  }

  /**
   * A change waits for sessions that answer, and at most 1.01 of its terms for each other one, after Redis's reply;
   * after a connect, of the longest.
   */
  answered(made: Change, server: string) {
    const change = this.changes.get(made)!;
    change.answeredAt = this.world.now;
    const waited = change.answeredAt - change.repliedAt;
    const isPrompt = this.world.faultUntil(server) < change.repliedAt;
    const bound = boundOf(this.world.setting);
    const silent = [...change.terms].filter(([session]) => this.world.faultUntil(session) >= change.repliedAt);
    const terms = silent.map(([, term]) => Math.min(term, bound));
    const most = Math.max(0, ...terms, bound - (change.repliedAt - this.world.connectedAt(server)));
    if (isPrompt && waited > most * drift + messagesMs) broken('A change waits longer', { change, waited, most });
    if (this.isLost(change.write)) return;
    this.floors.push(change);
    // What the next verification would use.
    const leases = change.keys.flatMap((key) => this.world.leasesOf(key));
    const stale = leases.find((lease) => lease.version < change.write);
    if (stale) broken('A lease of the old state outlives the answer to a change', { change, stale });
  }

  // ---- Faults

  stepped(ms: number) {
    this.faultAt = this.world.now;
    if (ms > 0) this.segment++;
  }

  /** Redis restarted with the state after write `kept`. */
  restarted(kept: number) {
    this.lost.push([kept, this.write]);
    this.faultAt = this.world.now;
    this.isRestarted = true;
    for (const change of [...this.floors])
      if (this.isLost(change.write)) this.floors.splice(this.floors.indexOf(change), 1);
    for (const [index, key] of this.world.redis.keys.entries()) {
      const era = this.balances[index]!.era + 1;
      this.balances[index] = { era, credits: key.credits ?? 0 };
      for (const { session, number, balance } of key.leases) {
        const grant = this.grants.get(`${session}/${number}`);
        if (grant && key.credits !== undefined && balance === balanceOf(key)) grant.era = era;
      }
      for (const { number, balance } of key.holds) {
        const held = this.holds.get(number);
        if (held && balance === key.balances) held.era = era;
      }
    }
  }

  /**
   * Tallies that die with their session are at most a quarter of a term old; of few decisions, since the end of their
   * lease.
   */
  killed(session: Session, clock: number) {
    const { setting } = this.world;
    const allowed = setting.term * settleEvery + rounding;
    if (session.settlement || this.world.faultUntil(session.id) >= 0) return;
    for (const { since, manySince = clock } of session.tallies) {
      if (clock - since > boundOf(setting) + allowed || clock - manySince > allowed)
        broken('A tally is too old', { session: session.id, since, manySince, clock });
    }
  }

  /** After all leases ended: every decision is counted once, and nothing is left in Redis of sessions that live. */
  ended(live: Set<string>) {
    for (const [session, used] of this.usageBySession) {
      const settled = this.settled.filter((one) => one.session === session);
      const counted = settled.reduce((sum, { count }) => sum + count, 0);
      const kept = settled.reduce((sum, { count, write }) => sum + (this.isLost(write) ? 0 : count), 0);
      if (kept > used || (live.has(session) && counted < used))
        broken('Usage is not what was answered', { session, kept, counted, used });
    }
    const usage = Object.entries(this.world.redis.usage)
      .filter(([field]) => field.startsWith('all '))
      .reduce((sum, [, count]) => sum + count, 0);
    const kept = this.settled.filter(({ write }) => !this.isLost(write)).reduce((sum, { count }) => sum + count, 0);
    const byRedis = this.decisions.filter((write) => write >= 0 && !this.isLost(write)).length;
    if (usage !== kept + byRedis) broken('Usage in Redis is not what was counted', { usage, kept, byRedis });
    for (const [session, entry] of this.world.redis.registry) {
      if (live.has(session)) broken('An idle session is in the registry', { session, entry });
    }
    this.checkUsage(live);
    this.checkWindows();
    for (const { leases } of [...this.world.redis.keys, ...this.world.redis.identities]) {
      const left = leases.find(({ session }) => this.world.faultUntil(session) < 0);
      if (left && this.faultAt < 0) broken('Units of an idle session are out', left);
    }
    // Later than a recall waits for it, and after a step of the clock, too. After a restart of Redis it is not known
    // what was charged.
    for (const [id, grant] of this.grants) {
      if (!live.has(grant.session) || grant.isBurnt || this.isRestarted) continue;
      // A lost answer does not say which identity it charged.
      const isLinkKnown = this.links[grant.key] === grant.links || this.world.faultUntil(grant.session) < grant.at;
      for (const owner of grant.returns.keys()) {
        const left = grant.count - grant.used - this.returnsOf(grant, owner);
        if (left > 0 && this.ownerOf(owner) && (owner === grant.keyId || isLinkKnown))
          broken('Units of a live session are not given back', { id, owner, left });
      }
    }
  }

  /** Decisions are counted for their key, its identity and the API, in their hour; those of killed sessions at most. */
  private checkUsage(live: Set<string>) {
    if (this.faultAt >= 0) return;
    const { usage } = this.world.redis;
    for (const field of new Set([...Object.keys(usage), ...this.usage.keys()])) {
      const { byRedis, bySession } = this.usage.get(field) ?? { byRedis: 0, bySession: new Map<string, number>() };
      const sum = (of: [string, number][]) => of.reduce((total, [, count]) => total + count, byRedis);
      const most = sum([...bySession]);
      const least = sum([...bySession].filter(([session]) => live.has(session)));
      const counted = usage[field] ?? 0;
      if (counted < least || counted > most) broken('Usage is not what was answered', { field, counted, least, most });
    }
  }

  private key(index: number): Key {
    return this.world.redis.keys[index]!;
  }
}
