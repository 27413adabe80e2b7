// Outcomes of a verification, and what a response contains of a key (docs/contract.md §6).

import type { JsonText } from './json.ts';

/** Their order gives the numbers that Lua uses, from 1. It is not the order of the checks. */
export const outcomes = [
  'VALID',
  'DISABLED',
  'EXPIRED',
  'INSUFFICIENT_PERMISSIONS',
  'RATE_LIMITED',
  'USAGE_EXCEEDED',
  'NOT_FOUND',
] as const;

export type Outcome = (typeof outcomes)[number];

/** A configured limit. */
export interface Ratelimit {
  id: string;
  name: string;
  limit: number;
  duration: number;
  autoApply: boolean;
}

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
  name: string | undefined;
  meta: JsonText | undefined;
  permissions: string[];
  roles: string[];
  ratelimits: Ratelimit[];
  identity: SnapshotIdentity | undefined;
}

/** A snapshot as text, printed once. Responses contain `fields` unchanged. */
export interface SnapshotText {
  apiId: string;
  externalId: string | undefined;
  fields: string;
  /** Start and end of the key's metadata in `fields`; both 0 without metadata. */
  metaStart: number;
  metaEnd: number;
  keyLimits: readonly PrintedLimit[];
  identityLimits: readonly PrintedLimit[];
}

export interface PrintedLimit {
  name: string;
  limit: number;
  duration: number;
  /** The limit as JSON without its closing brace: the response continues it with the state of the limit. */
  text: string;
}

// By hand instead of by `print`: with more keys than the cache holds, most verifications come here.
const printLimit = ({ id, name, limit, duration, autoApply }: Ratelimit): PrintedLimit => ({
  name,
  limit,
  duration,
  text: `{"id":"${id}","name":${JSON.stringify(name)},"limit":${limit},"duration":${duration},"autoApply":${autoApply}`,
});

const beforeKeyId = '"keyId":"';

export function printSnapshot(snapshot: Snapshot): SnapshotText {
  const { keyId, apiId, enabled, name, meta, expires, permissions, roles, identity, ratelimits } = snapshot;
  let fields = `${beforeKeyId}${keyId}","enabled":${enabled}`;
  let metaStart = 0;
  let metaEnd = 0;
  if (name !== undefined) fields += `,"name":${JSON.stringify(name)}`;
  if (meta) {
    fields += ',"meta":';
    metaStart = fields.length;
    fields += meta.text;
    metaEnd = fields.length;
  }
  if (expires !== undefined) fields += `,"expires":${expires}`;
  if (permissions.length > 0) fields += `,"permissions":${JSON.stringify(permissions)}`;
  if (roles.length > 0) fields += `,"roles":${JSON.stringify(roles)}`;
  const identityLimits = identity?.ratelimits.map(printLimit) ?? [];
  if (identity) {
    const limits = identityLimits.map(({ text }) => `${text}}`).join(',');
    fields += `,"identity":{"id":"${identity.id}","externalId":${JSON.stringify(identity.externalId)},"meta":${identity.meta.text},"ratelimits":[${limits}]}`;
  }
  const externalId = identity?.externalId;
  return { apiId, externalId, fields, metaStart, metaEnd, keyLimits: ratelimits.map(printLimit), identityLimits };
}

export const keyIdOf = ({ fields }: SnapshotText): string =>
  fields.slice(beforeKeyId.length, fields.indexOf('"', beforeKeyId.length));

/** The metadata of the key as JSON text; undefined if it has none. */
export const metaOf = ({ fields, metaStart, metaEnd }: SnapshotText): string | undefined =>
  metaEnd === 0 ? undefined : fields.slice(metaStart, metaEnd);
