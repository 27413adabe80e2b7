// Several serving processes on one port (SO_REUSEPORT): the kernel gives each its share of connections. One that dies is
// started again; the others serve on meanwhile, so the port never goes dark.

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';
import { openChannel } from './channel.ts';
import { environmentWith } from './config.ts';
import { lastingOf, type Scrape, type Snapshot, sumOf } from './metrics.ts';

export interface WorkersOptions {
  count: number;
  redisUrl: string;
  host: string;
  port: number;
  log: Logger;
  /** A worker is started again. */
  onRestart: () => void;
  /** The text for Prometheus, which a worker asks for when it is asked. */
  scrape: () => Promise<Scrape>;
}

const program = fileURLToPath(new URL('./worker.js', import.meta.url));
/** Between a worker's end and the next: a worker that cannot live must not take the machine with it. */
const restartAfterMs = 200;
/** A worker answers this soon even when Redis does not; one that hangs does not keep the others' figures back. */
const countsWaitMs = 3_000;

const endOf = (code: number | null, signal: string | null) => `A worker ended with ${signal ?? `exit code ${code}`}`;

/** A port that is free now. uWebSockets.js shares only ports that are named, so the system cannot be left to choose. */
async function findPort(host: string): Promise<number> {
  const probe = createServer().listen(0, host);
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}

/** Resolves when the first listens and each of the others listens or has failed once; those are started again. */
export async function startWorkers({ count, log, redisUrl, host, port, onRestart, scrape }: WorkersOptions) {
  const workers = new Set<ChildProcess>();
  const channels = new Map<ChildProcess, ReturnType<typeof openChannel>>();
  /** What each said last that it had counted; of those that ended too, as a sum that goes down would mislead Prometheus. */
  const counted = new Map<ChildProcess, Snapshot>();
  const countedByEnded: Snapshot[] = [];
  let isStopping = false;

  /** Starts one and resolves when it listens; rejects when it ends before. */
  async function start(onPort: number): Promise<void> {
    const worker = fork(program, { env: environmentWith({ redisUrl, port: onPort }) });
    // One that could not be run, which its missing pid says, never ends: nobody is to wait for it.
    if (worker.pid !== undefined) workers.add(worker);
    worker.once('exit', () => forget(worker));
    // Its one message says that it listens.
    const listening = once(worker, 'message');
    const ended = once(worker, 'exit').then(([code, signal]) => {
      throw new Error(endOf(code, signal));
    });
    ended.catch(() => {});
    await Promise.race([listening, ended]);
    channels.set(worker, openChannel(worker, { scrape }));
    worker.once('exit', (code, signal) => {
      if (!isStopping) void startAgain(onPort, endOf(code, signal));
    });
  }

  function forget(worker: ChildProcess) {
    workers.delete(worker);
    channels.delete(worker);
    countedByEnded.push(lastingOf(counted.get(worker) ?? []));
    counted.delete(worker);
  }

  /** What all of them have counted so far, each as soon as it says so; of one that does not, what it last said. */
  async function snapshots(): Promise<Snapshot[]> {
    const asked = [...channels].map(async ([worker, channel]) => {
      const snapshot = await channel.ask<Snapshot>('counts', countsWaitMs).catch(() => undefined);
      if (workers.has(worker)) counted.set(worker, snapshot ?? lastingOf(counted.get(worker) ?? []));
    });
    await Promise.all(asked);
    countedByEnded.splice(0, countedByEnded.length, await sumOf([...countedByEnded]));
    return [...countedByEnded, ...counted.values()];
  }

  async function startAgain(onPort: number, reason: string) {
    log.error(`${reason}; another is started.`);
    while (!isStopping) {
      await delay(restartAfterMs);
      try {
        if (isStopping) return;
        await start(onPort);
        onRestart();
        return;
      } catch (err) {
        log.error({ err }, 'A worker could not be started; it is tried again.');
      }
    }
  }

  /** Each drains by itself, for as long as the settings say. */
  function drain() {
    isStopping = true;
    for (const worker of workers) worker.kill('SIGTERM');
  }

  async function close() {
    const ends = [...workers].map((worker) => once(worker, 'exit'));
    drain();
    // What is left of draining is over.
    for (const worker of workers) if (worker.connected) worker.disconnect();
    await Promise.all(ends);
  }

  try {
    const sharedPort = port === 0 ? await findPort(host) : port;
    // The first alone: what is wrong with the port or the settings ends the start. Redis may fail for a moment later on.
    await start(sharedPort);
    const startOther = () => start(sharedPort).catch((err) => void startAgain(sharedPort, err.message));
    await Promise.all(Array.from({ length: count - 1 }, startOther));
    return { port: sharedPort, snapshots, drain, close };
  } catch (error) {
    await close();
    throw error;
  }
}
