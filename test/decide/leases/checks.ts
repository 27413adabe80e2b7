// The promises of leases, checked after every step of a run (world.ts) by what really happened.
//
// What is lost with Redis's last writes is not promised: a charge that was lost does not count, a change that was lost
// was not made. A step forward of Redis's clock is time that has passed: windows start again, and what was out at the
// step is admitted on top. A step back costs nothing.
import {
  type Ask,
  type Change,
  drift,
  type Key,
  type RedisState,
  type Setting,
  type Settlement,
  settleEvery,
  type Witness,
} from './model.ts';
import type { Lease, Session, Verification } from './session.ts';

interface Granted {
  session: string;
  key: number;
  count: number;
  cost: number;
  write: number;
  at: number;
  segment: number;
  limit: number;
  era: number;
  sliceEnd: number;
  /** Granted to a connection that was lost before. */
  isBurnt: boolean;
  used: number;
  returns: { write: number; count: number }[];
}

interface Admission {
  at: number;
  segment: number;
  write: number;
  units: number;
  limit: number;
}

interface Changed {
  key: number;
  /** The number of the script run is the version of the key from then on. */
  write: number;
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
  private readonly keyFaultAt: number[];
  private readonly grants = new Map<string, Granted>();
  private readonly admissions: Admission[][];
  private readonly changes = new Map<Change, Changed>();
  private readonly floors: Changed[] = [];
  private readonly balances: { era: number; credits: number }[];
  private readonly settled: { session: string; write: number; count: number }[] = [];
  private readonly decisions: number[] = [];
  private readonly usageBySession = new Map<string, number>();

  constructor(world: Observed) {
    this.world = world;
    this.keyFaultAt = world.redis.keys.map(() => -1);
    this.admissions = world.redis.keys.map(() => []);
    this.balances = world.redis.keys.map(({ credits }) => ({ era: 0, credits: credits ?? 0 }));
  }

  private isLost(write: number) {
    return this.lost.some(([after, until]) => write > after && write <= until);
  }

  // ---- What happens in Redis

  charged({ key: index, request, session }: Ask, count: number, number: number | undefined) {
    const key = this.key(index);
    const { cost, limit = key.limit?.limit ?? 0 } = key.requests[request]!;
    this.balances[index]!.credits -= count;
    const charge = { write: this.write, segment: this.segment, limit, cost };
    if (number === undefined) return this.admit(index, charge);
    this.grants.set(`${session}/${number}`, {
      session,
      key: index,
      count,
      ...charge,
      at: this.world.now,
      era: this.balances[index]!.era,
      sliceEnd: key.window.at(-1)?.end ?? 0,
      isBurnt: this.isFromDead,
      used: 0,
      returns: [],
    });
  }

  returned(index: number, session: string, number: number, count: number) {
    const grant = this.grants.get(`${session}/${number}`);
    if (!grant) return broken('A lease is returned that was never granted', { session, number });
    grant.returns.push({ write: this.write, count });
    if (grant.era === this.balances[index]!.era) this.balances[index]!.credits += count;
    if (grant.used + this.returnsOf(grant) > grant.count) broken('Units are spent and given back', { session, number });
  }

  private returnsOf({ returns }: Granted) {
    return returns.reduce((sum, { write, count }) => sum + (this.isLost(write) ? 0 : count), 0);
  }

  /**
   * Never wrongly refused: no unit of the key is out, other than of a session that was killed, paused, slow or
   * disconnected.
   */
  refused(index: number, by: string) {
    const key = this.key(index);
    for (const [id, grant] of this.grants) {
      if (grant.key !== index || grant.isBurnt || this.isLost(grant.write)) continue;
      const out = grant.count - grant.used - this.returnsOf(grant);
      const counts = key.limit && grant.sliceEnd + key.limit.duration > this.world.redisNow;
      const charged = key.credits !== undefined && grant.era === this.balances[index]!.era;
      const faults = [grant.session, by].map((session) => this.world.faultUntil(session));
      const faultAt = Math.max(this.faultAt, this.keyFaultAt[index]!, ...faults);
      if (out > 0 && (counts || charged) && faultAt < grant.at) broken('Refused while units are out', { id, out });
    }
  }

  counted(settlement: Settlement) {
    const count = settlement.tallies.reduce((sum, tally) => sum + tally.count, 0);
    this.settled.push({ session: settlement.session, write: this.write, count });
  }

  decidedByRedis() {
    this.decisions.push(this.write);
  }

  balanceSet(index: number, added?: number) {
    if (added !== undefined) this.balances[index]!.credits += added;
    else this.balances[index] = { era: this.balances[index]!.era + 1, credits: this.key(index).credits! };
    if (added === undefined) this.keyFaultAt[index] = this.world.now;
  }

  windowAdapted(index: number) {
    this.keyFaultAt[index] = this.world.now;
  }

  /** Credits are never negative; what was granted is charged or left. */
  afterScript() {
    this.scripts = this.world.now === this.scriptAt ? this.scripts + 1 : 0;
    this.scriptAt = this.world.now;
    if (this.scripts > 500) broken('Redis is asked without end', { at: this.scriptAt });
    for (const [index, { credits, window }] of this.world.redis.keys.entries()) {
      if (window.some(({ units }) => units < 0)) broken('A window entry is negative', { index, window });
      if (credits === undefined) continue;
      if (credits < 0) broken('Credits are negative', { index, credits });
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
    const isLate = recalls > 1 || waited > this.world.setting.term * drift + messagesMs;
    if (isPrompt && isLate) broken('A verification waits longer', { index, waited, recalls });
    for (const change of this.floors) {
      if (change.key === index && change.answeredAt + rounding < begun && version < change.write) {
        broken('A verification that began after a change was answered sees the old state', {
          version,
          change,
          by: lease,
        });
      }
    }
    if (!lease) return;
    this.usageBySession.set(lease.session, (this.usageBySession.get(lease.session) ?? 0) + 1);
    if (lease.count !== undefined) this.spend(verification, lease);
    else this.checkRefusal(verification, outcome, lease);
  }

  /** A lease ends, at `end` by Redis's clock, before what it relies on does. */
  accepted(lease: Lease, end: number) {
    const { expires, refill, limit, credits, window } = this.key(lease.key);
    if (this.faultAt >= 0) return;
    const grant = this.grants.get(`${lease.session}/${lease.number}`);
    const isValid = lease.outcome === 'VALID';
    const reliesOn = {
      slice: limit && lease.count !== undefined ? grant!.sliceEnd : Infinity,
      expiry: (isValid && expires) || Infinity,
      refill: ((isValid || lease.outcome === 'USAGE_EXCEEDED') && credits !== undefined && refill?.at) || Infinity,
      units:
        lease.outcome === 'RATE_LIMITED' ? Math.min(...window.map((entry) => entry.end)) + limit!.duration : Infinity,
    };
    if (end > Math.min(...Object.values(reliesOn)) + rounding)
      broken('A lease outlasts what it relies on', { lease, end, reliesOn });
  }

  private spend({ key: index, request }: Verification, { session, number }: Lease) {
    const grant = this.grants.get(`${session}/${number}`);
    if (!grant) return broken('A lease is spent that was never granted', { session, number });
    grant.used++;
    if (grant.used + this.returnsOf(grant) > grant.count) broken('Units are spent and given back', { session, number });
    const { cost } = this.key(index).requests[request]!;
    this.admit(index, { ...grant, cost });
  }

  /**
   * Never over: in any interval of the duration at most the limit is admitted; at most the largest, where requests have
   * several.
   */
  private admit(index: number, { write, segment, limit, cost }: Omit<Admission, 'at' | 'units'> & { cost: number }) {
    const { limit: config, expires } = this.key(index);
    const at = this.world.redisElapsed;
    if (segment !== this.segment || this.isLost(write)) return;
    if (expires !== undefined && this.world.redisNow >= expires) broken('Admitted after the expiry', { index });
    if (!config) return;
    const admitted = this.admissions[index]!;
    admitted.push({ at, segment, write, units: cost, limit });
    const inView = admitted.filter(
      (one) => one.at > at - config.duration && one.segment === segment && !this.isLost(one.write),
    );
    const sum = inView.reduce((total, { units }) => total + units, 0);
    const most = Math.max(...inView.map((one) => one.limit));
    if (sum > most) broken('Admitted more than the limit', { index, sum, limit: most, from: inView[0]!.at, to: at });
    if (admitted.length > inView.length + 50) this.admissions[index] = inView;
  }

  /** A refusal by a lease is what Redis would answer now. */
  private checkRefusal({ key: index, request }: Verification, outcome: string, lease: Lease) {
    const key = this.key(index);
    if (key.version !== lease.version || this.faultAt >= 0) return;
    const now = this.world.redisNow;
    if (outcome === 'VALID' && key.expires !== undefined && now >= key.expires)
      broken('VALID after the expiry', { index });
    if (outcome === 'RATE_LIMITED') {
      const { duration } = key.limit!;
      const { cost, limit = key.limit!.limit } = key.requests[request]!;
      const total = key.window.reduce((sum, { end, units }) => sum + (end + duration > now ? units : 0), 0);
      if (total + cost <= limit) broken('Refused by a lease though units are free', { index, total, limit });
    }
    if (outcome === 'USAGE_EXCEEDED' && (key.credits! > 0 || (key.refill && now >= key.refill.at))) {
      broken('Refused by a lease though credits are left', { index });
    }
  }

  changed(change: Change) {
    const { key } = change;
    this.changes.set(change, { key, write: this.write, repliedAt: 0, answeredAt: 0 });
    if (this.key(key).limit) this.keyFaultAt[key] = this.world.now;
  }

  replied(change: Change) {
    this.changes.get(change)!.repliedAt = this.world.now;
  }

  /** A change waits at most 1.01 terms after Redis's reply. */
  answered(made: Change, server: string) {
    const change = this.changes.get(made)!;
    change.answeredAt = this.world.now;
    const waited = change.answeredAt - change.repliedAt;
    const isPrompt = this.world.faultUntil(server) < change.repliedAt;
    if (isPrompt && waited > this.world.setting.term * drift + rounding)
      broken('A change waits longer', { change, waited });
    if (this.isLost(change.write)) return;
    this.floors.push(change);
    // What the next verification would use.
    const stale = this.world.leasesOf(change.key).find((lease) => lease.version < change.write);
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
    for (const [index, { credits, leases }] of this.world.redis.keys.entries()) {
      const era = this.balances[index]!.era + 1;
      this.balances[index] = { era, credits: credits ?? 0 };
      for (const { session, number } of leases) {
        const grant = this.grants.get(`${session}/${number}`);
        if (grant) grant.era = era;
      }
    }
  }

  /**
   * Tallies that die with their session are at most a quarter of a term old; of few decisions, since the end of their
   * lease.
   */
  killed(session: Session, clock: number) {
    const { term } = this.world.setting;
    const allowed = term * settleEvery + rounding;
    if (session.settlement || this.world.faultUntil(session.id) >= 0) return;
    for (const { since, manySince = clock } of session.tallies) {
      if (clock - since > term + allowed || clock - manySince > allowed)
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
    const usage = this.world.redis.usage
      .flatMap((counts) => Object.values(counts))
      .reduce((sum, count) => sum + count, 0);
    const kept = this.settled.filter(({ write }) => !this.isLost(write)).reduce((sum, { count }) => sum + count, 0);
    const byRedis = this.decisions.filter((write) => !this.isLost(write)).length;
    if (usage !== kept + byRedis) broken('Usage in Redis is not what was counted', { usage, kept, byRedis });
    for (const [session, entry] of this.world.redis.registry) {
      if (live.has(session)) broken('An idle session is in the registry', { session, entry });
    }
    for (const { leases } of this.world.redis.keys) {
      const left = leases.find(({ session }) => this.world.faultUntil(session) < 0);
      if (left && this.faultAt < 0) broken('Units of an idle session are out', left);
    }
    // Later than a recall waits for it, and after a step of the clock, too. After a restart of Redis it is not known
    // what was charged.
    for (const [id, grant] of this.grants) {
      const isOver = !live.has(grant.session) || grant.isBurnt || this.isRestarted;
      if (isOver || grant.era !== this.balances[grant.key]!.era) continue;
      const left = grant.count - grant.used - this.returnsOf(grant);
      if (left > 0) broken('Units of a live session are not given back', { id, left });
    }
  }

  private key(index: number): Key {
    return this.world.redis.keys[index]!;
  }
}
