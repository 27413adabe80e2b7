// What leases repeat: the first decision, and what each repetition of it charges.

import { outcomes } from '../../domain/verification.ts';
import { limitBlocked, limitCheck, limitPassed, talliedKey } from '../../scripts/layout.ts';
import type { Limited, Verified } from '../reply.ts';
import type { Decision, LeasedRequest } from './leases.ts';

const valid = outcomes.indexOf('VALID') + 1;

/** The limits that a verification names. */
type RequestedLimits = readonly { name: string; cost: number; limit?: number }[] | undefined;

/** A VALID of which the answer is not known. */
export const validOf = (request: LeasedRequest) => ({ outcome: valid, subject: subjectOf(request) });

/** A TALLIED_KEY. Decisions are counted for the identity that the key had then. */
function subjectOf({ about: digest, cost, text }: LeasedRequest, externalId = ''): Buffer {
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

  constructor(first: Verified, request: LeasedRequest, limits: RequestedLimits, hasUnits: boolean) {
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

export interface LimitCheck {
  namespace: string;
  identifier: string;
  limit: number;
  durationMs: number;
  cost: number;
}

/** The text of limit checks, which no others have. */
export function textOfChecks(checks: readonly LimitCheck[]): string {
  let text = '';
  for (const { namespace, identifier, limit, durationMs, cost } of checks) {
    text += `${limit} ${durationMs} ${cost} ${namespace.length} ${identifier.length} ${namespace}${identifier}`;
  }
  return text;
}

/** Each LIMIT_CHECK: the fields of a limit item, and the subject of its tallies. */
export function checksOf(checks: readonly LimitCheck[]): Buffer {
  const values = checks.map(({ cost, limit, durationMs, namespace, identifier }) => ({
    cost,
    limit,
    duration: durationMs,
    namespaceName: Buffer.from(namespace),
    identifier: Buffer.from(identifier),
  }));
  const packed = Buffer.allocUnsafe(values.reduce((sum, check) => sum + limitCheck.size(check), 0));
  let at = 0;
  for (const check of values) at = limitCheck.write(packed, at, check);
  return packed;
}

/** A pass of which the answer is not known; `subject` is each LIMIT_CHECK. */
export const passOf = (subject: Buffer) => ({ outcome: limitPassed, subject });

export class RepeatedLimits implements Decision<Limited> {
  readonly outcome: number;
  readonly subject: Buffer;
  readonly #first: Limited;
  readonly #requested: readonly LimitCheck[];

  constructor(first: Limited, requested: readonly LimitCheck[], subject: Buffer) {
    this.#first = first;
    this.#requested = requested;
    this.outcome = first.passed ? limitPassed : limitBlocked;
    this.subject = subject;
  }

  again(times: number, elapsedMs: number): Limited {
    const { passed, checks } = this.#first;
    const atMs = this.#first.atMs + elapsedMs;
    const repeated = checks.map((check, index) => {
      const { cost } = this.#requested[index]!;
      // One that never fits is reset one duration from now.
      const isLater = !check.passed && (check.limit === 0 || cost > check.limit);
      const resetAtMs = isLater ? check.resetAtMs + elapsedMs : Math.max(check.resetAtMs, atMs);
      return { ...check, remaining: passed ? check.remaining - times * cost : check.remaining, resetAtMs };
    });
    return { passed, checks: repeated, atMs };
  }
}
