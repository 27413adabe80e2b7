// Turns of management requests. A few of a workspace work at once and more wait, in order, for a while: what one workspace
// asks for cannot fill Redis's queue, in which the verifications of all others would stand behind it.

import { ApiError } from '../errors.ts';

export interface TurnsOptions {
  /** Requests of a workspace that work at once. */
  atOnce: number;
  /** Requests that may be at work or wait in all; what comes beyond is refused at once. */
  max: number;
  /** How long one waits before it is refused. */
  waitMs: number;
}

interface Workspace {
  working: number;
  waiting: Set<() => void>;
}

const busy = (message: string) => new ApiError('store_unavailable', message);

/** Large bodies that may wait to be read. */
const largeMax = 64;

/** Lets work that takes this process long come one by one, each in a turn of the event loop of its own: what is short goes between. */
export function oneByOne() {
  let last = Promise.resolve();
  let waiting = 0;
  return async function turn(): Promise<void> {
    if (waiting >= largeMax) throw busy('The server has more large requests to read than it can.');
    waiting++;
    last = last.then(() => new Promise((resolve) => setImmediate(resolve)));
    await last;
    waiting--;
  };
}

export function createTurns({ atOnce, max, waitMs }: TurnsOptions) {
  const workspaces = new Map<string, Workspace>();
  let inAll = 0;

  function wait(waiting: Workspace['waiting']): Promise<void> {
    return new Promise((resolve, reject) => {
      const go = () => {
        clearTimeout(timer);
        resolve();
      };
      const timer = setTimeout(() => {
        waiting.delete(go);
        reject(busy('The workspace has more management requests under way than are served at once.'));
      }, waitMs);
      waiting.add(go);
    });
  }

  /** Runs `work` when it is the turn of the workspace. Throws 503 when that is not soon enough. */
  async function take<Result>(workspaceId: string, work: () => Promise<Result>): Promise<Result> {
    let workspace = workspaces.get(workspaceId);
    if (!workspace) {
      workspace = { working: 0, waiting: new Set() };
      workspaces.set(workspaceId, workspace);
    }
    const { waiting } = workspace;
    // Whoever ends hands its place on, so that nobody who comes later can take it.
    if (workspace.working < atOnce) workspace.working++;
    else await wait(waiting);
    try {
      return await work();
    } finally {
      const [next] = waiting;
      if (next) {
        waiting.delete(next);
        next();
      } else if (--workspace.working === 0) workspaces.delete(workspaceId);
    }
  }

  return {
    take,

    /** Counts a request from its beginning to its end. Throws 503 when there are too many. */
    async count<Result>(work: () => Promise<Result>): Promise<Result> {
      if (inAll >= max) throw busy('The server has more to do than it can.');
      inAll++;
      try {
        return await work();
      } finally {
        inAll--;
      }
    },
  };
}
