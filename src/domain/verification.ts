// Outcomes of a verification, and what a response contains of a key (docs/contract.md §6).

import { type JsonText, print } from './json.ts';
import { type PrintedLimit, presented, printLimit, type Ratelimit } from './limit.ts';
import { periodAt, type Quota } from './quota.ts';

/**
 * The outcomes other than VALID, each with the error that the gateway check responds with (src/errors.ts), and what it
 * tells the client of the gateway. Their order gives the numbers that Lua uses, from 2. It is not the order of the
 * checks. The numbers are stored, so new outcomes are last.
 */
export const outcomeErrors = {
  DISABLED: { code: 'key_disabled', detail: 'The key is disabled.' },
  EXPIRED: { code: 'key_expired', detail: 'The key has expired.' },
  INSUFFICIENT_PERMISSIONS: {
    code: 'key_lacks_permission',
    detail: 'The key lacks a permission that the request requires.',
  },
  RATE_LIMITED: { code: 'rate_limited', detail: 'A limit is exceeded: ' },
  USAGE_EXCEEDED: { code: 'usage_exceeded', detail: 'The key has too few credits left.' },
  NOT_FOUND: { code: 'invalid_key', detail: 'The key is unknown.' },
  FORBIDDEN: { code: 'ip_not_allowed', detail: 'The key may not be used from this IP address.' },
} as const;

type RefusedOutcome = keyof typeof outcomeErrors;

export type Outcome = 'VALID' | RefusedOutcome;

/** Their numbers in Lua are their places here, from 1. */
export const outcomes: readonly Outcome[] = ['VALID', ...(Object.keys(outcomeErrors) as RefusedOutcome[])];

export interface SnapshotIdentity {
  id: string;
  externalId: string;
  meta: JsonText;
  ratelimits: Ratelimit[];
}

/**
 * The snapshot of a key: what a response contains in addition to the decision. It changes only with the version of the
 * key's records.
 */
export interface Snapshot {
  keyId: string;
  apiId: string;
  enabled: boolean;
  expires: number | undefined;
  /** The fields of its record that verifications return (`verified` of src/scripts/layout.ts). */
  values: Readonly<Record<string, string | JsonText>>;
  permissions: string[];
  roles: string[];
  ratelimits: Ratelimit[];
  identity: SnapshotIdentity | undefined;
  /** The plan of the key, or else of its identity. */
  plan: { planId: string; meta: JsonText | undefined } | undefined;
}

/** A snapshot as text, printed once. Responses contain `fields` unchanged. */
export interface SnapshotText {
  apiId: string;
  externalId: string | undefined;
  planId: string | undefined;
  /** Ends with the identity, if there is one: responses add its credits to that. */
  fields: string;
  /** Start and end of the key's metadata in `fields`; both 0 without metadata. */
  metaStart: number;
  metaEnd: number;
  keyLimits: readonly PrintedLimit[];
  identityLimits: readonly PrintedLimit[];
  /** If there are quotas: from when to when all are in the same periods, and what is printed again at other times. */
  periods?: { start: number; end: number; of: Snapshot };
}

const beforeKeyId = '"keyId":"';

/** From when to when all quotas of a key are in the periods in which a time is; undefined without quotas. */
function periodsAt(limits: readonly Ratelimit[], atMs: number): { start: number; end: number } | undefined {
  const quotas = limits.flatMap((limit) => [limit, limit.former ?? []].flat()).filter(({ period }) => period);
  if (quotas.length === 0) return undefined;
  const periods = quotas.map((quota) => periodAt(quota as Quota, atMs));
  return {
    start: Math.max(...periods.map(({ start }) => start)),
    end: Math.min(...periods.map(({ end }) => end)),
  };
}

/** Prints a snapshot as of a time. */
export function printSnapshot(snapshot: Snapshot, atMs: number): SnapshotText {
  const { keyId, apiId, enabled, values, expires, permissions, roles, identity, ratelimits, plan } = snapshot;
  let fields = `${beforeKeyId}${keyId}","enabled":${enabled}`;
  let metaStart = 0;
  let metaEnd = 0;
  for (const name in values) {
    fields += `,"${name}":`;
    if (name === 'meta') metaStart = fields.length;
    fields += print(values[name]);
    if (name === 'meta') metaEnd = fields.length;
  }
  if (expires !== undefined) fields += `,"expires":${expires}`;
  if (permissions.length > 0) fields += `,"permissions":${JSON.stringify(permissions)}`;
  if (roles.length > 0) fields += `,"roles":${JSON.stringify(roles)}`;
  if (plan) {
    fields += `,"plan":{"planId":${JSON.stringify(plan.planId)}${plan.meta ? `,"meta":${plan.meta.text}` : ''}}`;
  }
  const printed = (limit: Ratelimit) => printLimit(presented(limit, atMs));
  const identityLimits = identity?.ratelimits.map(printed) ?? [];
  if (identity) {
    const limits = identityLimits.map(({ text }) => `${text}}`).join(',');
    fields += `,"identity":{"id":"${identity.id}","externalId":${JSON.stringify(identity.externalId)},"meta":${identity.meta.text},"ratelimits":[${limits}]}`;
  }
  const externalId = identity?.externalId;
  const periods = periodsAt([...ratelimits, ...(identity?.ratelimits ?? [])], atMs);
  return {
    apiId,
    externalId,
    planId: plan?.planId,
    fields,
    metaStart,
    metaEnd,
    keyLimits: ratelimits.map(printed),
    identityLimits,
    ...(periods && { periods: { ...periods, of: snapshot } }),
  };
}

export const keyIdOf = ({ fields }: SnapshotText): string =>
  fields.slice(beforeKeyId.length, fields.indexOf('"', beforeKeyId.length));

const withName = /^"keyId":"[^"]*","enabled":(?:true|false),"name":("(?:[^"\\]|\\.)*")/;

/** The name of the key; undefined if it has none. */
export function keyNameOf({ fields }: SnapshotText): string | undefined {
  const name = withName.exec(fields)?.[1];
  return name === undefined ? undefined : JSON.parse(name);
}

/** The metadata of the key as JSON text; undefined if it has none. */
export const metaOf = ({ fields, metaStart, metaEnd }: SnapshotText): string | undefined =>
  metaEnd === 0 ? undefined : fields.slice(metaStart, metaEnd);
