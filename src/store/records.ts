// Records as the scripts answer them, read into the shapes of docs/contract.md §4.

import { JsonText } from '../domain/json.ts';
import type { Ratelimit } from '../domain/verification.ts';

export interface Refill {
  interval: 'daily' | 'monthly';
  amount: number;
  refillDay?: number;
}

export interface Credits {
  remaining: number;
  refill?: Refill;
}

export interface Identity {
  id: string;
  externalId: string;
  meta: JsonText;
  ratelimits: Ratelimit[];
}

export interface KeyRecord {
  keyId: string;
  apiId: string;
  start: string;
  enabled: boolean;
  createdAt: number;
  prefix?: string;
  name?: string;
  externalId?: string;
  meta?: JsonText;
  expires?: number;
  updatedAt?: number;
  lastUsedAt?: number;
  permissions?: string[];
  roles?: string[];
  credits?: Credits;
  identity?: Identity;
  ratelimits?: Ratelimit[];
}

export type LimitRow = [id: string, name: string, limit: string, duration: string, autoApply: 0 | 1];
export type IdentityRow = [id: string, externalId: string, meta: string | null, limits: LimitRow[]];

/** show_key of lua/include/keys.lua. */
export type KeyRow = [
  keyId: string,
  apiId: string,
  enabled: 0 | 1,
  expires: string | null,
  lastUsed: string,
  limited: 0 | 1,
  balance: string,
  refillAmount: string,
  refillDay: number,
  shown: [
    start: string,
    created: string,
    updated: string | null,
    prefix: string | null,
    bytes: string | null,
    name: string | null,
    meta: string | null,
  ],
  /** Or lists of numbers, see slugs.ts. */
  slugs: string[],
  roles: string[],
  limits: LimitRow[],
  identity: IdentityRow | null,
];

export const readLimit = ([id, name, limit, duration, autoApply]: LimitRow): Ratelimit => ({
  id: `rl_${id}`,
  name,
  limit: Number(limit),
  duration: Number(duration),
  autoApply: autoApply === 1,
});

export const readIdentity = ([id, externalId, meta, limits]: IdentityRow): Identity => ({
  id: `id_${id}`,
  externalId,
  meta: new JsonText(meta ?? '{}'),
  ratelimits: limits.map(readLimit),
});

/** A refill rule as scripts answer it: amount '0' is none, day 0 is daily. */
export function readRefill(amount: string, day: number): Refill | undefined {
  if (amount === '0') return undefined;
  return day === 0
    ? { interval: 'daily', amount: Number(amount) }
    : { interval: 'monthly', amount: Number(amount), refillDay: day };
}

export function readKey(row: KeyRow): KeyRecord {
  const [
    keyId,
    apiId,
    enabled,
    expires,
    lastUsed,
    limited,
    balance,
    refillAmount,
    refillDay,
    shown,
    slugs,
    roles,
    limits,
    identity,
  ] = row;
  const [start, created, updated, prefix, , name, meta] = shown;
  const refill = readRefill(refillAmount, refillDay);
  return {
    keyId,
    apiId,
    start,
    enabled: enabled === 1,
    createdAt: Number(created),
    ...(prefix !== null && { prefix }),
    ...(name !== null && { name }),
    ...(meta !== null && { meta: new JsonText(meta) }),
    ...(expires !== null && { expires: Number(expires) }),
    ...(updated !== null && { updatedAt: Number(updated) }),
    ...(lastUsed !== '0' && { lastUsedAt: Number(lastUsed) }),
    ...(slugs.length > 0 && { permissions: slugs }),
    ...(roles.length > 0 && { roles }),
    ...(limited === 1 && { credits: { remaining: Number(balance), ...(refill && { refill }) } }),
    ...(identity && { externalId: identity[1], identity: readIdentity(identity) }),
    ...(limits.length > 0 && { ratelimits: limits.map(readLimit) }),
  };
}
