// What leases repeat: the first decision, and what each repetition of it charges.

import { outcomes } from '../../domain/verification.ts';
import type { Verified } from '../decideReply.ts';
import { talliedKey } from '../layout.ts';
import type { Decision, LeasedRequest } from './leases.ts';

/** The limits that a verification names. */
type RequestedLimits = readonly { name: string; cost: number; limit?: number }[] | undefined;

/** A TALLIED_KEY. Decisions are counted for the identity that the key had then. */
export function subjectOf({ about: digest, cost, text }: LeasedRequest<Verified>, externalId = ''): Buffer {
  const values = { digest, cost, externalId: Buffer.from(externalId), request: text };
  const subject = Buffer.allocUnsafe(talliedKey.size(values));
  talliedKey.write(subject, 0, values);
  return subject;
}

export class RepeatedVerification implements Decision<Verified> {
  readonly outcome: number;
  readonly subject: Buffer;
  readonly #first: Verified;
  /** What each repetition charges: credits, and units of each limit of the answer. Undefined for a lease without units. */
  readonly #charges: { credits: number; units: readonly number[] } | undefined;

  constructor(first: Verified, request: LeasedRequest<Verified>, limits: RequestedLimits, hasUnits: boolean) {
    this.#first = first;
    // There is no key to count for.
    this.outcome = first.outcome === 'NOT_FOUND' ? 0 : outcomes.indexOf(first.outcome) + 1;
    this.subject = subjectOf(request, first.snapshot?.externalId);
    if (hasUnits) this.#charges = { credits: request.cost, units: costsOf(first, limits) };
  }

  again(times: number, elapsedMs: number): Verified {
    const first = this.#first;
    const atMs = first.atMs + elapsedMs;
    if (!this.#charges) return { ...first, atMs };
    const { credits: cost, units } = this.#charges;
    const credits = first.credits === undefined ? undefined : first.credits - times * cost;
    const ratelimits = first.ratelimits.map((state, index) => ({
      ...state,
      remaining: state.remaining - times * units[index]!,
    }));
    return { ...first, atMs, credits, ratelimits };
  }
}

/** What a verification charges to each limit of its answer. */
const costsOf = ({ ratelimits, snapshot }: Verified, requested: RequestedLimits): number[] =>
  ratelimits.map(({ of, index }) => {
    if (of === 'request') return requested![index]!.cost;
    const { name } = (of === 'key' ? snapshot!.keyLimits : snapshot!.identityLimits)[index]!;
    return requested?.find((limit) => limit.name === name && limit.limit === undefined)?.cost ?? 1;
  });
