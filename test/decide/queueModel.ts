// A model of servers, Redis and the distance between them, on a clock of its own, around the real queues of workspaces.
// Redis decides what arrives in order, and each request takes its cost.

import { vi } from 'vitest';
import type { Called } from '../../src/decide/flow.ts';
import { type Part, type QueuedBatch, WorkspaceQueues } from '../../src/decide/queues.ts';
import { ApiError } from '../../src/errors.ts';
import { budgetMax } from '../../src/scripts/layout.ts';

interface Request {
  costMicros: number;
  answered: (isOk: boolean) => void;
}

class Batch implements QueuedBatch {
  readonly requests: Request[] = [];
  readonly since = performance.now();
  decided = 0;

  get weight() {
    return this.requests.length - this.decided;
  }
  get count() {
    return this.requests.length;
  }
  get isBegun() {
    return this.decided > 0;
  }
  get isDone() {
    return this.weight === 0;
  }
  fail() {
    for (const { answered } of this.requests.slice(this.decided)) answered(false);
  }
}

const realImmediate = setImmediate;

/** Call it in a test; afterwards `vi.unstubAllGlobals()`. */
export function queueModel() {
  const events: { at: number; order: number; run: () => void }[] = [];
  let now = 0;
  let order = 0;
  const at = (time: number, run: () => void) => {
    const event = { at: Math.max(now, time), order: order++, run };
    let index = events.length;
    while (index > 0 && events[index - 1]!.at > event.at) index--;
    events.splice(index, 0, event);
  };
  vi.stubGlobal('performance', { now: () => now });
  vi.stubGlobal('setTimeout', (run: () => void, ms: number) => at(now + ms, run));
  vi.stubGlobal('setImmediate', (run: () => void) => at(now + 0.005, run));

  /** `slowness`: how much longer Redis takes for work than it reports. */
  const redis = { freeAt: 0, allWork: 0, slowness: 1 };
  /** By workspace: what it has at Redis, and the most that was. In microseconds. */
  const atRedis = new Map<string, number>();
  const peaks = new Map<string, number>();

  function add(workspaceId: string, micros: number) {
    const work = (atRedis.get(workspaceId) ?? 0) + micros;
    atRedis.set(workspaceId, work);
    peaks.set(workspaceId, Math.max(work, peaks.get(workspaceId) ?? 0));
  }

  /** With `turnMs` it reads replies only at the end of each turn of so long. */
  function server({ roundTripMs = 0.2, turnMs = 0 } = {}) {
    const distance = { ms: roundTripMs, node: 'a' };
    /** Arrivals at Redis and at the server are in order. */
    const last = { atRedis: 0, atServer: 0 };
    let sent = 0;
    let sentMax = 0;
    const send = (parts: readonly Part<Batch>[]): Promise<Called> =>
      new Promise((resolve) => {
        const weight = parts.reduce((sum, { batch }) => sum + batch.weight, 0);
        sent += weight;
        sentMax = Math.max(sentMax, sent);
        last.atRedis = Math.max(last.atRedis, now + distance.ms / 2);
        at(last.atRedis, () => {
          let all = 0;
          const done = parts.map(({ workspaceId, batch, budget }) => {
            let work = 0;
            let count = 0;
            const waiting = batch.requests.slice(batch.decided);
            for (const { costMicros } of all < budgetMax ? waiting : []) {
              if (work >= budget) break;
              work += costMicros;
              count++;
            }
            add(workspaceId, work);
            all += work;
            return { workspaceId, batch, work, answered: waiting.slice(0, count) };
          });
          const works = done.map(({ work }) => work && work + 20);
          const sum = works.reduce((total, work) => total + work, 0);
          redis.freeAt = Math.max(redis.freeAt, now) + (redis.slowness * sum) / 1000;
          at(redis.freeAt, () => {
            for (const { workspaceId, work } of done) add(workspaceId, -work);
            redis.allWork = (redis.allWork + sum) % 2 ** 32;
            const { allWork } = redis;
            last.atServer = Math.max(last.atServer, now + distance.ms / 2);
            if (turnMs > 0) last.atServer = Math.ceil(last.atServer / turnMs) * turnMs;
            at(last.atServer, () => {
              sent -= weight;
              for (const { batch, answered } of done) {
                batch.decided += answered.length;
                for (const request of answered) request.answered(true);
              }
              resolve({ works, work: sum, allWork, at: now });
            });
          });
        });
      });
    const queues = new WorkspaceQueues<Batch>({
      newBatch: () => new Batch(),
      send,
      nodeOf: () => () => distance.node,
      sharesCalls: () => true,
      weightMax: 24,
      workMax: 192,
      shareMax: 0.5,
      inFlightMax: 1_000_000,
      unknownAtOnce: 64,
      waitMs: 1000,
      overloaded() {},
    });
    return {
      distance,
      queues,
      get sentMax() {
        return sentMax;
      },
      /** Sends a request; resolves when it is answered, false if it was refused. */
      request(workspaceId: string, costMicros: number, isAccepted = true): Promise<boolean> {
        return new Promise((answered) => {
          try {
            queues.join(workspaceId, isAccepted).requests.push({ costMicros, answered });
          } catch (error) {
            if (!(error instanceof ApiError)) throw error;
            answered(false);
          }
        });
      },
      /** Callers that send the next request when one is answered. Returns the counts of answers. */
      load(workspaceId: string, callers: number, costOf: () => number, isAccepted = true) {
        const counts = { ok: 0, refused: 0, isOver: false };
        const call = async () => {
          while (!counts.isOver) {
            if (await this.request(workspaceId, costOf(), isAccepted)) counts.ok++;
            else {
              counts.refused++;
              await new Promise<void>((resolve) => at(now + 10, resolve));
            }
          }
        };
        for (let caller = 0; caller < callers; caller++) void call();
        return counts;
      },
    };
  }

  return {
    redis,
    peaks,
    server,
    at,
    now: () => now,
    /** Redis does nothing for so long. */
    stall(ms: number) {
      redis.freeAt = Math.max(redis.freeAt, now) + ms;
    },
    /** Runs for this time. */
    async run(ms: number) {
      const end = now + ms;
      // A lone request is sent in a microtask.
      await new Promise((resolve) => realImmediate(resolve));
      while (events[0] && events[0].at <= end) {
        const event = events.shift()!;
        now = event.at;
        event.run();
        if (events[0]?.at !== now) await new Promise((resolve) => realImmediate(resolve));
      }
      now = end;
    },
    /** The longest queue of the workspace at Redis since the last call, in milliseconds. */
    peakMs(workspaceId: string) {
      const ms = (peaks.get(workspaceId) ?? 0) / 1000;
      peaks.delete(workspaceId);
      return ms;
    },
  };
}
