// Migrates the data to the version of this release, step by step (version n to n + 1), while servers use it. A step is
// a script that migrates some records of a workspace and stores its place. One process at a time runs it, under a lock
// whose number the script checks. If that process is killed, another one continues from the stored places.

import { setTimeout as delay } from 'node:timers/promises';
import { chunks } from '../redis/chunks.ts';
import { orStoreError, type RedisClient } from '../redis/connection.ts';
import { earlierClients } from '../redis/earlierClients.ts';
import { apisKey, dataKey, deletedKeysKey, formKey, identitiesKey, keysKey, workspaceKey } from '../redis/names.ts';
import type { Run } from '../scripts/calls.ts';
import type { Supported } from '../scripts/dataVersion.ts';
import type { Heartbeat } from './heartbeat.ts';

/** A step from a version to the next one. */
interface Step {
  to: number;
  /** Without one, no stored record changes: servers that support the version write new forms once all of them do. */
  script?: 'migrations/to5';
  does: string;
}

const steps: readonly Step[] = [
  { to: 5, script: 'migrations/to5', does: 'indexes keys by expiry, and removes a field that nothing reads' },
  { to: 6, does: 'allows holds, and other records that earlier releases cannot read' },
  { to: 7, does: 'lets the holds of a key have their bytes counted and bounded' },
  { to: 8, does: 'allows quotas, which earlier releases would take for windows' },
];

/** How long the lock lasts without being renewed, and how often it is. */
const lockMs = { term: 10_000, renew: 1_000 };
/** The time that a script should take, and the pause after it, in times of that. Verifications run in the pause. */
const scriptMicros = 1_000;
const pauseTimes = 1.5;
const records = { first: 32, min: 8, max: 500 };
/**
 * After the last record, the places are read again: a Redis that was killed, or a replica that took over, may have lost
 * what it confirmed in the last second.
 */
const settleMs = 1_500;
/** APIs that one step of counting reads. */
const countApis = 500;

export interface Plan {
  version: number;
  newest: number;
  /** A description of each step. */
  steps: string[];
  workspaces: number;
  records: number;
  /** Why the migration does not start by itself. */
  blockers: Blockers;
}

export interface Progress {
  to: number;
  done: number;
  total: number;
}

/** Reasons that prevent a migration. */
interface Blockers {
  /** Registered servers that do not support the next version. */
  registered: string[];
  /** Connections that may be those of servers that do not register; undefined if Redis does not list connections. */
  unnamed: string[] | undefined;
}

/** `blocked`: a server does not support the next version. `busy`: another process has the lock. */
type Outcome = 'migrated' | 'blocked' | 'busy' | 'stopped';

interface MigrateOptions {
  /** Migrates even if Redis does not list connections. */
  byHand?: boolean;
  /** An operator states that the connections without a name are not those of servers of an earlier release. */
  force?: boolean;
  isStopped?: () => boolean;
  onProgress?: (progress: Progress) => void;
}

interface MigrationsOptions {
  redis: RedisClient;
  run: Run;
  heartbeat: Heartbeat;
  workspaceIds: () => Promise<string[]>;
  supported: Supported;
}

/** The blockers as sentences. */
export function blockersAsText({ registered, unnamed }: Blockers): string[] {
  if (!unnamed)
    return [
      ...registered,
      'Redis does not list its connections to this account (CLIENT LIST), so servers before Tollgate 1.0.0 would not be noticed.',
    ];
  const addresses = unnamed.length > namedMax ? [...unnamed.slice(0, namedMax), 'others'] : unnamed;
  if (addresses.length === 0) return registered;
  return [
    ...registered,
    `Connections without a name may be those of servers before Tollgate 1.0.0: from ${addresses.join(', ')}.`,
  ];
}

const namedMax = 10;

/** The lock is lost: another process continues. */
class LockLost extends Error {}
class Stopped extends Error {}

export class Migrations {
  readonly #options: MigrationsOptions;

  constructor(options: MigrationsOptions) {
    this.#options = options;
  }

  /** Whether the data has an earlier version than this release migrates to. */
  get isDue(): boolean {
    return this.#options.heartbeat.current < this.#options.supported.newest;
  }

  /** The servers that do not support version `to`, or may not. */
  async blockers(to = this.#options.supported.newest): Promise<Blockers> {
    const { redis, heartbeat } = this.#options;
    const older = (await heartbeat.beat()).filter(({ newest }) => newest < to);
    return {
      registered: older.map(({ release, newest }) => `A server of Tollgate ${release} reads versions up to ${newest}.`),
      unnamed: heartbeat.current >= firstRegistered ? [] : await orStoreError(earlierClients(redis)),
    };
  }

  async plan(): Promise<Plan> {
    const { heartbeat, supported, workspaceIds } = this.#options;
    const { current: version } = heartbeat;
    const due = steps.filter(({ to }) => to > version);
    const ids = await workspaceIds();
    return {
      version,
      newest: supported.newest,
      steps: due.map(({ to, does }) => `${to - 1} to ${to}: ${does}`),
      workspaces: ids.length,
      records: due.some(({ script }) => script) ? await countRecords(this.#options.redis, ids) : 0,
      blockers: due.length === 0 ? { registered: [], unnamed: [] } : await this.blockers(),
    };
  }

  /** Migrates to the newest version. Rejects if Redis fails; then another call continues. */
  async migrate(options: MigrateOptions = {}): Promise<Outcome> {
    for (const step of steps) {
      if (step.to <= this.#options.heartbeat.current) continue;
      const outcome = await new StepRun(this.#options, step, options).run(() => this.#isBlocked(step, options));
      if (outcome !== 'migrated') return outcome;
      await this.#options.heartbeat.beat();
    }
    return 'migrated';
  }

  async #isBlocked({ to }: Step, { byHand, force }: MigrateOptions): Promise<boolean> {
    const { registered, unnamed } = await this.blockers(to);
    if (registered.length > 0) return true;
    return unnamed === undefined ? !(byHand || force) : unnamed.length > 0 && !force;
  }
}

/** Servers that read this version and later ones register: no others run once the data has it. */
const firstRegistered = 5;

/** Keys with deleted ones, and identities, of these workspaces. */
async function countRecords(redis: RedisClient, ids: readonly string[]): Promise<number> {
  let count = 0;
  for (const some of chunks([...ids], countApis)) {
    const counts = some.map((id) => orStoreError(redis.zcard(identitiesKey(workspaceKey(id)))));
    for (const found of await Promise.all(counts)) count += found;
    for (const id of some) count += await countKeys(redis, workspaceKey(id));
  }
  return count;
}

async function countKeys(redis: RedisClient, workspace: string): Promise<number> {
  let count = 0;
  for (let first = 0; ; first += countApis) {
    const apis = await orStoreError(redis.zrange(apisKey(workspace), `${first}`, `${first + countApis - 1}`));
    const counts = apis.flatMap((api) =>
      [keysKey, deletedKeysKey].map((nameOf) => orStoreError(redis.zcard(nameOf(workspace, api)))),
    );
    for (const found of await Promise.all(counts)) count += found;
    if (apis.length < countApis) return count;
  }
}

/** One step, by one holder of the lock. */
class StepRun {
  readonly #options: MigrationsOptions;
  readonly #step: Step;
  readonly #run: MigrateOptions;
  /** Migrated records by workspace. */
  readonly #done = new Map<string, number>();
  #total = 0;
  #fence = 0;
  /** Number of the migration: places of one that was given up are not used. */
  #number = 0;
  /** No server of an earlier version ran, after none could start any more. */
  #isChecked = false;
  #renewedAt = Number.NEGATIVE_INFINITY;
  #count = records.first;
  /** Milliseconds of pause that are due. */
  #restMs = 0;

  constructor(options: MigrationsOptions, step: Step, run: MigrateOptions) {
    this.#options = options;
    this.#step = step;
    this.#run = run;
  }

  async run(isBlocked: () => Promise<boolean>): Promise<Outcome> {
    const { redis, workspaceIds } = this.#options;
    // Not after the lock, as it is not renewed meanwhile.
    this.#total = this.#step.script ? await countRecords(redis, await workspaceIds()) : 0;
    const claimed = await this.#claim();
    if (claimed !== 'held') return claimed;
    try {
      // Now no server of an earlier release can start. One that started before is found by its connection.
      await orStoreError(redis.set(formKey, String(this.#step.to)));
      if (!this.#isChecked) {
        if (await isBlocked()) {
          await this.#giveUp();
          return 'blocked';
        }
        await orStoreError(redis.hset(dataKey, 'checked', String(this.#number)));
      }
      if (this.#step.script) {
        await this.#migrateAll(this.#step.script);
        await delay(settleMs);
        this.#renewedAt = Number.NEGATIVE_INFINITY;
        await this.#migrateAll(this.#step.script);
      }
      if ((await this.#finish('migrated')) === 0) return 'busy';
      return 'migrated';
    } catch (error) {
      if (error instanceof LockLost) return 'busy';
      if (!(error instanceof Stopped)) throw error;
      await this.#finish('released');
      return 'stopped';
    }
  }

  async #migrateAll(script: NonNullable<Step['script']>) {
    const { workspaceIds } = this.#options;
    const visited = new Set<string>();
    for (;;) {
      // Workspaces may be created meanwhile.
      const ids = (await workspaceIds()).filter((id) => !visited.has(id));
      if (ids.length === 0) return;
      for (const id of ids) {
        await this.#migrateWorkspace(script, id);
        visited.add(id);
      }
    }
  }

  async #migrateWorkspace(script: NonNullable<Step['script']>, workspaceId: string) {
    for (;;) {
      await this.#renew();
      const startedAt = performance.now();
      const given = { fence: this.#fence, run: this.#number, count: this.#count };
      const [outcome, done, micros] = await this.#options.run(script, workspaceId, given);
      if (outcome === 'fenced') throw new LockLost();
      this.#done.set(workspaceId, done);
      // Where Redis stops its clock in scripts, the round trip is the bound.
      this.#adapt(micros || (performance.now() - startedAt) * 1000);
      await this.#rest();
      if (outcome === 'done') return;
    }
  }

  /** Chooses the number of records of the next script by the time of the last one. */
  #adapt(micros: number) {
    const wanted = (this.#count * scriptMicros) / Math.max(micros, 1);
    this.#count = Math.round(Math.max(records.min, Math.min(wanted, 2 * this.#count, records.max)));
    this.#restMs += (pauseTimes * micros) / 1000;
  }

  async #rest() {
    if (this.#restMs < 1) return;
    const startedAt = performance.now();
    await delay(this.#restMs);
    // A timer may be late, which is a pause, too.
    this.#restMs = Math.max(-50, this.#restMs - (performance.now() - startedAt));
  }

  async #renew() {
    if (this.#run.isStopped?.()) throw new Stopped();
    if (performance.now() - this.#renewedAt < lockMs.renew) return;
    if ((await this.#claim()) !== 'held') throw new LockLost();
  }

  async #claim(): Promise<'held' | Outcome> {
    const { run, heartbeat, supported } = this.#options;
    const done = Math.min(this.#sum(), this.#total);
    const [outcome, fence, number, isChecked] = await run('data/claim', dataKey, {
      holder: heartbeat.id,
      release: supported.release,
      target: this.#step.to,
      termMs: lockMs.term,
      done,
      total: this.#total,
    });
    // Redis lost the lock that it had confirmed, and this one is another.
    if (outcome === 'held' && this.#fence !== 0 && fence !== this.#fence) throw new LockLost();
    if (outcome === 'held') {
      this.#fence = fence;
      this.#number = number;
      this.#isChecked = isChecked === 1;
      this.#renewedAt = performance.now();
      this.#run.onProgress?.({ to: this.#step.to, done, total: this.#total });
    }
    return outcome;
  }

  #sum(): number {
    let sum = 0;
    for (const done of this.#done.values()) sum += done;
    return sum;
  }

  /** A server of an earlier release may start again, if this one still has the lock. */
  async #giveUp() {
    await orStoreError(this.#options.redis.set(formKey, String(this.#step.to - 1)));
    await this.#finish('cancelled');
  }

  #finish(outcome: 'migrated' | 'cancelled' | 'released'): Promise<0 | 1> {
    const { run, supported } = this.#options;
    return run('data/finish', dataKey, { fence: this.#fence, outcome, release: supported.release });
  }
}
