// What a session does: it decides by its leases, asks Redis, settles, answers recalls, and makes changes. Its
// environment (world.ts) gives it a monotonic clock, timers that run late while the process is paused, and a connection
// that may be lost.
import type {
  Ask,
  Change,
  Decided,
  Decision,
  Grant,
  Leave,
  Look,
  Named,
  Outcome,
  Removal,
  Returned,
  Script,
  Seen,
  Setting,
  Settlement,
} from './model.ts';
import { boundOf, type Counted, drift, idleTerms, type Registered, settleEvery, tallyMin } from './model.ts';

export interface Environment {
  readonly setting: Setting;
  clock(): number;
  /** What the session adds to its terms now: what it measured. */
  added(): number;
  after(ms: number, run: () => void): void;
  /**
   * Sends a script on the connection, in order. Calls one of the two: with the reply, or when the connection is lost.
   */
  send(script: Script, onReply: (reply: unknown) => void, onLost: () => void): void;
  /** Publishes through Redis. The message may be lost. */
  publish(to: string, message: Message): void;
  decided(verification: Verification, outcome: Outcome, version: number, by: Lease | undefined): void;
  failed(verification: Verification): void;
  accepted(lease: Lease): void;
  answered(change: Change): void;
}

export type Message =
  | { kind: 'recall'; id: string; replyTo: string /** Units, or everything for a change. */; leases?: readonly Named[] }
  | { kind: 'ack'; id: string; session: string };

export interface Verification {
  key: number;
  /** Its number among those of the key. */
  request: number;
  wanted: number;
  begun: number;
  recalls: number;
  /** Of Ask. */
  hold: number | undefined;
}

export interface Lease {
  session: string;
  key: number;
  keyId: string;
  identity: number | undefined;
  request: number;
  number: number;
  outcome: Outcome;
  version: number;
  /** When Redis decided, by its clock. */
  at: number;
  /** When its answer came, and when the lease ends, by the session's clock. */
  answeredAt: number;
  ends: number;
  /** From then on one request asks for the next lease. */
  renews: number;
  /** Undefined for a read lease. */
  count: number | undefined;
  used: number;
}

interface Waiting {
  pending: Set<string>;
  finish: () => void;
}

export class Session {
  readonly id: string;
  /** By key and request. */
  readonly leases = new Map<string, Lease>();
  private readonly env: Environment;
  private number = 0;
  /** Asks that may grant a lease, by number. A dropped one grants nothing. */
  private readonly asks = new Map<number, { key: number; request: number; isDropped: boolean }>();
  returns: Settlement['returns'] = [];
  tallies: Settlement['tallies'] = [];
  settlement: Settlement | undefined;
  private settlements = 0;
  private isRegistered = false;
  private busyAt = 0;
  private readonly afterSettlement: { number: number; run: () => void }[] = [];
  private readonly afterAsks: { asks: Set<number>; run: () => void }[] = [];
  /** Verifications that wait for the recall of their key's units. */
  private readonly recalled = new Map<number, Verification[]>();
  private readonly waits = new Map<string, Waiting>();
  private waitNumber = 0;
  private connectedAt = 0;
  /** The life of Redis that it sees, and since when. */
  private life: { life: number; since: number } | undefined;
  isConnected = false;

  constructor(id: string, env: Environment) {
    this.id = id;
    this.env = env;
    this.tick();
  }

  connected() {
    this.isConnected = true;
    this.connectedAt = this.env.clock();
    // Redis may have lost that this session left, or run what an earlier connection sent.
    this.isRegistered = true;
    this.busyAt = this.connectedAt;
    if (this.settlement) this.transmit(this.settlement);
    this.life = undefined;
    this.look();
  }

  // ---- Decide

  verify(verification: Verification) {
    const lease = verification.hold === undefined && this.leases.get(this.nameOf(verification));
    const isRenewed = lease && this.isRenewed(verification, lease);
    if (isRenewed && !this.env.setting.rules.renewalReplaces) this.giveUp(lease);
    if (lease && !isRenewed && this.isLive(lease)) {
      lease.used++;
      this.tally(lease);
      this.env.decided(verification, lease.outcome, lease.version, lease);
      return;
    }
    const others = this.recalled.get(verification.key);
    if (others) others.push(verification);
    else this.ask(verification, []);
  }

  private isLive({ ends, count, used, renews }: Lease): boolean {
    const now = this.env.clock();
    const isEndless = !this.env.setting.rules.renewalEnds && now >= renews;
    return (now < ends || isEndless) && (count === undefined || used < count);
  }

  /** Whether this request asks for the next lease. */
  private isRenewed({ key, request, wanted }: Verification, lease: Lease): boolean {
    const isAsked = [...this.asks.values()].some((ask) => ask.key === key && ask.request === request);
    return wanted > 0 && !isAsked && this.env.clock() >= lease.renews;
  }

  private nameOf({ key, request }: { key: number; request: number }): string {
    return this.env.setting.rules.sameRequest ? `${key}/${request}` : `${key}`;
  }

  private tally({ key, keyId, identity, outcome, number, at, answeredAt }: Lease) {
    const now = this.env.clock();
    this.busyAt = now;
    if (outcome === 'NOT_FOUND') return;
    let tally = this.tallies.find((one) => one.key === key && one.lease === number);
    if (!tally) {
      tally = { key, keyId, identity, outcome, lease: number, count: 0, usedAt: 0, age: 0, since: now };
      this.tallies.push(tally);
    }
    tally.count++;
    tally.usedAt = at + Math.floor(now - answeredAt);
    tally.age = now;
    if (tally.count === tallyMin) tally.manySince = now;
  }

  private ask(verification: Verification, recalled: Ask['recalled']) {
    const { key, request, hold } = verification;
    const isAsked = [...this.asks.values()].some((ask) => ask.key === key && ask.request === request);
    const wanted = isAsked ? 0 : verification.wanted;
    const number = ++this.number;
    const sentAt = this.env.clock();
    const asked = { key, request, isDropped: false };
    if (wanted > 0) this.asks.set(number, asked);
    this.busyAt = sentAt;
    const onReply = (reply: unknown) => {
      this.asks.delete(number);
      const decision = reply as Decision;
      if (decision.outcome === 'RECALL') {
        this.askEnded(number);
        return this.recallUnits(verification, decision.from, decision.term, recalled.length > 0);
      }
      this.decidedByRedis(verification, decision, sentAt, asked.isDropped);
      this.askEnded(number);
      if (recalled.length > 0) this.resume(key);
    };
    const onLost = () => {
      // Redis may have granted it, or may still do so.
      if (this.asks.delete(number)) {
        this.returns.push({ key, keyId: undefined, identity: undefined, number, used: 0 });
        this.askEnded(number);
      }
      this.env.failed(verification);
      if (recalled.length > 0) this.resume(key);
    };
    const added = this.env.added();
    const ask: Ask = { kind: 'decide', session: this.id, key, request, wanted, number, added, recalled, hold };
    this.env.send(ask, onReply, onLost);
  }

  private decidedByRedis(
    verification: Verification,
    { outcome, version, at, keyId, identity, grant }: Decided,
    sentAt: number,
    isDropped: boolean,
  ) {
    const { key, request } = verification;
    const answeredAt = this.env.clock();
    const lease = {
      session: this.id,
      key,
      keyId,
      identity,
      request,
      outcome,
      version,
      at,
      answeredAt,
      ends: 0,
      renews: 0,
      used: 0,
    };
    if (grant) this.accept({ ...lease, ...grant }, grant, sentAt, isDropped);
    this.env.decided(verification, outcome, version, undefined);
  }

  private accept(lease: Lease, { term }: Grant, sentAt: number, isDropped: boolean) {
    const { rules } = this.env.setting;
    this.isRegistered = true;
    if (isDropped && rules.epoch) {
      if (rules.returnInFlight) this.giveUp(lease);
      return;
    }
    if (rules.renewalReturns) this.retire(lease);
    lease.ends = (rules.clockBeforeAsk ? sentAt : this.env.clock()) + term;
    lease.renews = sentAt + term / 2;
    this.leases.set(this.nameOf(lease), lease);
    this.env.accepted(lease);
  }

  // ---- Settle

  /** Every quarter of a term. */
  private tick() {
    const { term } = this.env.setting;
    for (const lease of [...this.leases.values()]) if (this.env.clock() >= lease.ends) this.retire(lease);
    const isLive = (number: number) => [...this.leases.values()].some((lease) => lease.number === number);
    this.settle(({ lease, count }) => count < tallyMin && isLive(lease));
    this.leaveIfIdle();
    this.look();
    this.env.after(term * settleEvery, () => this.tick());
  }

  private retire(of: { key: number; request: number }) {
    const lease = this.leases.get(this.nameOf(of));
    this.leases.delete(this.nameOf(of));
    if (lease) this.giveUp(lease);
  }

  private giveUp({ key, keyId, identity, number, count, used }: Lease) {
    if (count !== undefined) this.returns.push({ key, keyId, identity, number, used } satisfies Returned);
  }

  /** Ends leases at once: these, or all. Those that are in flight are returned when they arrive. */
  private drop(leases?: readonly Named[]) {
    const isMeant = (number: number) =>
      leases === undefined || leases.some((one) => one.session === this.id && one.number === number);
    for (const lease of [...this.leases.values()]) if (isMeant(lease.number)) this.retire(lease);
    for (const [number, asked] of this.asks) if (isMeant(number)) asked.isDropped = true;
  }

  /** Runs when everything that was dropped is settled. */
  private whenReturned(run: () => void) {
    const asks = new Set([...this.asks].filter(([, { isDropped }]) => isDropped).map(([number]) => number));
    if (asks.size > 0 && this.env.setting.rules.settleBeforeAck) this.afterAsks.push({ asks, run });
    else this.whenSettled(run);
  }

  private askEnded(number: number) {
    for (const waiting of [...this.afterAsks]) {
      if (!waiting.asks.delete(number) || waiting.asks.size > 0) continue;
      this.afterAsks.splice(this.afterAsks.indexOf(waiting), 1);
      this.whenSettled(waiting.run);
    }
  }

  private settle(isLater: (tally: Counted) => boolean = () => false) {
    const tallies = this.tallies.filter((tally) => !isLater(tally));
    if (this.settlement || !this.isConnected || this.returns.length + tallies.length === 0) return;
    for (const tally of tallies) tally.age = this.env.clock() - tally.age;
    this.settlement = {
      kind: 'settle',
      session: this.id,
      number: ++this.settlements,
      returns: this.returns,
      tallies,
    };
    [this.returns, this.tallies] = [[], this.tallies.filter(isLater)];
    this.isRegistered = true;
    this.transmit(this.settlement);
  }

  /** One settlement is in flight at a time. It is sent again after a lost connection, as Redis counts a number once. */
  private transmit(settlement: Settlement) {
    const onReply = () => {
      if (this.settlement !== settlement) return;
      this.settlement = undefined;
      this.busyAt = this.env.clock();
      for (const next of this.afterSettlement.splice(0)) this.whenSettled(next.run, next.number);
    };
    this.env.send(settlement, onReply, () => {});
  }

  /** Runs when everything that was given up until now is settled. */
  private whenSettled(run: () => void, number = this.settlements + (this.returns.length > 0 ? 1 : 0)) {
    this.settle();
    const settled = this.settlement ? this.settlement.number - 1 : this.settlements;
    if (number <= settled) run();
    else this.afterSettlement.push({ number, run });
  }

  private leaveIfIdle() {
    const { setting } = this.env;
    const isBusy = this.leases.size + this.asks.size + this.returns.length + this.tallies.length > 0 || this.settlement;
    const idleMs = this.env.clock() - this.busyAt;
    if (!this.isRegistered || !this.isConnected || isBusy || idleMs < setting.term * idleTerms) return;
    const message: Leave = { kind: 'leave', session: this.id, granted: this.number };
    this.isRegistered = false;
    this.env.send(
      message,
      () => {},
      () => {
        this.isRegistered = true;
      },
    );
  }

  // ---- Recall

  receive(message: Message) {
    const { rules } = this.env.setting;
    if (message.kind === 'ack') return this.acknowledged(message.id, message.session);
    const ack = () => this.env.publish(message.replyTo, { kind: 'ack', id: message.id, session: this.id });
    // Redis has an entry of this session, even if the session does not know it.
    this.isRegistered = true;
    if (!rules.dropFirst) {
      ack();
      return this.env.after(20, () => this.drop(message.leases));
    }
    this.drop(message.leases);
    if (rules.settleBeforeAck) this.whenReturned(ack);
    else ack();
    this.settle();
  }

  private acknowledged(id: string, session: string) {
    const wait = this.waits.get(id);
    wait?.pending.delete(session);
    if (wait?.pending.size === 0) wait.finish();
  }

  /**
   * Recalls from other sessions and continues when each has acknowledged, or its time has passed. `finish` gets those
   * that did not.
   */
  private recall(
    sessions: ReadonlyMap<string, number>,
    leases: readonly Named[] | undefined,
    finish: (late: Set<string>) => void,
  ) {
    const id = `${this.id}.${++this.waitNumber}`;
    const pending = new Set(sessions.keys());
    const late = new Set<string>();
    const done = () => {
      if (this.waits.delete(id)) finish(late);
    };
    this.waits.set(id, { pending, finish: done });
    for (const session of pending) {
      if (session === this.id) continue;
      this.env.publish(session, { kind: 'recall', id, replyTo: this.id, ...(leases && { leases }) });
    }
    if (pending.delete(this.id)) {
      this.drop(leases);
      pending.add(this.id);
      this.whenReturned(() => this.acknowledged(id, this.id));
    }
    if (pending.size === 0) done();
    for (const [session, ms] of sessions)
      this.env.after(ms, () => {
        if (!pending.delete(session)) return;
        late.add(session);
        if (pending.size === 0) done();
      });
  }

  /**
   * Redis would refuse while units are out: they are recalled, and Redis decides again without the recalled entries.
   */
  private recallUnits(verification: Verification, from: Ask['recalled'], term: number, isAgain: boolean) {
    verification.recalls++;
    const others = this.recalled.get(verification.key);
    if (others && !isAgain) {
      others.push(verification);
      return;
    }
    this.recalled.set(verification.key, others ?? []);
    const sessions = new Map(from.map(({ session }) => [session, term * drift]));
    this.recall(sessions, from, () => this.ask(verification, from));
  }

  private resume(key: number) {
    const waiting = this.recalled.get(key);
    this.recalled.delete(key);
    for (const verification of waiting ?? []) this.verify(verification);
  }

  // ---- Lives of Redis

  /** Calls `seen` with the life that it is now, and what sessions have seen; with undefined when that is lost. */
  private look(known: (reply: { life: number; seen: Seen[] } | undefined) => void = () => {}) {
    if (!this.env.setting.looks) return known(undefined);
    const seen = this.life && { life: this.life.life, ms: this.env.clock() - this.life.since };
    const onReply = (reply: unknown) => {
      const { life } = reply as { life: number };
      if (life !== this.life?.life) this.life = { life, since: this.env.clock() };
      known(reply as { life: number; seen: Seen[] });
    };
    this.env.send({ kind: 'look', session: this.id, seen } satisfies Look, onReply, () => known(undefined));
  }

  /** Whether Redis is so old that all leases that it may have forgotten have ended. */
  private isOlder(ms: number, reply: { life: number; seen: Seen[] } | undefined): boolean {
    const { sameLife, oldLife } = this.env.setting.rules;
    const isOld = (one: Seen) => (one.life === reply?.life || !sameLife) && (one.ms >= ms || !oldLife);
    return reply?.seen.some(isOld) ?? false;
  }

  // ---- Change

  change(change: Change) {
    this.env.send(
      change,
      (reply) => this.applied(change, reply as { registry: Map<string, Registered>; isLeased: boolean }),
      () => {},
    );
  }

  private applied(change: Change, { registry, isLeased }: { registry: Map<string, Registered>; isLeased: boolean }) {
    const { setting } = this.env;
    const { term, rules } = setting;
    const factor = rules.driftOfChange ? drift : 1;
    const others = new Map([...registry].filter(([session]) => session !== this.id));
    const sinceConnect = this.env.clock() - this.connectedAt;
    const longest = (rules.longestAfterConnect ? boundOf(setting) : term) * factor;
    let waitAfterConnect = rules.waitAfterConnect ? Math.max(0, longest - sinceConnect) : 0;
    let whenKnown: (() => void) | undefined;
    let isKnown = waitAfterConnect === 0;
    if (!isKnown)
      this.look((reply) => {
        if (this.isOlder(longest, reply)) waitAfterConnect = 0;
        isKnown = true;
        whenKnown?.();
      });
    // Nothing was changed, as credits were out: they are back now.
    const answer = () => (isLeased ? this.change({ ...change, isAgain: true }) : this.env.answered(change));
    const started = this.env.clock();
    const finish = (late: Set<string>) => {
      const silent = [...late].filter((session) => session !== this.id);
      const sessions = silent.map((session) => ({ session, granted: others.get(session)!.granted }));
      if (sessions.length > 0)
        this.env.send(
          { kind: 'remove', sessions } satisfies Removal,
          () => {},
          () => {},
        );
      whenKnown = () => {
        const left = started + waitAfterConnect - this.env.clock();
        if (left > 0) this.env.after(left, answer);
        else answer();
      };
      if (isKnown) whenKnown();
    };
    const longestOfAll = Math.max(0, ...[...registry.values()].map((entry) => entry.term));
    const waitFor = (own: number) => (rules.termOfHolder ? (rules.waitsForEach ? own : longestOfAll) : term) * factor;
    const waits = new Map([...others].map(([session, entry]) => [session, waitFor(entry.term)]));
    // What this session settles need not be waited for longer than leases last.
    waits.set(this.id, boundOf(setting) * factor);
    // The leases of this session end now, and like those of others they are returned before the change is answered.
    this.drop();
    this.recall(waits, undefined, finish);
  }
}
