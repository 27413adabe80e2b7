// Limit checks of namespaces: the kind of decision of ratelimit.limit and ratelimit.multiLimit
// (lua/decide/limitChecks/limitChecks.lua). The checks of a request are charged together, or none of them is.

import type { PresentedRootKey } from '../domain/caller.ts';
import { ApiError } from '../errors.ts';
import type { StoreObserver } from '../redis/observer.ts';
import { limitBlocked, limitCheck, limited, limitedCheck, limitPassed } from '../scripts/layout.ts';
import { readInt, readUint } from '../scripts/struct.ts';
import type { Batch, LeasePart, Waiting } from './batch.ts';
import type { Decider } from './decider.ts';
import type { CallerRequest, Kind, Prepared } from './kind.ts';
import { type Amounts, type Charge, type DecidedAmount, leftOf, resetAfter } from './leases/amounts.ts';
import { noText, type Repeatable } from './leases/leases.ts';
import { type Answer, type ItemError, readItemError, unreadable } from './reply.ts';
import type { TailFilter } from './tail/stream.ts';
import type { DecisionSource, Tail } from './tail/tail.ts';

interface LimitCheck {
  namespace: string;
  identifier: string;
  limit: number;
  durationMs: number;
  cost: number;
}

interface LimitResult {
  passed: boolean;
  /** The effective limit: that of an override, or else of the request. */
  limit: number;
  remaining: number;
  /** As in LIMITED_CHECK. */
  left: number;
  resetAtMs: number;
  override: { id: string; durationMs: number } | undefined;
}

interface Limited {
  passed: boolean;
  checks: LimitResult[];
  /** Time of the decision by Redis's clock, in Unix milliseconds. */
  atMs: number;
}

/** Bytes of the duration after the id of an override. */
const durationBytes = limitCheck.fields.duration.bytes;

interface LimitOptions {
  tail: Tail;
  observe?: StoreObserver | undefined;
}

/** The checks of one request. */
class CheckRequest implements Prepared<Limited>, CallerRequest {
  readonly rootKey: PresentedRootKey;
  readonly checks: readonly LimitCheck[];
  /** The LIMIT_CHECKs, one after the other. */
  readonly packed: Buffer;
  readonly workspaceId: string;
  readonly rootDigest: string;
  readonly about: string;
  readonly cost = 0;
  readonly text = noText;
  readonly leasedBytes = 0;
  readonly tags = '';
  slot = -1;
  name = '';
  readonly #kind: LimitChecks;

  constructor(kind: LimitChecks, rootKey: PresentedRootKey, checks: readonly LimitCheck[]) {
    this.#kind = kind;
    this.rootKey = rootKey;
    this.checks = checks;
    this.packed = packChecks(checks);
    this.workspaceId = rootKey.workspaceId;
    this.rootDigest = rootKey.digestText;
    this.about = textOf(checks);
  }

  decide(): Limited | Promise<Limited> {
    return this.#kind.decider.decide(this.#kind, this);
  }
}

export class LimitChecks implements Kind<CheckRequest, Limited> {
  readonly isLeased = true;
  readonly decider: Decider;
  readonly #options: LimitOptions;

  constructor(decider: Decider, options: LimitOptions) {
    this.decider = decider;
    this.#options = options;
  }

  /** Prepares limit checks. */
  prepare(rootKey: PresentedRootKey, checks: readonly LimitCheck[]): Prepared<Limited> {
    return new CheckRequest(this, rootKey, checks);
  }

  pack(batch: Batch, { rootKey, checks, packed }: CheckRequest, waiting: Waiting, lease: LeasePart | undefined) {
    const { length } = checks;
    const at = batch.beginDecision('limit', rootKey.digest, 1 + packed.length, length, waiting, lease);
    batch.items[at] = length;
    packed.copy(batch.items, at + 1);
    return undefined;
  }

  read(answer: Answer): Limited | ItemError {
    return readLimited(answer);
  }

  finish(decision: Limited): Limited {
    return decision;
  }

  correct(decision: Limited, request: CheckRequest, amounts: Amounts) {
    for (const [index, result] of decision.checks.entries())
      result.remaining = amounts.corrected(amountOf(result, request.checks[index]!));
  }

  repeatable(decision: Limited, request: CheckRequest, _hasUnits: boolean, amounts: Amounts): Repeatable<Limited> {
    return new RepeatedChecks(decision, request, amounts);
  }

  /** Units are granted with a pass only. */
  unanswered({ packed }: CheckRequest) {
    return { outcome: limitPassed, subject: packed };
  }

  count({ passed }: Limited) {
    this.#options.observe?.limited(passed);
  }

  offer(decision: Limited, { workspaceId, checks }: CheckRequest, source: DecisionSource, latencyMs: number) {
    for (const [index, check] of checks.entries()) {
      const passes = ({ checks: wanted }: TailFilter) =>
        wanted !== undefined && (wanted.namespaces === true || wanted.namespaces.includes(check.namespace));
      const event = () => eventOf(check, decision, index);
      this.#options.tail.offer(workspaceId, 'ratelimit', passes, event, source, latencyMs);
    }
  }

  errorOf({ reason, detail }: ItemError): Error | undefined {
    if (reason === 'create_namespace')
      return new ApiError('insufficient_permissions', 'The root key lacks ratelimit.*.create_namespace.');
    if (reason === 'namespace_not_found')
      return new ApiError('namespace_not_found', `There is no namespace ${JSON.stringify(detail)}.`);
    return undefined;
  }
}

/** A text that identifies these limit checks. */
function textOf(checks: readonly LimitCheck[]): string {
  let text = '';
  for (const { namespace, identifier, limit, durationMs, cost } of checks) {
    text += `${limit} ${durationMs} ${cost} ${namespace.length} ${identifier.length} ${namespace}${identifier}`;
  }
  return text;
}

/** Packs checks as consecutive LIMIT_CHECKs: the fields of a limit item, and the subject of its tallies. */
function packChecks(checks: readonly LimitCheck[]): Buffer {
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

/** Returns the results of a limit item, or its error. */
function readLimited(answer: Answer): Limited | ItemError {
  const { packed, end, atMs } = answer;
  let { at } = answer;
  const outcome = packed[at];
  if (outcome !== limitPassed && outcome !== limitBlocked) return readItemError(answer);
  const count = packed[at + limited.at.checks]!;
  const checks: LimitResult[] = [];
  at += limited.bytes;
  for (let index = 0; index < count && at + limitedCheck.bytes < end; index++) {
    const overrideAt = at + limitedCheck.at.override;
    const overrideBytes = packed[overrideAt]!;
    const left = readInt(packed, at + limitedCheck.at.left);
    const override = overrideBytes > 0 ? readOverride(packed, overrideAt + 1, overrideBytes) : undefined;
    checks.push({
      passed: packed[at + limitedCheck.at.passed] === 1,
      limit: readUint(packed, at + limitedCheck.at.limit, 7),
      remaining: Math.max(0, left),
      left,
      resetAtMs: readUint(packed, at + limitedCheck.at.reset, 7),
      override,
    });
    at = overrideAt + 1 + overrideBytes;
  }
  if (checks.length !== count || at !== end || answer.snapshot) throw unreadable();
  return { passed: outcome === limitPassed, checks, atMs };
}

function readOverride(packed: Buffer, at: number, length: number): LimitResult['override'] {
  const durationAt = at + length - durationBytes;
  return {
    id: `rlor_${packed.toString('latin1', at, durationAt)}`,
    durationMs: readUint(packed, durationAt, durationBytes),
  };
}

/** The window of a check, which has the duration of an override, or else of the request. */
const amountOf = (
  { limit, left, override }: LimitResult,
  { namespace, identifier, durationMs, cost }: LimitCheck,
): DecidedAmount => {
  const duration = override?.durationMs ?? durationMs;
  return { owner: `${namespace.length} ${namespace}${identifier}`, name: '', duration, limit, left, units: cost };
};

class RepeatedChecks implements Repeatable<Limited> {
  readonly outcome: number;
  /** The charge of each check. */
  readonly charges: readonly Charge[];
  readonly #first: Limited;
  readonly #subject: Buffer;

  constructor(first: Limited, { checks, packed }: CheckRequest, amounts: Amounts) {
    this.#first = first;
    this.outcome = first.passed ? limitPassed : limitBlocked;
    const decided = first.checks.map((result, index) => amountOf(result, checks[index]!));
    this.charges = decided.map((amount) => amounts.charge(amount));
    const hasOverride = first.checks.some(({ override }) => override !== undefined);
    this.#subject = hasOverride
      ? packChecks(checks.map((check, index) => ({ ...check, durationMs: decided[index]!.duration })))
      : packed;
  }

  get atMs(): number {
    return this.#first.atMs;
  }

  subjectOf(): Buffer {
    return this.#subject;
  }

  decisionAfter(elapsedMs: number): Limited {
    const { passed, checks } = this.#first;
    const atMs = this.#first.atMs + elapsedMs;
    const repeated = checks.map((check, index) => {
      const charge = this.charges[index]!;
      const resetAtMs = resetAfter(charge, !check.passed, check.resetAtMs, elapsedMs, atMs);
      return { ...check, remaining: passed ? leftOf(charge) : check.remaining, resetAtMs };
    });
    return { passed, checks: repeated, atMs };
  }
}

/** The event of a check in the tail. */
function eventOf({ namespace, identifier, cost }: LimitCheck, { checks, atMs }: Limited, index: number) {
  const { passed, limit, remaining } = checks[index]!;
  return { time: atMs, namespace, identifier, passed, limit, remaining, cost };
}
