// Runs the protocol (model.ts, session.ts): real time, clocks that drift, a network that delays, reorders and loses,
// servers that are killed, paused and disconnected, a Redis that restarts without its last writes and whose clock
// steps. A run is a list of steps, so that a failure shrinks to a few of them; the same steps always give the same run.
import { Checks, type Observed } from './checks.ts';
import {
  boundOf,
  type Change,
  change,
  decide,
  endHold,
  hourMs,
  type Key,
  type Limit,
  type Look,
  leave,
  look,
  type Mutation,
  type Owner,
  type RedisState,
  remove,
  type Script,
  type Setting,
  settle,
} from './model.ts';
import { type Environment, type Lease, type Message, Session, type Verification } from './session.ts';

export type Step =
  | { do: 'verify'; server: number; key: number; request: number; times: number; wanted: number }
  | { do: 'hold'; server: number; key: number; request: number; ttl: number }
  | { do: 'endHold'; server: number; key: number; which: number; used: 0 | 1 | 2 }
  | { do: 'change'; server: number; key: number; mutation: Mutation }
  | { do: 'wait'; ms: number }
  | { do: 'waitUntil'; what: 'leaseEnds' | 'sliceEnds' | 'unitsFree' | 'refill' | 'hourEnds' | 'settled' }
  | { do: 'pause' | 'resume' | 'kill'; server: number }
  | { do: 'disconnect'; server: number; arrivesAfter: number | undefined; reconnectsAfter: number }
  | { do: 'restartRedis'; lost: number }
  | { do: 'stepClock'; ms: number };

export interface Scenario {
  term: number;
  long: number;
  /** What sessions add to their terms, one for each request, in turn. */
  added: number[];
  reserve: number;
  looks: boolean;
  keys: (Omit<Key, 'state' | 'holds' | 'balances' | keyof Owner> & { limits?: readonly Limit[] })[];
  /** Limits of each. */
  identities: (readonly Limit[])[];
  /** Rate of Redis's clock, then of each server's. */
  rates: number[];
  /** One for each message, in turn. */
  delays: number[];
  steps: Step[];
}

/** In place of a delay: a pub/sub message is lost. On a connection it arrives at once. */
export const lostDelay = -1;
/** A message that takes longer is a fault: nothing is promised about refusals. */
const promptMs = 5;
/** Redis's time at the start, divisible by all slices. */
export const startMs = 6_400_000;

const noted = () => {};

const newOwner = (id: string, limits: readonly Limit[]): Owner => {
  return { id, limits, version: 0, windows: {}, leases: [], pausedUntil: 0, heldUntil: 0 };
};

interface Connection {
  isOpen: boolean;
  /** Messages arrive in order. */
  arrivedAt: number;
  repliedAt: number;
  inFlight: Set<{ isLost: boolean; isSent: boolean; run: () => void; onLost: () => void }>;
}

class Server implements Environment {
  session: Session;
  connection: Connection | undefined;
  isPaused = false;
  isKilled = false;
  faultUntil = -1;
  connectedAt = 0;
  readonly missed: (() => void)[] = [];
  readonly id: string;
  readonly rate: number;
  private readonly world: World;

  constructor(world: World, id: string, rate: number) {
    [this.world, this.id, this.rate] = [world, id, rate];
    this.session = new Session(id, this);
  }

  get setting() {
    return this.world.setting;
  }

  clock() {
    return this.world.now * this.rate;
  }

  added() {
    return this.world.added();
  }

  /** Runs now, or when the process resumes. */
  handle(run: () => void) {
    if (this.isKilled) return;
    if (this.isPaused) this.missed.push(run);
    else run();
  }

  fault(until: number) {
    this.faultUntil = Math.max(this.faultUntil, until);
  }

  after(ms: number, run: () => void) {
    this.world.at(this.world.now + ms / this.rate, () => this.handle(run));
  }

  connect() {
    this.connection = { isOpen: true, arrivedAt: 0, repliedAt: 0, inFlight: new Set() };
    this.connectedAt = this.world.now;
    this.session.connected();
  }

  /** The process sees that its connection is lost, and connects again. */
  disconnected(reconnectsAfter: number) {
    const { connection } = this;
    this.session.isConnected = false;
    this.connection = undefined;
    for (const { onLost } of connection?.inFlight ?? []) onLost();
    this.world.at(this.world.now + reconnectsAfter, () => this.handle(() => this.connect()));
  }

  send(script: Script, onReply: (reply: unknown) => void, onLost: () => void) {
    this.world.send(this, script, onReply, onLost);
  }

  publish(to: string, message: Message) {
    this.world.publish(this, to, message);
  }

  decided(verification: Verification, outcome: string, version: number, lease: Lease | undefined) {
    this.world.note(
      () =>
        `${this.id} key ${verification.key}: ${outcome}${lease ? ` by lease ${lease.number}` : ''} (version ${version})`,
    );
    this.world.checks.decided(verification, outcome, version, lease, this.id);
  }

  failed() {}

  accepted(lease: Lease) {
    this.world.checks.accepted(lease, this.world.redisElapsedAt(lease.ends / this.rate));
  }

  answered(change: Change) {
    this.world.note(() => `${this.id} answers ${JSON.stringify(change.mutation)} of key ${change.key}`);
    this.world.checks.answered(change, this.id);
  }
}

export class World implements Observed {
  now = 0;
  readonly setting: Setting;
  redis: RedisState;
  readonly checks: Checks;
  readonly servers: Server[];
  readonly trace: string[] = [];
  private readonly scenario: Scenario;
  private readonly isTraced: boolean;
  private readonly queue: { at: number; run: () => void }[] = [];
  private readonly mayRestart: boolean;
  private readonly history: { write: number; state: RedisState }[] = [];
  private readonly all = new Map<string, Server>();
  private delays = 0;
  private adds = 0;
  private steppedMs = 0;
  private settlements = 0;
  private isEnding = false;
  private lastLine = '';
  private repeated = 0;

  constructor(rules: Setting['rules'], scenario: Scenario, isTraced = false) {
    this.scenario = scenario;
    this.isTraced = isTraced;
    this.mayRestart = scenario.steps.some((step) => step.do === 'restartRedis');
    const { term, long, reserve, looks } = scenario;
    this.setting = { rules, term, long, reserve, looks };
    this.redis = {
      keys: scenario.keys.map((key, index) => {
        return { ...key, ...newOwner(`k${index}`, key.limits ?? []), state: 'stored', holds: [], balances: 0 };
      }),
      identities: scenario.identities.map((limits, index) => newOwner(`i${index}`, limits)),
      registry: new Map(),
      life: 1,
      seen: new Map(),
      holds: 0,
      usage: {},
    };
    this.checks = new Checks(this);
    this.servers = scenario.rates.slice(1).map((rate) => this.start(rate));
    // All servers connected longer than a term ago.
    this.advance(2 * boundOf(this.setting));
  }

  private start(rate: number): Server {
    const server = new Server(this, `s${this.all.size + 1}`, rate);
    this.all.set(server.id, server);
    server.connect();
    return server;
  }

  get redisElapsed() {
    return Math.floor(this.redisElapsedAt(this.now));
  }

  redisElapsedAt(time: number) {
    return startMs + time * this.scenario.rates[0]!;
  }

  get redisNow() {
    return this.redisElapsed + this.steppedMs;
  }

  faultUntil(session: string) {
    const server = this.all.get(session)!;
    return server.isPaused || server.isKilled || !server.connection?.isOpen ? Infinity : server.faultUntil;
  }

  isSlow(session: string) {
    return this.faultUntil(session) >= 0;
  }

  connectedAt(session: string) {
    return this.all.get(session)!.connectedAt;
  }

  leasesOf(key: number) {
    return this.servers.flatMap((server) =>
      [...server.session.leases.values()].filter(
        (lease) => lease.key === key && server.clock() + 0.001 < lease.ends && lease.used < (lease.count ?? Infinity),
      ),
    );
  }

  note(text: () => string) {
    if (!this.isTraced) return;
    const line = `${this.now.toFixed(2).padStart(9)} ${text()}`;
    const like = line.replace(/"number":\d+/, '');
    if (like === this.lastLine) this.repeated++;
    else {
      if (this.repeated > 0) this.trace.push(`          and ${this.repeated} more of these`);
      this.trace.push(line);
      this.repeated = 0;
    }
    this.lastLine = like;
  }

  // ---- Time

  at(at: number, run: () => void) {
    let index = this.queue.length;
    while (index > 0 && this.queue[index - 1]!.at > at) index--;
    this.queue.splice(index, 0, { at, run });
  }

  advance(ms: number, most = Infinity) {
    const until = this.now + ms;
    for (let count = 0; count < most && this.queue.length > 0 && this.queue[0]!.at <= until; count++) {
      const { at, run } = this.queue.shift()!;
      this.now = Math.max(this.now, at);
      run();
    }
    this.now = until;
  }

  delay() {
    if (this.isEnding) return 0;
    const { delays } = this.scenario;
    return delays[this.delays++ % delays.length]!;
  }

  added() {
    const { added } = this.scenario;
    return added[this.adds++ % added.length]!;
  }

  // ---- Network

  send(server: Server, script: Script, onReply: (reply: unknown) => void, onLost: () => void) {
    const { connection } = server;
    if (!connection) return onLost();
    // The process does not know yet that the connection is lost.
    const message = { isLost: !connection.isOpen, isSent: false, run: () => {}, onLost };
    connection.inFlight.add(message);
    message.run = () => {
      message.isSent = true;
      this.checks.isFromDead = !connection.isOpen;
      const reply = this.runScript(server, script);
      connection.repliedAt = this.arrival(server, connection.repliedAt);
      this.at(connection.repliedAt, () =>
        this.reply(server, connection, message, () => {
          if (script.kind === 'change') this.checks.replied(script);
          onReply(reply);
        }),
      );
    };
    connection.arrivedAt = this.arrival(server, connection.arrivedAt);
    this.at(connection.arrivedAt, () => {
      if (!message.isLost) message.run();
    });
  }

  private reply(
    server: Server,
    connection: Connection,
    message: Parameters<Connection['inFlight']['add']>[0],
    run: () => void,
  ) {
    if (!connection.isOpen) return;
    server.handle(() => {
      if (server.connection !== connection) return;
      connection.inFlight.delete(message);
      run();
    });
  }

  private arrival(server: Server, earliest: number): number {
    const arrival = Math.max(this.now + Math.max(0, this.delay()), earliest);
    if (arrival - this.now > promptMs) server.fault(arrival);
    return arrival;
  }

  publish(from: Server, to: string, message: Message) {
    const target = this.all.get(to)!;
    const lose = () => {
      this.note(() => `${message.kind} ${message.id} from ${from.id} to ${to} is lost`);
      for (const server of [from, target]) server.fault(this.now);
    };
    if (!from.connection?.isOpen) return lose();
    const { connection } = from;
    connection.arrivedAt = this.arrival(from, connection.arrivedAt);
    this.at(connection.arrivedAt, () => {
      const delay = this.delay();
      const subscription = target.connection;
      if (!connection.isOpen || !subscription?.isOpen || delay === lostDelay) return lose();
      if (delay > promptMs) for (const server of [from, target]) server.fault(this.now + delay);
      this.at(this.now + delay, () => {
        if (!subscription.isOpen) return lose();
        target.handle(() => {
          this.note(() => `${to} receives ${message.kind} ${message.id}`);
          target.session.receive(message);
        });
      });
    });
  }

  /** One script run in Redis. */
  private runScript(server: Server, script: Script): unknown {
    // It writes nothing that the promises are about.
    if (script.kind === 'look') return look(this.redis, script);
    if (this.mayRestart) this.history.push({ write: this.checks.write, state: copyOf(this.redis) });
    if (this.history.length > 20) this.history.shift();
    this.checks.write++;
    const reply = this.replyOf(server, script);
    this.note(
      () =>
        `Redis ${JSON.stringify(script)} of ${server.id} -> ${JSON.stringify(reply instanceof Map ? [...reply] : reply)}`,
    );
    this.checks.afterScript();
    return reply;
  }

  private replyOf(server: Server, script: Exclude<Script, Look>): unknown {
    const { redis, redisNow, setting, checks } = this;
    switch (script.kind) {
      case 'decide': {
        const decision = decide(redis, redisNow, script, setting, checks);
        if (decision.outcome !== 'RECALL') checks.decidedByRedis(decision, redisNow, script);
        return decision;
      }
      case 'endHold':
        return endHold(redis, redisNow, script, setting, checks);
      case 'settle':
        this.settlements++;
        return settle(redis, redisNow, script, setting, checks);
      case 'change': {
        checks.changing(script, server.id);
        const reply = change(redis, redisNow, script, checks.write, setting, checks);
        checks.changed(script, reply.registry);
        return reply;
      }
      case 'remove':
        return remove(redis, redisNow, script, setting);
      case 'leave':
        return leave(redis, script);
    }
  }

  // ---- Steps

  run() {
    for (const step of this.scenario.steps) {
      this.note(() => JSON.stringify(step));
      this.step(step);
    }
    this.end();
  }

  private step(step: Step) {
    const server = 'server' in step ? this.servers[step.server % this.servers.length]! : undefined;
    switch (step.do) {
      case 'verify':
      case 'hold':
        return this.verify(server!, step);
      case 'endHold':
        return this.send(server!, { ...step, kind: 'endHold', key: step.key % this.redis.keys.length }, noted, noted);
      case 'change':
        return this.change(server!, step.key % this.redis.keys.length, step.mutation);
      case 'wait':
        return this.advance(step.ms);
      case 'waitUntil':
        if (step.what === 'settled') return this.advanceToSettlement();
        return this.advance(Math.max(0, this.momentOf(step.what)));
      case 'pause':
        server!.isPaused = true;
        return;
      case 'resume':
        return this.resume(server!);
      case 'kill':
        return this.kill(server!);
      case 'disconnect':
        return this.disconnect(server!, step.reconnectsAfter, step.arrivesAfter);
      case 'restartRedis':
        return this.restartRedis(step.lost);
      case 'stepClock':
        this.steppedMs += step.ms;
        this.checks.stepped(step.ms);
    }
  }

  private verify(server: Server, step: Step & { do: 'verify' | 'hold' }) {
    const begun = this.now;
    const key = step.key % this.redis.keys.length;
    const request = step.request % this.redis.keys[key]!.requests.length;
    const [times, wanted, hold] = step.do === 'hold' ? [1, 0, step.ttl] : [step.times, step.wanted, undefined];
    for (let time = 0; time < times; time++)
      server.handle(() => server.session.verify({ key, request, wanted, begun, recalls: 0, hold }));
  }

  private change(server: Server, key: number, mutation: Mutation) {
    const begun = this.now;
    server.handle(() => server.session.change({ kind: 'change', key, mutation, begun, isAgain: false }));
  }

  /** Until Redis has run the next settlement, and its reply is on its way. */
  private advanceToSettlement() {
    const until = this.now + boundOf(this.setting);
    const { settlements } = this;
    while (this.settlements === settlements && this.now < until) {
      this.advance(Math.min(Math.max((this.queue[0]?.at ?? until) - this.now, 0), until - this.now), 1);
    }
  }

  /** Milliseconds until something ends. */
  private momentOf(what: (Step & { do: 'waitUntil' })['what']): number {
    const [key] = this.redis.keys;
    const [redisRate] = this.scenario.rates;
    const now = startMs + this.now * redisRate! + this.steppedMs;
    if (what === 'leaseEnds') {
      const ends = this.servers.flatMap((server) =>
        [...server.session.leases.values()].map((lease) => (lease.ends - server.clock()) / server.rate),
      );
      // The last moment of the lease.
      return Math.min(...ends.filter((left) => left > 0), boundOf(this.setting)) - 0.001;
    }
    if (what === 'refill') return ((key?.refill?.at ?? now) - now) / redisRate!;
    if (what === 'hourEnds') return (hourMs - (now % hourMs)) / redisRate!;
    const { identity } = key!;
    const owner = key!.limits.length > 0 || identity === undefined ? key! : this.redis.identities[identity]!;
    const [limit] = owner.limits;
    if (!limit) return 0;
    const slice = Math.floor(limit.duration / 64);
    const oldest = owner.windows[`${limit.name}/${limit.duration}`]?.[0];
    const at = what === 'sliceEnds' ? now - (now % slice) + slice : (oldest?.end ?? 0) + limit.duration;
    return (at - now) / redisRate!;
  }

  private resume(server: Server) {
    if (!server.isPaused) return;
    server.isPaused = false;
    server.fault(this.now);
    for (const run of server.missed.splice(0)) server.handle(run);
  }

  private kill(server: Server) {
    const index = this.servers.indexOf(server);
    if (!server.isPaused) this.checks.killed(server.session, server.clock());
    server.isKilled = true;
    if (server.connection) server.connection.isOpen = false;
    this.servers[index] = this.start(this.scenario.rates[index + 1]!);
  }

  /** What was sent arrives later, or never. Replies are lost. */
  private disconnect(server: Server, reconnectsAfter: number, arrivesAfter: number | undefined) {
    const { connection } = server;
    if (!connection?.isOpen) return;
    connection.isOpen = false;
    server.fault(this.now);
    for (const message of connection.inFlight) {
      message.isLost = true;
      if (arrivesAfter !== undefined && !message.isSent) this.at(this.now + arrivesAfter, message.run);
    }
    server.handle(() => server.disconnected(reconnectsAfter));
  }

  private restartRedis(lost: number) {
    const kept = lost === 0 ? undefined : (this.history.at(-lost) ?? this.history[0]);
    const life = this.redis.life + 1;
    if (kept) this.redis = copyOf(kept.state);
    this.redis.life = life;
    this.history.length = 0;
    this.checks.restarted(kept?.write ?? this.checks.write);
    for (const server of this.servers) this.disconnect(server, Math.max(0, this.delay()), undefined);
  }

  /** All faults end. */
  private end() {
    this.isEnding = true;
    for (const server of this.servers) this.resume(server);
    this.advance(15 * boundOf(this.setting));
    this.checks.ended(new Set(this.servers.map(({ id }) => id)));
  }
}

function copyOf(state: RedisState): RedisState {
  const copied = <T extends Owner>(owner: T): T => ({
    ...owner,
    windows: Object.fromEntries(
      Object.entries(owner.windows).map(([member, window]) => [member, window.map((entry) => ({ ...entry }))]),
    ),
  });
  return {
    keys: state.keys.map(copied),
    identities: state.identities.map(copied),
    registry: new Map(state.registry),
    life: state.life,
    seen: new Map(state.seen),
    holds: state.holds,
    usage: { ...state.usage },
  };
}
