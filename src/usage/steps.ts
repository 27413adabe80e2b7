// Long work in steps, with other requests between them: each of their turns of the event loop waits for one step.

import { setImmediate as otherRequests } from 'node:timers/promises';

/** Milliseconds of a step. */
const stepMs = 0.5;

export class Steps {
  #begunAt = performance.now();

  /** Whether to await `next` before more work. */
  get isOver(): boolean {
    return performance.now() - this.#begunAt >= stepMs;
  }

  async next() {
    await otherRequests();
    this.#begunAt = performance.now();
  }
}
