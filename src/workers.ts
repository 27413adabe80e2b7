// Several serving processes on one port (SO_REUSEPORT): the kernel gives each its share of connections. One that dies is
// started again; the others serve on meanwhile, so the port never goes dark.

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';

/** What a worker is told, as its argument. */
export interface ToWorker {
  redisUrl: string;
  port: number;
}

export interface WorkersOptions extends ToWorker {
  count: number;
  host: string;
  log: Logger;
}

const program = fileURLToPath(new URL('./worker.js', import.meta.url));
/** Between a worker's end and the next: a worker that cannot live must not take the machine with it. */
const restartAfterMs = 200;

/** A port that is free now. uWebSockets.js shares only ports that are named, so the system cannot be left to choose. */
async function findPort(host: string): Promise<number> {
  const probe = createServer().listen(0, host);
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}

/** Resolves when all of them listen. */
export async function startWorkers({ count, log, redisUrl, host, port }: WorkersOptions) {
  const workers = new Set<ChildProcess>();
  let isStopping = false;

  /** Starts one and resolves when it listens; rejects when it ends before. */
  async function start(onPort: number): Promise<void> {
    const worker = fork(program, [JSON.stringify({ redisUrl, port: onPort } satisfies ToWorker)]);
    workers.add(worker);
    worker.once('exit', () => workers.delete(worker));
    // Its one message says that it listens.
    const listening = once(worker, 'message');
    const ended = once(worker, 'exit').then(([code, signal]) => {
      throw new Error(`A worker ended with ${signal ?? `exit code ${code}`}.`);
    });
    ended.catch(() => {});
    await Promise.race([listening, ended]);
    worker.once('exit', (code, signal) => {
      if (!isStopping) void startAgain(onPort, `${signal ?? `exit code ${code}`}`);
    });
  }

  async function startAgain(onPort: number, reason: string) {
    log.error(`A worker ended with ${reason}; another is started.`);
    while (!isStopping) {
      await delay(restartAfterMs);
      try {
        if (!isStopping) await start(onPort);
        return;
      } catch (err) {
        log.error({ err }, 'A worker could not be started; it is tried again.');
      }
    }
  }

  async function close() {
    isStopping = true;
    const ends = [...workers].map((worker) => once(worker, 'exit'));
    for (const worker of workers) worker.kill('SIGTERM');
    await Promise.all(ends);
  }

  try {
    const sharedPort = port === 0 ? await findPort(host) : port;
    // The first alone: it says what is wrong when the port cannot be had.
    await start(sharedPort);
    await Promise.all(Array.from({ length: count - 1 }, () => start(sharedPort)));
    return { port: sharedPort, close };
  } catch (error) {
    await close();
    throw error;
  }
}
