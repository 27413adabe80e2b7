// How the outcome of a verification is told (docs/contract.md §6).

import type { JsonText } from './json.ts';

/** In the order of their numbers in lua/decide.lua, from 1. */
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

/** A limit as it is configured, beside its id. */
export interface Ratelimit {
  id: string;
  name: string;
  limit: number;
  duration: number;
  autoApply: boolean;
}

export interface ShownIdentity {
  id: string;
  externalId: string;
  meta: JsonText;
  ratelimits: Ratelimit[];
}

/** What an answer shows beside the decision. It changes only when the version of the key's records does. */
export interface Shown {
  keyId: string;
  apiId: string;
  enabled: boolean;
  expires: number | undefined;
  name: string | undefined;
  meta: JsonText | undefined;
  permissions: string[];
  roles: string[];
  ratelimits: Ratelimit[];
  identity: ShownIdentity | undefined;
}

/** Shown, printed once: `fields` stands in the answer as it is, and each limit's text is continued with its state. */
export interface ShownText {
  /** Not part of an answer of keys.verifyKey; the gateway check returns it as a header. */
  apiId: string;
  fields: string;
  keyLimits: readonly string[];
  identityLimits: readonly string[];
}

// By hand rather than by `print`: with more keys than are remembered, this is on the way of most verifications.
const limitText = ({ id, name, limit, duration, autoApply }: Ratelimit): string =>
  `{"id":"${id}","name":${JSON.stringify(name)},"limit":${limit},"duration":${duration},"autoApply":${autoApply}`;

export function printShown(shown: Shown): ShownText {
  const { keyId, apiId, enabled, name, meta, expires, permissions, roles, identity, ratelimits } = shown;
  let fields = `"keyId":"${keyId}","enabled":${enabled}`;
  if (name !== undefined) fields += `,"name":${JSON.stringify(name)}`;
  if (meta) fields += `,"meta":${meta.text}`;
  if (expires !== undefined) fields += `,"expires":${expires}`;
  if (permissions.length > 0) fields += `,"permissions":${JSON.stringify(permissions)}`;
  if (roles.length > 0) fields += `,"roles":${JSON.stringify(roles)}`;
  const identityLimits = identity?.ratelimits.map(limitText) ?? [];
  if (identity) {
    const limits = identityLimits.map((text) => `${text}}`).join(',');
    fields += `,"identity":{"id":"${identity.id}","externalId":${JSON.stringify(identity.externalId)},"meta":${identity.meta.text},"ratelimits":[${limits}]}`;
  }
  return { apiId, fields, keyLimits: ratelimits.map(limitText), identityLimits };
}
