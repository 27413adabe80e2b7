// Reads replies of scripts into the shapes of docs/contract.md §4.

import { JsonText } from '../domain/json.ts';
import { type LimitValueName, type Ratelimit, ratelimitOf, type StoredEnd, type UsedSlices } from '../domain/limit.ts';
import type { Reply, UsedUnits } from '../scripts/calls.ts';
import { type KeyTime, type keyRecordFields, keyTimes } from '../scripts/layout.ts';
import { valuesOf } from './keyValues.ts';

export interface Refill {
  interval: 'daily' | 'monthly';
  amount: number;
  refillDay?: number;
}

/** A balance below 0 is a debt, see keys.settleHold. */
export const creditsOf = (balance: number): { remaining: number; debt?: number } =>
  balance < 0 ? { remaining: 0, debt: -balance } : { remaining: balance };

interface Credits {
  remaining: number;
  debt?: number;
  refill?: Refill;
}

export type Identity = ReturnType<typeof identityOfReply>;
/** An identity that is read by itself. */
export type ListedIdentity = ReturnType<typeof readListedIdentity>;
/** Its permissions are JSON when there are very many. */
export type KeyRecord = ReturnType<typeof readKey>;

/** A packed reply with text instead of Buffers. */
export function asText(reply: unknown): unknown {
  if (Buffer.isBuffer(reply)) return reply.toString();
  return Array.isArray(reply) ? reply.map(asText) : reply;
}

/** Reads a named reply (lua/include/fields.lua): name, value, …. Fields without a value are missing. */
export function fromNamed<Fields>(reply: unknown): Fields {
  const flat = reply as Reply[];
  const fields: Record<string, Reply> = {};
  for (let at = 0; at < flat.length; at += 2) fields[flat[at] as string] = flat[at + 1]!;
  return fields as Fields;
}

/** By the index of the limit, from 0. */
export const readUsedUnits = (replies: readonly UsedUnits[]): Map<number, UsedSlices> =>
  new Map(
    replies.map(([index, ends, units]) => [
      Number(index) - 1,
      ends.map((end, at): [number, number] => [Number(end), Number(units[at])]),
    ]),
  );

/** As limit_reply of lua/include/reply.lua returns it. */
export type LimitReply = Record<LimitValueName | 'id' | 'name', string> &
  Partial<Record<keyof StoredEnd, string>> & {
    /** Of a quota: the time of the reply. */
    at?: string;
  };

interface IdentityReply {
  id: string;
  externalId: string;
  meta?: string;
  /** Each a named reply. */
  limits: Reply[];
  /** As those of a key; missing without a balance. */
  balance?: string;
  refillAmount?: string;
  refillDay?: number;
  keyCount?: number;
  planId?: string;
  /** In an export only. */
  refillDue?: string;
  restorableUntil?: string;
}

const keyTimeNames = Object.keys(keyTimes) as KeyTime[];

type DisplayFields = typeof keyRecordFields;
/** The fields of a key's record that are in a reply as they are. */
type DisplayField = {
  [Name in keyof DisplayFields]: DisplayFields[Name]['display'] extends true ? Name : never;
}[keyof DisplayFields];

/** As key_reply of lua/include/keyRecords.lua returns it. */
export interface KeyReply extends Partial<Record<DisplayField | KeyTime, string>> {
  start: string;
  created: string;
  keyId: string;
  apiId: string;
  enabled?: 1;
  lastUsed?: string;
  /** Missing for an unlimited key. */
  balance?: string;
  refillAmount?: string;
  /** 0 is daily. */
  refillDay?: number;
  slugs: string[];
  /** Lists of permission numbers (`,3,17,`), instead of `slugs` when a key has very many. */
  permissionLists: string[];
  roleNames: string[];
  /** Each a named reply. */
  limits: Reply[];
  /** A named reply. */
  identity?: Reply;
  /** For a deleted key only. */
  restorableUntil?: string;
}

export const limitOfReply = (reply: LimitReply): Ratelimit =>
  ratelimitOf(`rl_${reply.id}`, reply.name, reply, Number(reply.at ?? 0));
export const readLimit = (reply: Reply): Ratelimit => limitOfReply(fromNamed<LimitReply>(reply));

function identityOfReply(named: IdentityReply) {
  const { id, externalId, meta, limits, planId } = named;
  const credits = readCredits(named);
  return {
    id: `id_${id}`,
    externalId,
    meta: new JsonText(meta ?? '{}'),
    ratelimits: limits.map(readLimit),
    ...(credits && { credits }),
    ...(planId !== undefined && { planId }),
  };
}

export const readIdentity = (reply: unknown): Identity => identityOfReply(fromNamed<IdentityReply>(reply));

/** A reply with the number of its keys. */
export function readListedIdentity(reply: unknown) {
  const named = fromNamed<IdentityReply>(reply);
  const restorableUntil = numberOf(named.restorableUntil);
  return { ...identityOfReply(named), keyCount: named.keyCount!, ...(restorableUntil && { restorableUntil }) };
}

/** When the next refill of an exported identity is due, Unix milliseconds. */
export const refillDueOf = (reply: unknown): number | undefined => numberOf(fromNamed<IdentityReply>(reply).refillDue);

export function readRefill({
  refillAmount,
  refillDay = 0,
}: Pick<KeyReply, 'refillAmount' | 'refillDay'>): Refill | undefined {
  if (refillAmount === undefined) return undefined;
  const amount = Number(refillAmount);
  return refillDay === 0 ? { interval: 'daily', amount } : { interval: 'monthly', amount, refillDay };
}

const numberOf = (value: string | undefined): number | undefined => (value === undefined ? undefined : Number(value));

/** Undefined for an unlimited key, or an identity without a balance. */
function readCredits(reply: Pick<KeyReply, 'balance' | 'refillAmount' | 'refillDay'>): Credits | undefined {
  if (reply.balance === undefined) return undefined;
  const refill = readRefill(reply);
  return { ...creditsOf(Number(reply.balance)), ...(refill && { refill }) };
}

/** The times that a key has. */
function timesOf(reply: KeyReply): Partial<Record<KeyTime, number>> {
  const times: Partial<Record<KeyTime, number>> = {};
  for (const name of keyTimeNames) {
    const time = numberOf(reply[name]);
    if (time !== undefined) times[name] = time;
  }
  return times;
}

/** `permissions` replaces the slugs of the reply where it has lists of numbers. */
export function readKey(reply: KeyReply, permissions?: JsonText) {
  const { slugs, roleNames, limits } = reply;
  const credits = readCredits(reply);
  const updatedAt = numberOf(reply.updated);
  const lastUsedAt = numberOf(reply.lastUsed);
  const identity = reply.identity === undefined ? undefined : readIdentity(reply.identity);
  return {
    keyId: reply.keyId,
    apiId: reply.apiId,
    start: reply.start,
    enabled: reply.enabled === 1,
    createdAt: Number(reply.created),
    ...valuesOf(reply),
    ...timesOf(reply),
    ...(updatedAt !== undefined && { updatedAt }),
    ...(lastUsedAt !== undefined && { lastUsedAt }),
    ...((permissions || slugs.length > 0) && { permissions: permissions ?? slugs }),
    ...(roleNames.length > 0 && { roles: roleNames }),
    ...(credits && { credits }),
    ...(identity && { externalId: identity.externalId, identity }),
    ...(limits.length > 0 && { ratelimits: limits.map(readLimit) }),
    ...(reply.restorableUntil !== undefined && { restorableUntil: Number(reply.restorableUntil) }),
  };
}
