// Concurrency limits by workspace. A few requests of a workspace run at once and more wait, in order, for a while: what one
// workspace asks for cannot fill Redis's queue, in which the verifications of all others would wait behind it.

import { mayTake } from '../domain/share.ts';
import { ApiError } from '../errors.ts';

export interface TurnsOptions {
  /** Requests of a workspace that run at once. */
  atOnce: number;
  /** Requests of a workspace that may wait; without it, as many as its share of `max` allows. */
  waitingMax?: number;
  /** Requests of all workspaces that may run or wait, shared as domain/share.ts says. */
  max: number;
  /** How long a request waits before it is refused. */
  waitMs: number;
}

interface Workspace {
  running: number;
  waiting: Set<() => void>;
}

const busy = (message: string) => new ApiError('store_unavailable', message);

/** Lets work that takes this process long come one by one, each in a turn of the event loop of its own: what is short goes between. */
export function oneByOne() {
  let last = Promise.resolve();
  return function turn(): Promise<void> {
    last = last.then(() => new Promise((resolve) => setImmediate(resolve)));
    return last;
  };
}

export function createTurns({ atOnce, waitingMax = Number.POSITIVE_INFINITY, max, waitMs }: TurnsOptions) {
  const workspaces = new Map<string, Workspace>();
  let inAll = 0;

  /** The workspace, with room for one more request. Throws 503 where there is none. */
  function enter(workspaceId: string): Workspace {
    const workspace = workspaces.get(workspaceId) ?? { running: 0, waiting: new Set() };
    const { running, waiting } = workspace;
    if (!mayTake(running + waiting.size, inAll, max)) throw busy('The server is overloaded; retry later.');
    if (running >= atOnce && waiting.size >= waitingMax) throw busy(tooMany);
    workspaces.set(workspaceId, workspace);
    return workspace;
  }

  function wait(waiting: Workspace['waiting']): Promise<void> {
    return new Promise((resolve, reject) => {
      const go = () => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(() => {
        waiting.delete(go);
        reject(busy(tooMany));
      }, waitMs);
      waiting.add(go);
    });
  }

  /** Hands the place of a request that ended to the next one, so that no later request can take it. */
  function leave(workspaceId: string, workspace: Workspace) {
    const [next] = workspace.waiting;
    if (next) {
      workspace.waiting.delete(next);
      next();
    } else if (--workspace.running === 0) workspaces.delete(workspaceId);
  }

  /** Runs `work` when it is the turn of the workspace. Throws 503 when that is not soon enough. */
  return async function take<Result>(workspaceId: string, work: () => Promise<Result>): Promise<Result> {
    const workspace = enter(workspaceId);
    inAll++;
    try {
      if (workspace.running < atOnce) workspace.running++;
      else await wait(workspace.waiting);
      try {
        return await work();
      } finally {
        leave(workspaceId, workspace);
      }
    } finally {
      inAll--;
    }
  };
}

const tooMany = 'Too many requests of this kind are under way; retry later.';
