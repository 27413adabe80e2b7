// Counts for Prometheus. Counting is on the hot path, so it is plain additions; names and labels are added when the
// metrics are read. Labels are names that Tollgate defines (operations, statuses, outcomes, scripts), never names of
// callers.

import { AggregatorRegistry, collectDefaultMetrics, Registry } from 'prom-client';
import type { UsedBy } from './domain/ending.ts';
import type { Times } from './domain/time.ts';
import { type Outcome, outcomes } from './domain/verification.ts';
import type { RedisGauges } from './redis/gauges.ts';
import type { StoreObserver } from './redis/observer.ts';
import { refusals } from './redis/refusedWrites.ts';
import { dataVersion } from './scripts/layout.ts';
import { buildVersion } from './version.ts';

interface Value {
  value: number;
  labels: Record<string, string | number>;
  /** If it differs from the name of the family: `…_bucket`, `…_sum`, `…_count`. */
  metricName?: string;
}

interface Family {
  name: string;
  help: string;
  type: 'counter' | 'gauge' | 'histogram';
  /** How prom-client combines the values of several processes. */
  aggregator: string;
  values: Value[];
}

/** The metrics of one process. Processes send them to each other, and prom-client adds them up. */
export type Report = Family[];

/** Seconds: from a decision without Redis to the longest sensible timeout. */
const durationBounds = [
  0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5,
];
/** Items: a batch holds at most 24 plain ones. */
const sizeBounds = [1, 2, 4, 8, 12, 16, 24];

class Histogram {
  readonly #bounds: readonly number[];
  readonly #counts: Float64Array;
  #sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = new Float64Array(bounds.length + 1);
  }

  observe(value: number) {
    const bounds = this.#bounds;
    let bucket = 0;
    while (bucket < bounds.length && value > bounds[bucket]!) bucket++;
    this.#counts[bucket]!++;
    this.#sum += value;
  }

  /** How many values are in each bucket. The last one is of values above all bounds. */
  get counts(): Float64Array {
    return this.#counts;
  }

  values(name: string, labels: Value['labels']): Value[] {
    let count = 0;
    const buckets = [...this.#bounds, '+Inf'].map((le, bucket) => {
      count += this.#counts[bucket]!;
      return { value: count, labels: { ...labels, le }, metricName: `${name}_bucket` };
    });
    return [
      ...buckets,
      { value: this.#sum, labels, metricName: `${name}_sum` },
      { value: count, labels, metricName: `${name}_count` },
    ];
  }
}

const recentMs = 60_000;

/**
 * The durations of the last one to two minutes, if they are read at least once a minute. After a longer pause, all
 * since the last two reads: there is no timer.
 */
class RecentTimes {
  readonly #durations: Histogram[] = [];
  #older = { at: performance.now(), counts: new Float64Array(durationBounds.length + 1) };
  #newer = this.#older;

  add(durations: Histogram) {
    this.#durations.push(durations);
  }

  read(): Times {
    const at = performance.now();
    const counts = this.#older.counts.map((_, bucket) =>
      this.#durations.reduce((sum, durations) => sum + durations.counts[bucket]!, 0),
    );
    if (at - this.#newer.at >= recentMs) {
      this.#older = this.#newer;
      this.#newer = { at, counts };
    }
    const since = this.#older;
    const recent = counts.map((count, bucket) => count - since.counts[bucket]!);
    const count = recent.reduce((sum, each) => sum + each, 0);
    const times = count > 0 && { p50Ms: quantileMs(recent, 0.5 * count), p99Ms: quantileMs(recent, 0.99 * count) };
    return { periodMs: Math.round(at - since.at), count, ...times };
  }
}

/**
 * The duration that `wanted` of these requests did not exceed, in milliseconds: an estimate, as the requests in a
 * bucket are taken to be spread evenly over it.
 */
function quantileMs(counts: Float64Array, wanted: number): number {
  let [bucket, before] = [0, 0];
  while (before + counts[bucket]! < wanted) before += counts[bucket++]!;
  const from = durationBounds[bucket - 1] ?? 0;
  const to = durationBounds[bucket] ?? from;
  const seconds = from + ((to - from) * (wanted - before)) / counts[bucket]!;
  return Math.round(seconds * 1e6) / 1000;
}

/**
 * The largest value that a sweep of all workspaces has found: by the last complete sweep, or by the current one if that
 * value is larger.
 */
class SweepMaximum {
  current = 0;
  #last = 0;

  note(value: number) {
    this.current = Math.max(this.current, value);
  }

  completeSweep() {
    this.#last = this.current;
    this.current = 0;
  }

  get value(): number {
    return Math.max(this.#last, this.current);
  }
}

/** The calls of one operation. */
export class Calls {
  #succeeded = 0;
  /** The calls by all other statuses. */
  readonly #failed = new Map<number, number>();
  readonly durations = new Histogram(durationBounds);

  count(status: number, ms: number) {
    if (status === 200) this.#succeeded++;
    else this.#failed.set(status, (this.#failed.get(status) ?? 0) + 1);
    this.durations.observe(ms / 1000);
  }

  /** How many had each status. */
  get statuses(): [status: number, count: number][] {
    return [[200, this.#succeeded], ...this.#failed];
  }
}

/** Without labels, a number. Undefined: the metric is absent. */
type Values = number | undefined | Value[];

function family(type: Family['type'], name: string, help: string, given: Values, aggregator = 'sum'): Family {
  const values = typeof given === 'number' ? [{ value: given, labels: {} }] : (given ?? []);
  return { name: `tollgate_${name}`, help, type, aggregator, values };
}

const counter = (name: string, help: string, values: Values) => family('counter', name, help, values);
const gauge = (name: string, help: string, values: Values, aggregator?: 'min' | 'max') =>
  family('gauge', name, help, values, aggregator);
const histogram = (name: string, help: string, label: string, histograms: Iterable<readonly [string, Histogram]>) => {
  const values = [...histograms].flatMap(([value, each]) =>
    each.values(`tollgate_${name}`, label === '' ? {} : { [label]: value }),
  );
  return family('histogram', name, help, values);
};

const build: Value = {
  value: 1,
  labels: { version: buildVersion, node: process.versions.node, data_version: dataVersion },
};

/** The counts of one process. */
class Counts {
  readonly operations = new Map<string, Calls>();
  readonly verified = new Map<Outcome, { count: number }>(outcomes.map((outcome) => [outcome, { count: 0 }]));
  readonly scripts = new Map<string, Histogram>();
  readonly batches = new Histogram(sizeBounds);
  readonly uncounted = { identifier: 0, tag: 0 };
  readonly leases = { granted: 0, units: 0, returned: 0, decided: 0 };
  readonly changes = new Histogram(durationBounds);
  requests = 0;
  passed = 0;
  blocked = 0;
  overloaded = 0;
  recordsRefused = 0;
  unwritten = 0;
  connected = 0;
  failed = 0;
  workersRestarted = 0;
  /** Milliseconds that the oldest due entry of a queue had waited. */
  readonly lateMs = {
    holds: new SweepMaximum(),
    refill: new SweepMaximum(),
    purge: new SweepMaximum(),
    usage: new SweepMaximum(),
  };
  readonly largestWorkspace = new SweepMaximum();
  /** When the last sweep ended, or sweeping started; undefined in a process that does not sweep. */
  sweptAt: number | undefined;
}

/** Counts what happens between the server and Redis. */
function observerOf(counts: Counts): StoreObserver {
  return {
    connected() {
      counts.connected++;
    },
    ran(script, ms, isOk) {
      const durations = counts.scripts.get(script) ?? new Histogram(durationBounds);
      counts.scripts.set(script, durations);
      durations.observe(ms / 1000);
      if (!isOk) counts.failed++;
    },
    sent: (size) => counts.batches.observe(size),
    verified(outcome) {
      counts.verified.get(outcome)!.count++;
    },
    limited(passed) {
      if (passed) counts.passed++;
      else counts.blocked++;
    },
    uncounted(identifiers, tags) {
      counts.uncounted.identifier += identifiers;
      counts.uncounted.tag += tags;
    },
    unwritten(failures) {
      counts.unwritten += failures;
    },
    overloaded() {
      counts.overloaded++;
    },
    decided() {
      counts.leases.decided++;
    },
    granted(units) {
      counts.leases.granted++;
      counts.leases.units += units;
    },
    returned(units) {
      counts.leases.returned += units;
    },
    waited: (ms) => counts.changes.observe(ms / 1000),
    recordsRefused() {
      counts.recordsRefused++;
    },
    records: (count) => counts.largestWorkspace.note(count),
    due: (queue, lateMs) => counts.lateMs[queue].note(lateMs),
  };
}

/** State that is read when metrics are. */
interface State {
  redisUp: boolean;
  waiting: number;
  /** In Unix milliseconds; undefined without TLS. */
  certificateEndMs: number | undefined;
  /** Only of the first process, as all processes share it. */
  shared: SharedState | undefined;
}

export interface SharedState {
  /** Undefined while Redis does not reply. */
  redis: RedisGauges | undefined;
  /** The disk of the data directory; undefined if Redis is not embedded. */
  disk: { freeBytes: number; sizeBytes: number } | undefined;
  recordsMax: number;
  /** When the first root key in use ends, by its use, in Unix milliseconds. */
  rootKeyEndMs: Partial<Record<UsedBy, number>>;
  isMigrationDue: boolean;
}

/** The counts of one process, all starting at 0. */
export class Metrics {
  readonly #counts = new Counts();
  readonly #decisions = new RecentTimes();
  readonly observe: StoreObserver = observerOf(this.#counts);

  /** A request has arrived. `count` of its operation ends it. */
  begin() {
    this.#counts.requests++;
  }

  /** The counts of an operation, or of requests to no operation. Called at start, never by a request. */
  callsOf(operation: string, kind?: 'decides' | 'manages'): Calls {
    const known = this.#counts.operations.get(operation);
    if (known) return known;
    const calls = new Calls();
    this.#counts.operations.set(operation, calls);
    if (kind === 'decides') this.#decisions.add(calls.durations);
    return calls;
  }

  /** The durations of recent verifications and limit checks, from the complete request to its response. */
  readonly decisionTimes = (): Times => this.#decisions.read();

  /** The sweeper starts: from now on the report contains its metrics. */
  sweeps() {
    this.#counts.sweptAt = performance.now();
  }

  /** The sweeper has processed all workspaces without an error. */
  swept() {
    const { lateMs, largestWorkspace } = this.#counts;
    for (const late of Object.values(lateMs)) late.completeSweep();
    // Not every sweep counts records.
    if (largestWorkspace.current > 0) largestWorkspace.completeSweep();
    this.#counts.sweptAt = performance.now();
  }

  workerRestarted() {
    this.#counts.workersRestarted++;
  }

  report(state: State): Report {
    return [
      // With `max` the value is 1 with any number of workers.
      gauge('build_info', 'Version of Tollgate, of Node, and of the stored data. Always 1.', [build], 'max'),
      gauge('processes', 'Processes whose metrics are included.', 1),
      counter('worker_restarts_total', 'Workers that ended and were restarted.', this.#counts.workersRestarted),
      ...requestFamilies(this.#counts),
      ...usageFamilies(this.#counts),
      ...redisFamilies(this.#counts, state),
      ...(state.shared ? resourceFamilies(state.shared) : []),
      ...endingFamilies(state),
      ...leaseFamilies(this.#counts),
      ...sweeperFamilies(this.#counts),
    ];
  }
}

function requestFamilies({ operations, requests: begun }: Counts): Family[] {
  const calls = [...operations];
  const requests = calls.flatMap(([operation, { statuses }]) =>
    statuses.map(([status, value]) => ({ value, labels: { operation, status } })),
  );
  const ended = requests.reduce((sum, { value }) => sum + value, 0);
  const durations = calls
    .filter(([, { statuses }]) => statuses.some(([, count]) => count > 0))
    .map(([operation, call]) => [operation, call.durations] as const);
  return [
    counter('requests_total', 'Requests by operation and HTTP status.', requests),
    histogram(
      'request_duration_seconds',
      'Time from the complete request to its response, by operation.',
      'operation',
      durations,
    ),
    gauge('requests_in_flight', 'Requests in progress.', begun - ended),
  ];
}

function usageFamilies({ verified, passed, blocked, uncounted }: Counts): Family[] {
  return [
    counter(
      'verifications_total',
      'Key verifications by outcome.',
      [...verified].map(([outcome, { count }]) => ({ value: count, labels: { outcome } })),
    ),
    counter('limit_checks_total', 'Calls of limit and multiLimit by result.', [
      { value: passed, labels: { result: 'passed' } },
      { value: blocked, labels: { result: 'blocked' } },
    ]),
    counter(
      'usage_uncounted_total',
      'Usage that was not counted by identifier or tag because the maximum of the day was reached.',
      Object.entries(uncounted).map(([by, value]) => ({ value, labels: { by } })),
    ),
  ];
}

function redisFamilies(counts: Counts, { redisUp, waiting }: State): Family[] {
  return [
    histogram('batch_size', 'Verifications and limit checks per batch sent to Redis.', '', [['', counts.batches]]),
    gauge('redis_waiting', 'Verifications and limit checks waiting for Redis.', waiting),
    counter('overload_refusals_total', 'Requests rejected because IN_FLIGHT_MAX were waiting.', counts.overloaded),
    counter(
      'unwritten_total',
      'Writes after the charge of a decision that failed, such as a count of usage. The decision was answered.',
      counts.unwritten,
    ),
    counter(
      'record_refusals_total',
      'Calls rejected because the workspace has reached RECORDS_MAX.',
      counts.recordsRefused,
    ),
    histogram('redis_duration_seconds', 'Round trips to Redis by script.', 'script', counts.scripts),
    counter('redis_failures_total', 'Round trips to Redis that failed: no reply in time, or an error.', counts.failed),
    gauge('redis_up', '1 if Redis replies in time and has all scripts, else 0.', redisUp ? 1 : 0, 'min'),
    counter('redis_reconnects_total', 'Connections to Redis made after the first.', Math.max(counts.connected - 1, 0)),
  ];
}

/** What runs out: memory of Redis, disk, and records. Alerts on these come before requests are refused. */
function resourceFamilies({ redis, disk, recordsMax }: SharedState): Family[] {
  const { memory, aof, aofBytes, refusing } = redis ?? {};
  const refused = refusing ? refusals.map((reason) => ({ value: refusing.get(reason) ?? 0, labels: { reason } })) : [];
  return [
    gauge('redis_writes_refused', 'Redis masters that refuse writes, by reason.', refused, 'max'),
    gauge(
      'redis_memory_bytes',
      'Memory that Redis uses. Of a Cluster, of the fullest master.',
      memory?.usedBytes,
      'max',
    ),
    gauge(
      'redis_memory_max_bytes',
      'maxmemory of the same Redis, or the memory of its machine.',
      memory?.maxBytes,
      'max',
    ),
    gauge('redis_aof_enabled', '1 if Redis writes an append-only file, else 0.', aof?.enabled, 'min'),
    gauge('redis_aof_written', '1 if Redis could write to its append-only file last, else 0.', aof?.written, 'min'),
    gauge('redis_aof_rewritten', '1 if Redis could rewrite its append-only file last, else 0.', aof?.rewritten, 'min'),
    gauge('redis_aof_bytes', 'Size of the append-only file.', aofBytes, 'max'),
    gauge('disk_free_bytes', 'Free space of the disk with TOLLGATE_DATA_DIR.', disk?.freeBytes, 'max'),
    gauge('disk_size_bytes', 'Size of the disk with TOLLGATE_DATA_DIR.', disk?.sizeBytes, 'max'),
    gauge('records_max', 'RECORDS_MAX; 0 is no maximum.', recordsMax, 'max'),
  ];
}

const endingFamilies = ({ certificateEndMs, shared }: State): Family[] => [
  gauge(
    'certificate_expiry_timestamp_seconds',
    'End of the certificate in use, or of the first of its chain that ends, as Unix time.',
    certificateEndMs && certificateEndMs / 1000,
    'min',
  ),
  gauge(
    'root_key_expiry_timestamp_seconds',
    'First end of a root key in use, as Unix time: of GATEWAY_ROOT_KEY (gateway), and if it is within 14 days, of those used lately (callers) or in the last 7 days (jobs).',
    Object.entries(shared?.rootKeyEndMs ?? {}).map(([used_by, ms]) => ({ value: ms / 1000, labels: { used_by } })),
    'min',
  ),
  gauge(
    'migration_due',
    '1 while the stored data has an earlier version than this release migrates it to, else 0.',
    shared && Number(shared.isMigrationDue),
    'max',
  ),
];

function leaseFamilies({ leases, changes }: Counts): Family[] {
  const { decided, granted, units, returned } = leases;
  return [
    counter('local_decisions_total', 'Verifications and limit checks decided without Redis, by a lease.', decided),
    counter('leases_total', 'Leases granted by Redis.', granted),
    counter('lease_units_total', 'Decisions that leases of units were granted for.', units),
    counter('lease_units_returned_total', 'Of these, decisions given back without use.', returned),
    histogram('change_wait_seconds', 'Time that changes waited for leases.', '', [['', changes]]),
  ];
}

function sweeperFamilies({ sweptAt, lateMs, largestWorkspace }: Counts): Family[] {
  if (sweptAt === undefined) return [];
  const lag = Object.entries(lateMs).map(([queue, { value }]) => ({ value: value / 1000, labels: { queue } }));
  return [
    gauge(
      'sweeper_lag_seconds',
      'Time that the oldest due hold, refill, purge or roll-up of usage had waited when the sweeper processed it.',
      lag,
      'max',
    ),
    gauge(
      'largest_workspace_records',
      'Records of the largest workspace, counted once a minute.',
      largestWorkspace.value,
      'max',
    ),
    gauge(
      'sweeper_last_sweep_age_seconds',
      'Time since the last complete sweep without an error, or since the start.',
      (performance.now() - sweptAt) / 1000,
      'max',
    ),
  ];
}

/** Starts to observe memory, CPU, event loop and garbage collection of this process. To be called once. */
export function watchProcess(): () => Promise<Report> {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  return async () => {
    const families = (await registry.getMetricsAsJSON()) as unknown as Report;
    return families.map((each) => ({
      ...each,
      // With `omit` a sum would lack the start time. The minimum is that of the first process, which is the server's.
      aggregator: each.aggregator === 'omit' ? 'min' : each.aggregator,
      // The mean event loop lag is NaN if two scrapes are at the same time.
      values: each.values.filter(({ value }) => Number.isFinite(value)),
    }));
  };
}

/** The metrics of a process that ended, without gauges, which are valid only while it runs. */
export const withoutGauges = (report: Report): Report => report.filter(({ type }) => type !== 'gauge');

export const sumOf = async (reports: Report[]): Promise<Report> =>
  (await AggregatorRegistry.aggregate(reports).getMetricsAsJSON()) as unknown as Report;

export const metricsType = 'text/plain; version=0.0.4; charset=utf-8';

/** Returns the sum of reports in the text format of Prometheus. */
export const textOf = (reports: Report[]): Promise<string> => AggregatorRegistry.aggregate(reports).metrics();
