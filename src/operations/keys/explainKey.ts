import Type, { type Static } from 'typebox';
import { addressText } from '../../domain/ipRange.ts';
import { digestTextOf } from '../../domain/keyString.ts';
import { AND, type PostfixQuery } from '../../domain/permissionQuery.ts';
import { outcomes } from '../../domain/verification.ts';
import type { ErrorCode } from '../../errors.ts';
import { manages } from '../../operation.ts';
import type { Explanation } from '../../records/explain.ts';
import { invalid } from '../rules.ts';
import {
  Debt,
  Fields,
  KeyId,
  KeyString,
  may,
  OneOf,
  out,
  Reset,
  ratelimitFields,
  refillFields,
  Units,
} from '../schemas.ts';
import { verificationFields, verificationOf } from './verifyKey.ts';

/** The rules in the order of docs/contract.md §6, each with the code of a verification that it refuses. */
const refusalsByRule = {
  key: 'NOT_FOUND',
  enabled: 'DISABLED',
  expires: 'EXPIRED',
  allowed_ips: 'FORBIDDEN',
  permissions: 'INSUFFICIENT_PERMISSIONS',
  ratelimit_names: 'precondition_failed',
  ratelimits: 'RATE_LIMITED',
  credits: 'USAGE_EXCEEDED',
} as const;
type Rule = keyof typeof refusalsByRule;
const ruleNames = Object.keys(refusalsByRule) as Rule[];

/** A new key that would need one counter too many is refused by the rule of limits, with the error of verifyKey. */
const errorsOfVerifyKey = ['precondition_failed', 'invalid_input'] as const satisfies ErrorCode[];

const LimitFigures = Type.Object({
  id: out.text('Id of the limit; empty for a limit that the request defined.'),
  of: OneOf(['key', 'identity', 'request'], 'Owner of the limit.'),
  planId: may.text('The plan of its owner that the limit is from. Absent for one of the owner itself.'),
  ...ratelimitFields,
  cost: out.int('Units or slots that the verification would take.'),
  used: out.int('Units that count now, or slots that are taken.'),
  exceeded: out.flag('True if the limit would refuse the verification.'),
  remaining: out.int('As in the response of the verification. If it does not reach the limits, as of now.'),
  reset: Reset,
});

const balanceFigures = (balance: string, refill: string) => ({
  balance: may.int(balance),
  debt: Type.Optional(Debt),
  remaining: may.int('Credits in the response of the verification.'),
  refill: may.object(refill, { ...refillFields, next: out.int('Time of the next refill in Unix milliseconds.') }),
});

const RuleResult = Type.Object({
  rule: OneOf(ruleNames, 'Name of the rule.'),
  result: OneOf(['passed', 'failed', 'not_reached'], 'Result of the rule.'),
  reason: may.oneOf(
    ['unknown', 'deleted', 'api_deleted', 'other_keyspace', 'too_many_counters', 'too_many_holds', 'hold_too_large'],
    'Of `key`: why there is no such key; `other_keyspace`: its API is none of `keyspaces`. Of `ratelimits`: the key has its maximum of counters; or a slot would be taken, and it has its maximum of open holds, or the hold would be too large.',
  ),
  expires: may.int('Expiry time in Unix milliseconds.'),
  allowedIps: may.texts('IP addresses and CIDR ranges that may use the key.'),
  ip: may.text('Address of the request, in canonical form. Absent if it has none, or any may use it.'),
  slugs: may.objects('The permissions in the query, and whether the key has each.', {
    slug: out.text('Slug in the query.'),
    held: out.flag('True if the key has it.'),
  }),
  missing: may.texts(
    'Of `permissions`: the parts of the query that are false. Of `ratelimit_names`: the unknown name.',
  ),
  ratelimits: Type.Optional(Type.Array(LimitFigures, { description: 'All limits that the verification checks.' })),
  cost: may.int('Credits that the verification would take.'),
  ...balanceFigures('Credits before the charge. Absent for an unlimited key.', 'Automatic refill of the key.'),
  identity: may.object(
    'Of `credits`: the balance of the identity. Absent if there is none.',
    balanceFigures('Credits of the identity before the charge.', 'Automatic refill of the identity.'),
  ),
  drawsOn: may.text('Of `credits`: id of the key whose balance it is. Absent if it is its own.'),
  of: may.oneOf(['key', 'identity'], 'Of `credits`, if it failed: whose balance is too small.'),
});
type RuleResult = Static<typeof RuleResult>;
type Figures = Omit<RuleResult, 'rule' | 'result'>;

const output = Type.Object({
  valid: out.flag('True only if `code` is VALID.'),
  code: OneOf(
    [...outcomes, ...errorsOfVerifyKey],
    'Code of the verification, or of the error that it would respond with.',
  ),
  time: out.int('Time of the decision in Unix milliseconds.'),
  keyId: may.text('Id of the key.'),
  apiId: may.text('Id of its API.'),
  externalId: may.text('externalId of its identity.'),
  rules: Type.Array(RuleResult, { description: 'All rules, in the order in which they are checked.' }),
  charge: out.object('What the verification would charge.', {
    credits: out.int('Number of credits.'),
    ratelimits: out.objects('Limits that would be charged.', {
      id: out.text('Id of the limit; empty for one of the request.'),
      name: out.text('Name of the limit.'),
      cost: out.int('Units of the charge.'),
    }),
  }),
  leased: may.object(
    'Decisions that servers have charged in advance (`LEASE_MS`): by this key, and by other keys of its identity. A verification that would be refused takes what is left of them back first, so it may be VALID.',
    {
      key: out.int('Decisions leased for this key.'),
      identity: out.int('Decisions leased for other keys of its identity.'),
    },
  ),
  holds: may.object('Open holds of the key. What they hold is not in the balance, and counts as used.', {
    open: out.int('Number of open holds.'),
    credits: out.int('Credits that they hold.'),
    ratelimits: Units('Name of the limit.', 'Units that they hold.', 'Limits of which they hold units.'),
  }),
});
type Output = Static<typeof output>;
type Code = Output['code'];

export const explainKey = manages({
  name: 'keys.explainKey',
  summary: 'Explain what a verification would respond, rule by rule. Charges, counts and changes nothing.',
  description: 'Needs either `key` or `keyId`.',
  input: Fields({ key: Type.Optional(KeyString), keyId: Type.Optional(KeyId), ...verificationFields }),
  output,
  errors: ['permissions_query_syntax'],
  needs: { api: ['read_key'] },
  readsMuch: true,
  check({ key, keyId, ...verification }) {
    if ((key === undefined) === (keyId === undefined)) {
      throw invalid('body', 'must have either key or keyId', 'Send one of them.');
    }
    verificationOf(verification);
  },
  // The key of an API that the caller may not read looks unknown, as in a verification.
  scope: () => undefined,

  async handle({ key, keyId, ...verification }, { store, caller }) {
    const request = verificationOf(verification);
    const of = key === undefined ? { keyId: keyId! } : { digest: digestTextOf(key) };
    const { tags: _tags, ...decided } = request;
    const found = await store.explain(caller.workspaceId, of, decided);
    const isReadable = caller.grants.holds('api', found.apiId ?? '*', 'read_key');
    if (found.status === 'found' && isReadable) return explained(found, request, await found.holds());
    const reason = isReadable && found.status !== 'found' ? found.status : 'unknown';
    const ids = isReadable ? definedOf({ keyId: found.keyId, apiId: found.apiId }) : {};
    return { ...refusedBy('NOT_FOUND', 'key', { key: { reason } }), time: found.nowMs, ...ids };
  },
});

const nothing = () => ({ credits: 0, ratelimits: [] });

type Request = ReturnType<typeof verificationOf>;

function explained(found: Explanation, request: Request, holds: Output['holds']): Output {
  const { nowMs, keyId, apiId, externalId, leased } = found;
  const [code, rule] = decidedBy(found);
  const figures = figuresOf(found, request, rule);
  const decided = rule === undefined ? passed(figures, chargeOf(found, request)) : refusedBy(code, rule, figures);
  return {
    ...decided,
    time: nowMs,
    keyId,
    apiId,
    ...definedOf({ externalId, holds }),
    ...(leased.key + leased.identity > 0 && { leased }),
  };
}

/** The code of the decision, and the rule that refuses; undefined for VALID. */
export function decidedBy({ decision }: Explanation): [Code, Rule | undefined] {
  if ('reason' in decision) {
    if (decision.reason === 'limit_not_found') return ['precondition_failed', 'ratelimit_names'];
    if (decision.reason === 'too_many_counters') return ['invalid_input', 'ratelimits'];
    if (isOfHolds(decision.reason)) return ['precondition_failed', 'ratelimits'];
    throw new Error(`explainKey: unexpected refusal ${decision.reason}: ${decision.detail}`);
  }
  const { outcome } = decision;
  return [outcome, ruleNames.find((rule) => refusalsByRule[rule] === outcome)];
}

const passed = (figures: FiguresByRule, charge: Output['charge']) => ({
  valid: true,
  code: 'VALID' as const,
  rules: ruleNames.map((rule) => ({ rule, result: 'passed' as const, ...figures[rule] })),
  charge,
});

/** The rules before `failed` passed, and those after it were not reached. */
function refusedBy(code: Code, failed: Rule, figures: FiguresByRule) {
  const at = ruleNames.indexOf(failed);
  const resultOf = (index: number) => (index < at ? 'passed' : index === at ? 'failed' : 'not_reached');
  const rules = ruleNames.map((rule, index) => ({ rule, result: resultOf(index), ...figures[rule] }) as RuleResult);
  return { valid: false, code, rules, charge: nothing() };
}

/** Errors of holds: a verification that takes a slot makes one. */
const isOfHolds = (reason: string): reason is 'too_many_holds' | 'hold_too_large' =>
  reason === 'too_many_holds' || reason === 'hold_too_large';

type FiguresByRule = { readonly [Name in Rule]?: Figures };

function figuresOf(found: Explanation, { query, cost, ip }: Request, failed: Rule | undefined): FiguresByRule {
  const { expires, allowedIps, held, ratelimits } = found;
  const slugs = query
    ?.filter((token) => typeof token === 'string')
    .map((slug, index) => ({ slug, held: held[index]! }));
  const detail = 'reason' in found.decision ? found.decision : undefined;
  return {
    key: failed === 'key' ? { reason: 'other_keyspace' } : {},
    expires: definedOf({ expires }),
    allowed_ips: allowedIps === undefined ? {} : definedOf({ allowedIps, ip: ip && addressText(ip) }),
    permissions: {
      ...definedOf({ slugs }),
      ...(failed === 'permissions' && { missing: missingParts(query!, held) }),
    },
    ratelimit_names: detail?.reason === 'limit_not_found' ? { missing: [detail.detail] } : {},
    ratelimits: {
      ...(ratelimits.length > 0 && { ratelimits }),
      ...(detail && (detail.reason === 'too_many_counters' || isOfHolds(detail.reason)) && { reason: detail.reason }),
    },
    credits: creditsFigures(found, cost, failed === 'credits'),
  };
}

/** The balances of the key and its identity, as far as they have some. */
function creditsFigures(
  { balance, refill, drawsOn, shared, decision }: Explanation,
  cost: number,
  isFailed: boolean,
): Figures {
  if (balance === undefined && !shared) return {};
  const { credits, identityCredits } = 'reason' in decision ? {} : decision;
  const ofKey = balance !== undefined && balance < cost;
  return {
    ...(balance !== undefined && creditsOf(balance, credits, refill)),
    ...definedOf({ drawsOn }),
    cost,
    ...(shared && { identity: creditsOf(shared.balance, identityCredits, shared.refill) }),
    ...(isFailed && shared && { of: ofKey ? 'key' : 'identity' }),
  };
}

/** A balance below 0 is a debt. */
const creditsOf = (balance: number, remaining: number | undefined, refill: Explanation['refill']) => ({
  balance: Math.max(0, balance),
  ...(balance < 0 && { debt: -balance }),
  ...definedOf({ remaining: remaining && Math.max(0, remaining), refill }),
});

function chargeOf({ balance, shared, ratelimits }: Explanation, { cost }: Request): Output['charge'] {
  const charged = ratelimits.filter(({ cost }) => cost > 0).map(({ id, name, cost }) => ({ id, name, cost }));
  return { credits: balance === undefined && !shared ? 0 : cost, ratelimits: charged };
}

interface Part {
  text: string;
  isTrue: boolean;
  isOr: boolean;
  missing: string[];
}

/** The parts of a query that are false: those of the sides of an AND, and an OR as a whole. */
function missingParts(query: PostfixQuery, held: readonly boolean[]): string[] {
  const stack: Part[] = [];
  let slugs = 0;
  for (const token of query) {
    if (typeof token === 'string') {
      stack.push({ text: token, isTrue: held[slugs++]!, isOr: false, missing: [token] });
      continue;
    }
    const right = stack.pop()!;
    const left = stack.pop()!;
    stack.push(token === AND ? bothOf(left, right) : eitherOf(left, right));
  }
  return [...new Set(stack[0]!.missing)];
}

const wrapped = ({ text, isOr }: Part) => (isOr ? `(${text})` : text);

const bothOf = (left: Part, right: Part): Part => ({
  text: `${wrapped(left)} AND ${wrapped(right)}`,
  isTrue: left.isTrue && right.isTrue,
  isOr: false,
  missing: [left, right].filter(({ isTrue }) => !isTrue).flatMap(({ missing }) => missing),
});

function eitherOf(left: Part, right: Part): Part {
  const text = `${left.text} OR ${right.text}`;
  return { text, isTrue: left.isTrue || right.isTrue, isOr: true, missing: [text] };
}

/** The members that have a value. */
const definedOf = <Members extends object>(members: Members) =>
  Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as {
    [Name in keyof Members]?: NonNullable<Members[Name]>;
  };
