// Concurrency limits per workspace. A few requests of a workspace run concurrently and more wait for a while. So one
// workspace cannot fill Redis's queue, in which the verifications of all others would wait.

import { mayTake } from '../domain/share.ts';
import { ApiError } from '../errors.ts';

interface LimiterOptions {
  /** Requests of a workspace that run concurrently. */
  atOnce: number;
  /** Requests of all workspaces that run or wait, shared as in domain/share.ts. */
  max: number;
  /** How long a request waits before it is refused. */
  waitMs: number;
  /**
   * After a request its place is free only when twice its time has passed, this at most: a workspace that sends one
   * after the other leaves time to others, even if the work is that of the server and not of Redis.
   */
  restMsMax?: number;
}

/** No rest follows a request that took less. */
const longMs = 2;

/** Requests of one kind, and the time that they took. */
interface Kind {
  waiting: Set<() => void>;
  tookMs: number;
}

/** The most time that a kind may make up for, if it took less than another. */
const behindMsMax = 1000;

interface Workspace {
  requests: number;
  running: number;
  kinds: Map<string, Kind>;
}

const tooMany = (detail: string) => new ApiError('too_many_requests', detail);

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

  /**
   * Runs `work` when the workspace is below its limit. The kind that took least time is next, so that short requests do
   * not wait for all long ones. Throws 429 if it waits too long.
   */
  async run<Result>(workspaceId: string, work: () => Promise<Result>, kindName = ''): Promise<Result> {
    const workspace = this.#enter(workspaceId);
    const kind = workspace.kinds.get(kindName) ?? { waiting: new Set(), tookMs: 0 };
    workspace.kinds.set(kindName, kind);
    try {
      if (workspace.running < this.#options.atOnce) workspace.running++;
      else await this.#wait(kind.waiting);
      const startedAt = performance.now();
      try {
        return await work();
      } finally {
        const tookMs = performance.now() - startedAt;
        kind.tookMs += tookMs;
        this.#rest(tookMs, () => {
          leave(workspace);
          this.#forget(workspaceId, workspace);
        });
      }
    } finally {
      this.#requests--;
      workspace.requests--;
      this.#forget(workspaceId, workspace);
    }
  }

  #rest(tookMs: number, leave: () => void) {
    const { restMsMax = 0 } = this.#options;
    if (restMsMax > 0 && tookMs >= longMs) setTimeout(leave, Math.min(2 * tookMs, restMsMax));
    else leave();
  }

  #forget(workspaceId: string, { requests, running }: Workspace) {
    if (requests === 0 && running === 0) this.#workspaces.delete(workspaceId);
  }

  /** Returns the workspace if it may have one more request. Throws 429 otherwise. */
  #enter(workspaceId: string): Workspace {
    const workspace = this.#workspaces.get(workspaceId) ?? { requests: 0, running: 0, kinds: new Map() };
    if (!mayTake(workspace.requests, this.#requests, this.#options.max)) {
      throw tooMany('Too many requests of the workspace are in progress; retry later.');
    }
    this.#requests++;
    workspace.requests++;
    this.#workspaces.set(workspaceId, workspace);
    return workspace;
  }

  #wait(waiting: Kind['waiting']): Promise<void> {
    return new Promise((resolve, reject) => {
      const start = () => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(() => {
        waiting.delete(start);
        reject(tooMany('The request waited too long for others of the workspace; retry later.'));
      }, this.#options.waitMs);
      waiting.add(start);
    });
  }
}

/** Gives the place of a finished request to the first waiting request, not to one that arrives later. */
function leave(workspace: Workspace) {
  const kinds = [...workspace.kinds.values()].sort((one, other) => one.tookMs - other.tookMs);
  const next = kinds.find(({ waiting }) => waiting.size > 0);
  if (!next) {
    workspace.running--;
    return;
  }
  next.tookMs = Math.max(next.tookMs, kinds.at(-1)!.tookMs - behindMsMax);
  const [start] = next.waiting;
  next.waiting.delete(start!);
  start!();
}
