// The hot path, put together: a decider, and the kinds of decisions that it makes.

import { Decider, type DeciderOptions } from './decider.ts';
import { LimitChecks } from './limitChecks.ts';
import { type VerificationOptions, Verifications } from './verification.ts';

export type DecideOptions = DeciderOptions & VerificationOptions;

export function openDecide(options: DecideOptions) {
  const decider = new Decider(options);
  return {
    verifications: new Verifications(decider, options),
    limitChecks: new LimitChecks(decider, options),
    leasing: decider.leasing,

    /** Requests that wait for Redis. */
    get waiting(): number {
      return decider.waiting;
    },
  };
}

export type Decide = ReturnType<typeof openDecide>;
