// What the server counts, and how that is told. Counting stands on the hot path, so it is plain additions: names and labels
// are put together when somebody asks. Labels are names of ours (operations, statuses, outcomes, scripts), never a
// caller's.

import { AggregatorRegistry, collectDefaultMetrics, Registry } from 'prom-client';
import { type Outcome, outcomes } from './domain/verification.ts';
import type { StoreObserver } from './store/store.ts';

interface Value {
  value: number;
  labels: Record<string, string | number>;
  /** Where it differs from the family's: `…_bucket`, `…_sum`, `…_count`. */
  metricName?: string;
}

interface Family {
  name: string;
  help: string;
  type: 'counter' | 'gauge' | 'histogram';
  /** How the values of several processes become one. */
  aggregator: string;
  values: Value[];
}

/** The figures of one process, in the form in which prom-client adds those of several up, and as they travel between them. */
export type Snapshot = Family[];

/** Seconds. From a round trip on the same machine to the longest timeout that makes sense. */
const durationBounds = [0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];
/** Items. A batch goes out with 24 of the plain kind. */
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
    let at = 0;
    while (at < bounds.length && value > bounds[at]!) at++;
    this.#counts[at]!++;
    this.#sum += value;
  }

  values(name: string, labels: Value['labels']): Value[] {
    let count = 0;
    const buckets = [...this.#bounds, '+Inf'].map((le, at) => {
      count += this.#counts[at]!;
      return { value: count, labels: { ...labels, le }, metricName: `${name}_bucket` };
    });
    return [
      ...buckets,
      { value: this.#sum, labels, metricName: `${name}_sum` },
      { value: count, labels, metricName: `${name}_count` },
    ];
  }
}

/** The calls of one operation. */
export class Calls {
  readonly statuses = new Map([[200, 0]]);
  readonly durations = new Histogram(durationBounds);

  count(status: number, ms: number) {
    this.statuses.set(status, (this.statuses.get(status) ?? 0) + 1);
    this.durations.observe(ms / 1000);
  }
}

const family = (
  type: Family['type'],
  name: string,
  help: string,
  values: Value[],
  aggregator: string = 'sum',
): Family => ({ name: `tollgate_${name}`, help, type, aggregator, values });

const histogram = (name: string, help: string, label: string, histograms: Iterable<readonly [string, Histogram]>) => {
  const values = [...histograms].flatMap(([word, each]) =>
    each.values(`tollgate_${name}`, label === '' ? {} : { [label]: word }),
  );
  return family('histogram', name, help, values);
};

const single = (value: number): Value[] => [{ value, labels: {} }];

/** The counts of one process, all beginning at 0. */
export function createMetrics() {
  const operations = new Map<string, Calls>();
  const verified = new Map<Outcome, number>(outcomes.map((outcome) => [outcome, 0]));
  const scripts = new Map<string, Histogram>();
  const batches = new Histogram(sizeBounds);
  const count = {
    begun: 0,
    passed: 0,
    blocked: 0,
    overloaded: 0,
    recordsRefused: 0,
    connected: 0,
    failed: 0,
    restarted: 0,
  };
  const uncounted = { identifier: 0, tag: 0 };
  /** Milliseconds that the oldest due entry had waited: in the last whole sweep, and in the one under way. */
  const late = { refill: { last: 0, now: 0 }, purge: { last: 0, now: 0 } };
  let sweptAt: number | undefined;
  /** Records of the largest workspace: in the last whole count of all, and in the one under way. */
  const largest = { last: 0, now: 0 };

  const observe: StoreObserver = {
    connected() {
      count.connected++;
    },
    ran(script, ms, isOk) {
      const durations = scripts.get(script) ?? new Histogram(durationBounds);
      scripts.set(script, durations);
      durations.observe(ms / 1000);
      if (!isOk) count.failed++;
    },
    sent: (size) => batches.observe(size),
    verified(outcome) {
      verified.set(outcome, verified.get(outcome)! + 1);
    },
    limited(passed) {
      if (passed) count.passed++;
      else count.blocked++;
    },
    uncounted(identifiers, tags) {
      uncounted.identifier += identifiers;
      uncounted.tag += tags;
    },
    overloaded() {
      count.overloaded++;
    },
    recordsRefused() {
      count.recordsRefused++;
    },
    records(count) {
      largest.now = Math.max(largest.now, count);
    },
    due(queue, lateMs) {
      late[queue].now = Math.max(late[queue].now, lateMs);
    },
  };

  return {
    /** For the store. */
    observe,

    /** A request has come in; `count` of its operation says that it is answered. */
    begin() {
      count.begun++;
    },

    /** The counts of an operation, or of what is none: made by whoever declares it, never by a request. */
    callsOf(operation: string): Calls {
      const known = operations.get(operation) ?? new Calls();
      operations.set(operation, known);
      return known;
    },

    /** The sweeper begins; this process then tells of it. */
    sweeps() {
      sweptAt = performance.now();
    },

    /** The sweeper has been through all workspaces, and nothing failed. */
    swept() {
      for (const queue of [late.refill, late.purge]) Object.assign(queue, { last: queue.now, now: 0 });
      // Only some sweeps count.
      if (largest.now > 0) Object.assign(largest, { last: largest.now, now: 0 });
      sweptAt = performance.now();
    },

    restarted() {
      count.restarted++;
    },

    /** The counts as they are, with what only others know: whether Redis is ready, how many requests wait for it. */
    snapshot({ redisUp, waiting }: { redisUp: boolean; waiting: number }): Snapshot {
      const calls = [...operations];
      const requests = calls.flatMap(([operation, { statuses }]) =>
        [...statuses].map(([status, value]) => ({ value, labels: { operation, status } })),
      );
      const answered = requests.reduce((sum, { value }) => sum + value, 0);
      const used = calls.filter(([, { statuses }]) => [...statuses.values()].some((value) => value > 0));
      const served = used.map(([operation, { durations }]) => [operation, durations] as const);
      const lag = Object.entries(late).map(([queue, { last, now }]) => ({
        value: Math.max(last, now) / 1000,
        labels: { queue },
      }));
      const limited = (['passed', 'blocked'] as const).map((result) => ({ value: count[result], labels: { result } }));
      const outcomeCounts = [...verified].map(([outcome, value]) => ({ value, labels: { outcome } }));
      return [
        family('gauge', 'processes', 'Processes that these figures are the sum of.', single(1)),
        family(
          'counter',
          'worker_restarts_total',
          'Workers that ended and were started again.',
          single(count.restarted),
        ),
        family('counter', 'requests_total', 'Requests answered, by operation and HTTP status.', requests),
        histogram(
          'request_duration_seconds',
          'From the whole request being read to its answer being made, by operation.',
          'operation',
          served,
        ),
        family('gauge', 'requests_in_flight', 'Requests being handled.', single(count.begun - answered)),
        family('counter', 'verifications_total', 'Keys verified, by outcome.', outcomeCounts),
        family('counter', 'limit_checks_total', 'Calls of limit and multiLimit, by result.', limited),
        family(
          'counter',
          'usage_uncounted_total',
          'Usage counts by identifier or tag left out because the day had no room for another.',
          Object.entries(uncounted).map(([by, value]) => ({ value, labels: { by } })),
        ),
        histogram('batch_size', 'Verifications and limit checks that went to Redis together.', '', [['', batches]]),
        family('gauge', 'redis_waiting', 'Verifications and limit checks waiting for Redis.', single(waiting)),
        family(
          'counter',
          'overload_refusals_total',
          'Requests refused because IN_FLIGHT_MAX were waiting.',
          single(count.overloaded),
        ),
        family(
          'counter',
          'record_refusals_total',
          'Calls refused because the workspace has as many records as RECORDS_MAX allows.',
          single(count.recordsRefused),
        ),
        histogram('redis_duration_seconds', 'Round trips to Redis, by script.', 'script', scripts),
        family(
          'counter',
          'redis_failures_total',
          'Round trips that failed: no answer in time, or an error.',
          single(count.failed),
        ),
        family(
          'gauge',
          'redis_up',
          '1 when Redis answers in time and has every script.',
          single(redisUp ? 1 : 0),
          'min',
        ),
        family(
          'counter',
          'redis_reconnects_total',
          'Connections to Redis made after the first.',
          single(Math.max(count.connected - 1, 0)),
        ),
        ...(sweptAt === undefined
          ? []
          : [
              family(
                'gauge',
                'sweeper_lag_seconds',
                'How long the oldest due refill or purge had waited when the sweeper came.',
                lag,
                'max',
              ),
              family(
                'gauge',
                'largest_workspace_records',
                'Records of the workspace that has the most, counted once a minute.',
                single(Math.max(largest.last, largest.now)),
                'max',
              ),
              family(
                'gauge',
                'sweeper_last_sweep_age_seconds',
                'Time since the last sweep of all workspaces without an error, or since the start.',
                single((performance.now() - sweptAt) / 1000),
                'max',
              ),
            ]),
      ];
    },
  };
}

export type Metrics = ReturnType<typeof createMetrics>;

/** Memory, CPU, event loop and garbage collection of this process, from now on. Call it once. */
export function watchProcess(): () => Promise<Snapshot> {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  return async () => {
    const families = (await registry.getMetricsAsJSON()) as unknown as Snapshot;
    return families.map((each) => ({
      ...each,
      // It would leave the start out of a sum; the first process's is the server's.
      aggregator: each.aggregator === 'omit' ? 'min' : each.aggregator,
      // Scraped twice at once, it has no mean of the event loop's lag, and says so with a NaN.
      values: each.values.filter(({ value }) => Number.isFinite(value)),
    }));
  };
}

/** Without what holds for a moment only. */
export const lastingOf = (snapshot: Snapshot): Snapshot => snapshot.filter(({ type }) => type !== 'gauge');

export const sumOf = async (snapshots: Snapshot[]): Promise<Snapshot> =>
  (await AggregatorRegistry.aggregate(snapshots).getMetricsAsJSON()) as unknown as Snapshot;

export const metricsType = 'text/plain; version=0.0.4; charset=utf-8';

/** Several snapshots added up, as Prometheus reads it. */
export const textOf = (snapshots: Snapshot[]): Promise<string> => AggregatorRegistry.aggregate(snapshots).metrics();

/** The text for Prometheus, and how long ago it was computed. */
export interface Scrape {
  text: string;
  ageMs: number;
}

/** A scrape takes milliseconds of the event loop. */
const scrapeAgeMaxMs = 1_000;

/** Computes at most once a second; requests in between, and concurrent ones, share the text. */
export function onceASecond(compute: () => Promise<Scrape>): () => Promise<Scrape> {
  let computed: { text: string; at: number } | undefined;
  let computing: Promise<Scrape> | undefined;
  async function refresh(): Promise<Scrape> {
    const startedAt = performance.now();
    const scrape = await compute();
    computed = { text: scrape.text, at: startedAt - scrape.ageMs };
    return scrape;
  }
  return async () => {
    const ageMs = computed ? performance.now() - computed.at : scrapeAgeMaxMs;
    if (computed && ageMs < scrapeAgeMaxMs) return { text: computed.text, ageMs };
    computing ??= refresh().finally(() => {
      computing = undefined;
    });
    return computing;
  };
}
