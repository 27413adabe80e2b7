// Concurrency limits per workspace. A few requests of a workspace run at once and more wait, in order, for a while. So
// one workspace cannot fill Redis's queue, in which the verifications of all others would wait.

import { mayTake } from '../domain/share.ts';
import { ApiError } from '../errors.ts';

interface LimiterOptions {
  /** Requests of a workspace that run at once. */
  atOnce: number;
  /** Requests of a workspace that may wait. Without it, its share of `max` bounds them. */
  waitingMax?: number;
  /** Requests of all workspaces that run or wait, shared as in domain/share.ts. */
  max: number;
  /** How long a request waits before it is rejected. */
  waitMs: number;
  /**
   * After a request its place is free only when twice its time has passed, this at most. So those of a workspace that
   * sends one after the other leave time to others, also where their work is that of the server and not of Redis.
   */
  restMsMax?: number;
}

/** No rest follows a request that took less. */
const longMs = 2;

interface Workspace {
  running: number;
  waiting: Set<() => void>;
}

const overloaded = (message: string) => new ApiError('store_unavailable', message);
const tooMany = 'Too many requests of this kind are in progress; retry later.';

/**
 * Returns a function that resolves once per turn of the event loop. Long tasks that await it run one after the other,
 * with short ones between them.
 */
export function serialize(): () => Promise<void> {
  let last = Promise.resolve();
  return function nextTurn(): Promise<void> {
    last = last.then(() => new Promise((resolve) => setImmediate(resolve)));
    return last;
  };
}

export class ConcurrencyLimiter {
  readonly #options: LimiterOptions;
  readonly #workspaces = new Map<string, Workspace>();
  #requests = 0;

  constructor(options: LimiterOptions) {
    this.#options = options;
  }

  /** Runs `work` when the workspace is below its limit. Throws 503 if that takes too long. */
  async run<Result>(workspaceId: string, work: () => Promise<Result>): Promise<Result> {
    const workspace = this.#enter(workspaceId);
    this.#requests++;
    try {
      if (workspace.running < this.#options.atOnce) workspace.running++;
      else await this.#wait(workspace.waiting);
      const startedAt = performance.now();
      try {
        return await work();
      } finally {
        this.#rest(performance.now() - startedAt, () => this.#leave(workspaceId, workspace));
      }
    } finally {
      this.#requests--;
    }
  }

  /** Returns the workspace if it may have one more request. Throws 503 otherwise. */
  #enter(workspaceId: string): Workspace {
    const { atOnce, waitingMax = Number.POSITIVE_INFINITY, max } = this.#options;
    const workspace = this.#workspaces.get(workspaceId) ?? { running: 0, waiting: new Set() };
    const { running, waiting } = workspace;
    if (!mayTake(running + waiting.size, this.#requests, max)) {
      throw overloaded('The server is overloaded; retry later.');
    }
    if (running >= atOnce && waiting.size >= waitingMax) throw overloaded(tooMany);
    this.#workspaces.set(workspaceId, workspace);
    return workspace;
  }

  #wait(waiting: Workspace['waiting']): Promise<void> {
    return new Promise((resolve, reject) => {
      const start = () => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(() => {
        waiting.delete(start);
        reject(overloaded(tooMany));
      }, this.#options.waitMs);
      waiting.add(start);
    });
  }

  #rest(tookMs: number, leave: () => void) {
    const { restMsMax = 0 } = this.#options;
    if (restMsMax > 0 && tookMs >= longMs) setTimeout(leave, Math.min(2 * tookMs, restMsMax));
    else leave();
  }

  /** Gives the place of a finished request to the first waiting request, not to one that arrives later. */
  #leave(workspaceId: string, workspace: Workspace) {
    const [next] = workspace.waiting;
    if (next) {
      workspace.waiting.delete(next);
      next();
    } else if (--workspace.running === 0) this.#workspaces.delete(workspaceId);
  }
}
