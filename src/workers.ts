// Several serving processes on one port (SO_REUSEPORT). The kernel distributes connections among them. A process that
// ends is restarted while the others keep serving.

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';
import { openChannel } from './channel.ts';
import { environmentWith } from './config.ts';
import { type Report, sumOf, withoutGauges } from './metrics.ts';

interface WorkersOptions {
  count: number;
  redisUrl: string;
  host: string;
  port: number;
  log: Logger;
  /** Called when a worker was restarted. */
  onRestart: () => void;
  /** The text for Prometheus. A worker requests it from this process. */
  scrape: () => Promise<string>;
}

const program = fileURLToPath(new URL('./worker.js', import.meta.url));
/** Pause before a restart, so that a worker that ends immediately does not exhaust the machine. */
const restartAfterMs = 200;
/** A worker replies sooner even if Redis does not. A worker that hangs must not delay the metrics of the others. */
const countsWaitMs = 3_000;

const endOf = (code: number | null, signal: string | null) => `A worker ended with ${signal ?? `exit code ${code}`}`;

/** Returns a free port. uWebSockets.js can share only a given port, so the system cannot choose one. */
async function findPort(host: string): Promise<number> {
  const probe = createServer().listen(0, host);
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}

/**
 * Resolves when the first worker listens, and each of the others listens or has failed once. Workers that failed are
 * restarted.
 */
export async function startWorkers({ count, port, ...options }: WorkersOptions): Promise<Workers> {
  const workers = new Workers(port === 0 ? await findPort(options.host) : port, options);
  try {
    await workers.start(count);
    return workers;
  } catch (error) {
    await workers.close();
    throw error;
  }
}

class Workers {
  readonly port: number;
  readonly #options: Omit<WorkersOptions, 'count' | 'port'>;
  readonly #processes = new Set<ChildProcess>();
  readonly #channels = new Map<ChildProcess, ReturnType<typeof openChannel>>();
  /** The last known metrics of each worker. */
  readonly #reports = new Map<ChildProcess, Report>();
  /** The last metrics of workers that ended: Prometheus expects that a sum never decreases. */
  readonly #endedReports: Report[] = [];
  #isStopping = false;

  constructor(port: number, options: Omit<WorkersOptions, 'count' | 'port'>) {
    this.port = port;
    this.#options = options;
  }

  async start(count: number) {
    // The first one alone: an error in the port or the settings ends the start. Later, Redis may fail for a moment.
    await this.#startOne();
    const startOther = () => this.#startOne().catch((error) => void this.#restart(error.message));
    await Promise.all(Array.from({ length: count - 1 }, startOther));
  }

  /** Resolves when the new worker listens; rejects if it ends before. */
  async #startOne(): Promise<void> {
    const { redisUrl, scrape } = this.#options;
    const worker = fork(program, { env: environmentWith({ redisUrl, port: this.port }) });
    // A process without a pid could not be run and never exits: it must not be waited for.
    if (worker.pid !== undefined) this.#processes.add(worker);
    worker.once('exit', () => this.#forget(worker));
    // The first message reports that it listens.
    const listening = once(worker, 'message');
    const ended = once(worker, 'exit').then(([code, signal]) => {
      throw new Error(endOf(code, signal));
    });
    ended.catch(() => {});
    await Promise.race([listening, ended]);
    this.#channels.set(worker, openChannel(worker, { scrape }));
    worker.once('exit', (code, signal) => {
      if (!this.#isStopping) void this.#restart(endOf(code, signal));
    });
  }

  #forget(worker: ChildProcess) {
    this.#processes.delete(worker);
    this.#channels.delete(worker);
    this.#endedReports.push(withoutGauges(this.#reports.get(worker) ?? []));
    this.#reports.delete(worker);
  }

  async #restart(reason: string) {
    const { log, onRestart } = this.#options;
    log.error(`${reason}. Restarting it.`);
    while (!this.#isStopping) {
      await delay(restartAfterMs);
      try {
        if (this.#isStopping) return;
        await this.#startOne();
        onRestart();
        return;
      } catch (err) {
        log.error({ err }, 'A worker failed to start. Trying again.');
      }
    }
  }

  /** Metrics of all workers. A worker that does not reply in time contributes its last counts. */
  async reports(): Promise<Report[]> {
    const requests = [...this.#channels].map(async ([worker, channel]) => {
      const report = await channel.request<Report>('counts', countsWaitMs).catch(() => undefined);
      if (!this.#processes.has(worker)) return;
      this.#reports.set(worker, report ?? withoutGauges(this.#reports.get(worker) ?? []));
    });
    await Promise.all(requests);
    const ended = this.#endedReports;
    ended.splice(0, ended.length, await sumOf([...ended]));
    return [...ended, ...this.#reports.values()];
  }

  /**
   * Each worker reads its files by itself, and logs what is wrong with them. One that is starting reads them anyway.
   */
  reloadCertificates() {
    for (const worker of this.#channels.keys()) worker.kill('SIGHUP');
  }

  /** Each worker drains by itself, for DRAIN_MS. */
  drain() {
    this.#isStopping = true;
    for (const worker of this.#processes) worker.kill('SIGTERM');
  }

  async close() {
    const ends = [...this.#processes].map((worker) => once(worker, 'exit'));
    this.drain();
    // Ends what is left of draining.
    for (const worker of this.#processes) if (worker.connected) worker.disconnect();
    await Promise.all(ends);
  }
}
