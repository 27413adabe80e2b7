// Histories of keys: their counts by hour (lua/include/usage.lua), of past hours and of the current one.

import { unpackId } from '../../domain/keyString.ts';
import { outcomes } from '../../domain/verification.ts';
import type { StoreContext } from '../context.ts';
import { formerKeysKey, formerMembersKey, keysKey, workspaceKey } from '../keyspace.ts';
import { outcomesCounted, usageCount, usageEntryEnd, usageEntryHead, usageSpent } from '../layout.ts';
import { orStoreError } from '../redis.ts';
import { readUint } from '../struct.ts';
import { membersOf, membersStep } from './commands.ts';
import { monthsIn, type Period, readsMax, tooMuch, type UsageCount, type UsageQuery, type Visit } from './query.ts';

/** Limit of the keys of a query. */
const keysMax = 50_000;
/** Limit of the hours of a query: about a second of the server's time. */
const hoursMax = 2_000_000;
/** Months of keys that one script reads. */
const monthsStep = 200;
/** Bytes that one script reads, which the server adds up in a few milliseconds. A month of a key has up to 57 KB. */
const bytesStep = 32_768;

/** Counts of verifications by key and externalId. */
export async function countByKey(
  context: StoreContext,
  workspaceId: string,
  apiIds: readonly string[],
  query: UsageQuery,
  period: Period,
  visit: Visit<UsageCount>,
) {
  const apiOf = new Map(apiIds.map((apiId) => [apiId.slice(-8), apiId]));
  const keys = (await keysOf(context, workspaceId, apiIds, query)).filter(
    (key24) => key24.length === 24 && apiOf.has(key24.slice(16)),
  );
  let hours = 0;
  for await (const [key24, history] of historiesOf(context, workspaceId, keys, monthsIn(period))) {
    const apiId = apiOf.get(key24.slice(16))!;
    const keyId = `key_${key24}`;
    for (const { hour, counted, spent, externalId } of readHistory(history)) {
      if (++hours > hoursMax) throw tooMuch();
      for (const [index, count] of counted.entries()) {
        if (count === 0) continue;
        const outcome = outcomes[index]!;
        // Only VALID verifications are charged.
        const spentCredits = outcome === 'VALID' ? spent : 0;
        visit({ hour, outcome, count, spentCredits, apiId, keyId, externalId });
      }
    }
  }
}

/** The histories of keys in these months, each with the current hour. */
async function* historiesOf(
  { scripts }: StoreContext,
  workspaceId: string,
  keys: readonly string[],
  months: readonly string[],
): AsyncGenerator<[key24: string, history: Buffer]> {
  if (keys.length * months.length > readsMax) throw tooMuch();
  const keysStep = Math.max(1, Math.floor(monthsStep / months.length));
  for (let first = 0; first < keys.length; ) {
    const some = keys.slice(first, first + keysStep);
    const args = [some.join(''), months.join(''), bytesStep];
    const histories = (await scripts.runPacked('analytics/keys', workspaceId, args)) as (Buffer | 0)[];
    for (const [index, history] of histories.entries()) {
      if (history === 0) throw tooMuch();
      yield [some[index]!, history];
    }
    first += histories.length;
  }
}

/** The keys (without `key_`) that a query may count, including deleted ones. With an identity, keys of all APIs. */
async function keysOf(
  context: StoreContext,
  workspaceId: string,
  apiIds: readonly string[],
  { keyId, externalId }: UsageQuery,
): Promise<string[]> {
  if (keyId !== undefined) return [keyId.slice('key_'.length)];
  if (externalId !== undefined) return keysOfIdentity(context, workspaceId, externalId);
  const workspace = workspaceKey(workspaceId);
  const keys = new Set<string>();
  const limit = new Limit(keysMax);
  for (const apiId of apiIds) {
    const list = keysKey(workspace, apiId);
    await limit.takeMembers(context, list);
    for await (const member of membersOf(context.redis, list)) keys.add(unpackId(member) + apiId.slice(-8));
    const former = formerKeysKey(workspace, apiId);
    await limit.takeMembers(context, former);
    for await (const member of membersOf(context.redis, former)) keys.add(member.toString('latin1'));
  }
  return [...keys];
}

/** The present and former keys of all identities with this externalId, including deleted identities. */
async function keysOfIdentity(context: StoreContext, workspaceId: string, externalId: string): Promise<string[]> {
  const { redis, scripts } = context;
  const keys = new Set<string>();
  const limit = new Limit(keysMax);
  /** `identity` is an id without `id_`; '' is the identity that exists. */
  async function addKeysOf(identity: string) {
    for (let after: string | null = ''; after !== null; ) {
      const args: string[] = [externalId, identity, after, String(membersStep)];
      const reply = await scripts.run('analytics/identityKeys', workspaceId, args);
      const [found, next] = reply as [string[], string | null];
      limit.take(found.length);
      for (const key24 of found) keys.add(key24);
      after = next;
    }
  }
  // The existing identity is read first. If it is deleted meanwhile, it is in the list that is read next.
  await addKeysOf('');
  const identities: string[] = [];
  const former = formerMembersKey(workspaceKey(workspaceId), externalId);
  await limit.takeMembers(context, former);
  for await (const member of membersOf(redis, former)) {
    if (member.length === 16) identities.push(member.toString('latin1'));
    else keys.add(member.toString('latin1'));
  }
  for (const identity of identities) await addKeysOf(identity);
  return [...keys];
}

/** Counts the keys that a query reads, and refuses the query beyond a maximum. */
class Limit {
  #left: number;

  constructor(max: number) {
    this.#left = max;
  }

  take(count: number) {
    this.#left -= count;
    if (this.#left < 0) throw tooMuch();
  }

  /** Counts the members of a list. Called before they are read. */
  async takeMembers({ redis }: StoreContext, list: string) {
    this.take(await orStoreError(redis.zcard(list)));
  }
}

/**
 * The hours of a history, as usage_entry of lua/include/usage.lua packs them, each with the offset of its end. `counted` has the
 * counts in the order of `outcomes`.
 */
export function* readHistory(history: Buffer) {
  for (let at = 0; at < history.length; ) {
    const hour = readUint(history, at, usageEntryHead.fields.hour.bytes);
    const bits = history[at + usageEntryHead.at.bits]!;
    at += usageEntryHead.bytes;
    const counted: number[] = [];
    for (let outcome = 0; outcome < outcomesCounted; outcome++) {
      const isCounted = bits & (1 << outcome);
      counted.push(isCounted ? readUint(history, at, usageCount.bytes) : 0);
      if (isCounted) at += usageCount.bytes;
    }
    const isSpent = bits & (1 << outcomesCounted);
    const spent = isSpent ? readUint(history, at, usageSpent.bytes) : 0;
    if (isSpent) at += usageSpent.bytes;
    const externalIdAt = at + usageEntryEnd.fields.externalId.lengthBytes;
    at = externalIdAt + history[at]!;
    yield { hour, counted, spent, externalId: history.toString('utf8', externalIdAt, at), end: at };
  }
}
