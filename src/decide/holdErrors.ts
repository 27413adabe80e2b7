// The errors of verifications with a hold, and of settlements, releases and extensions.

import { ApiError } from '../errors.ts';
import { holdBytesMax, holdsBytesMax, holdsMax } from '../scripts/layout.ts';
import type { ItemError } from './reply.ts';

/** The caller of keys.verifyKey can do something about it, the operator of a gateway cannot. */
export class TooManyHolds extends ApiError {
  constructor() {
    const most = `${holdsMax} open holds, or open holds of ${holdsBytesMax / 1024} KB`;
    super('precondition_failed', `The key has ${most}, the maximum. Nothing was charged.`);
  }
}

/** Undefined for the error of another kind. */
export function holdError({ reason, detail }: ItemError): Error | undefined {
  switch (reason) {
    case 'hold_not_found':
      return new ApiError('hold_not_found', 'There is no such hold, or it was forgotten.');
    case 'hold_ended':
      return new ApiError('conflict', 'The hold has ended: it was settled, released or charged.');
    case 'hold_differs':
      return new ApiError('conflict', 'A request with this hold had other amounts before.');
    case 'hold_limit_not_found':
      return new ApiError('precondition_failed', `The hold has no limit named ${JSON.stringify(detail)}.`);
    case 'too_many_holds':
      return new TooManyHolds();
    case 'hold_too_large': {
      const what = `A hold has at most ${holdBytesMax} bytes, for the names of its limits and its tags.`;
      return new ApiError('precondition_failed', `${what} Nothing was charged.`);
    }
    default:
      return undefined;
  }
}
