// Counts by key and externalId: from the days, the log and the current hour of each key that was used.

import { packIdInto } from '../domain/keyString.ts';
import { outcomes } from '../domain/verification.ts';
import { chunks } from '../redis/chunks.ts';
import { orStoreError } from '../redis/connection.ts';
import { formerMembersKey, workspaceKey } from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';
import { countedOutcomes, countPlaces, spentPlace } from '../scripts/layout.ts';
import { membersOf, membersStep } from './commands.ts';
import { type Counts, type DayVisitor, noCounts, readCurrentHour, readLog, visitDays } from './days.ts';
import { type KeptPeriod, tooMuch, type UsageCount, type UsageQuery, type Visit } from './query.ts';
import { usedKeys } from './used.ts';

/** Keys and bytes that one script reads, which takes a millisecond or two, and the server as long to add up. */
const keysStep = 200;
const bytesStep = 131_072;
/**
 * Limit of the keys of an identity that are looked up one by one. With more, the keys used in the period are read
 * instead.
 */
const keysOfIdentityMax = 20_000;
/** Identities whose keys are read at the same time. */
const identitiesStep = 25;

/** Counts of verifications by key and externalId. */
export async function countByKey(
  context: StoreContext,
  workspaceId: string,
  apiIds: readonly string[],
  query: Pick<UsageQuery, 'keyIds' | 'externalIds' | 'bucketOf'>,
  { period, today }: { period: KeptPeriod; today: number },
  visit: Visit<UsageCount>,
) {
  const named = await keysNamed(context, workspaceId, query);
  const api8s = apiIds.map((apiId) => apiId.slice(-8));
  const found = named ?? (await usedKeys(context, workspaceId, api8s, period, today));
  await countKeys(context, workspaceId, apiIds, found, { period, bucketOf: query.bucketOf }, visit);
}

/** The counts of these keys (without `key_`) of these APIs. */
export async function countKeys(
  context: StoreContext,
  workspaceId: string,
  apiIds: readonly string[],
  found: readonly string[],
  { period, bucketOf }: { period: KeptPeriod } & Pick<UsageQuery, 'bucketOf'>,
  visit: Visit<UsageCount>,
) {
  const apiOf = new Map(apiIds.map((apiId) => [apiId.slice(-8), apiId]));
  const keys = found.filter((key24) => key24.length === 24 && apiOf.has(key24.slice(16)));
  const sums = new KeySums(bucketOf, period, visit);
  for await (const { first, reply } of usageOf(context, workspaceId, keys)) {
    for (let at = 0; at < reply.length; at += partsOfKey) {
      const key24 = keys[first + at / partsOfKey]!;
      const [days, log, current] = [reply[at]!, reply[at + 1]!, reply[at + 2]!];
      sums.begin(`key_${key24}`, apiOf.get(key24.slice(16))!);
      visitDays(days, sums.visitor);
      sums.addHours(readLog(log));
      if (current.length > 0) sums.addHours([readCurrentHour(current)]);
      sums.end();
    }
  }
}

/** Adds up the counts of one key after the other, and visits a sum for each bucket and externalId. */
class KeySums {
  readonly #bucketOf: UsageQuery['bucketOf'];
  readonly #period: KeptPeriod;
  readonly #visit: Visit<UsageCount>;
  #keyId = '';
  #apiId = '';
  // Of the sum that is being added up.
  #hour = -1;
  #bucket = 0;
  #externalId = '';
  readonly #sums: Counts = noCounts();
  /** Called for each day of a key. */
  readonly visitor: DayVisitor;

  constructor(bucketOf: UsageQuery['bucketOf'], period: KeptPeriod, visit: Visit<UsageCount>) {
    this.#bucketOf = bucketOf;
    this.#period = period;
    this.#visit = visit;
    const { fromHour, toHour, hourlyFrom } = period;
    this.visitor = {
      wants: (day) => 24 * day < toHour && 24 * day + 24 > fromHour,
      wantsHours(day) {
        const first = 24 * day;
        if (first < hourlyFrom) return false;
        return first < fromHour || first + 24 > toHour || bucketOf(first) !== bucketOf(first + 23);
      },
      visit: (day, hourOfDay, counts, externalId) => {
        const hour = 24 * day + (hourOfDay ?? 0);
        // Sums are read of days that are wanted whole, or whose hours are not kept.
        if (hourOfDay === undefined || this.#covers(hour)) this.#add(hour, counts, externalId);
      },
    };
  }

  begin(keyId: string, apiId: string) {
    this.#keyId = keyId;
    this.#apiId = apiId;
  }

  addHours(hours: Iterable<ReturnType<typeof readCurrentHour>>) {
    const { hourlyFrom } = this.#period;
    for (const { hour, counts, externalId } of hours) {
      const kept = hour < hourlyFrom ? 24 * Math.floor(hour / 24) : hour;
      if (this.#covers(kept)) this.#add(kept, counts, externalId);
    }
  }

  #covers(hour: number): boolean {
    return hour >= this.#period.fromHour && hour < this.#period.toHour;
  }

  #add(hour: number, counts: Counts, externalId: string) {
    const bucket = this.#bucketOf(hour);
    if (this.#hour < 0 || bucket !== this.#bucket || externalId !== this.#externalId) {
      this.end();
      this.#hour = hour;
      this.#bucket = bucket;
      this.#externalId = externalId;
    }
    for (let index = 0; index < countPlaces; index++) this.#sums[index]! += counts[index]!;
  }

  /** Visits the last sum. */
  end() {
    if (this.#hour < 0) return;
    const sums = this.#sums;
    for (const number of countedOutcomes) {
      const count = sums[number - 1]!;
      const outcome = outcomes[number - 1]!;
      // Only VALID verifications are charged, some of them in a later hour: when a hold is settled.
      const spentCredits = outcome === 'VALID' ? sums[spentPlace]! : 0;
      if (count === 0 && spentCredits === 0) continue;
      this.#visit({
        hour: this.#hour,
        isOfDay: this.#hour < this.#period.hourlyFrom,
        outcome,
        count,
        spentCredits,
        apiId: this.#apiId,
        keyId: this.#keyId,
        externalId: this.#externalId,
      });
    }
    this.#hour = -1;
    sums.fill(0);
  }
}

/** The values of each key in a reply of lua/analytics/keys.lua: days, log, current hour. */
export const partsOfKey = 3;

/** A part of the keys, which is read in steps. */
interface Lane {
  /** The index of the first key of the step that is being read. */
  first: number;
  end: number;
  reading: Promise<(Buffer | 0)[]> | undefined;
}

/**
 * What is stored of the usage of keys, in steps: a reply, and the index of its first key. One step runs and one waits
 * at Redis while a third is added up: with one, Redis and the server would wait for each other.
 */
export async function* usageOf(
  { run }: StoreContext,
  workspaceId: string,
  keys: readonly string[],
): AsyncGenerator<{ first: number; reply: Buffer[] }> {
  const read = (first: number, end: number) => {
    if (first >= end) return undefined;
    const packed = packedKeys(keys.slice(first, Math.min(first + keysStep, end)));
    const reading = run('analytics/keys', workspaceId, { keys: packed, bytesMax: bytesStep });
    // For a query that is abandoned: otherwise its error is thrown where it is awaited.
    reading.catch(() => {});
    return reading;
  };
  const half = Math.ceil(keys.length / 2);
  const lanes: Lane[] = [
    { first: 0, end: half, reading: read(0, half) },
    { first: half, end: keys.length, reading: read(half, keys.length) },
  ];
  while (lanes.some(({ reading }) => reading)) {
    for (const lane of lanes) {
      const { first, reading } = lane;
      if (!reading) continue;
      const reply = await reading;
      if (reply.at(-1) === 0) throw tooMuch();
      lane.first = first + reply.length / partsOfKey;
      lane.reading = read(lane.first, lane.end);
      yield { first, reply: reply as Buffer[] };
    }
  }
}

/** Bytes of the id of a key in arguments of a script: its 24 characters, and the first 16 of them packed. */
const [id24Bytes, packedIdBytes] = [24, 12];

/** Each key with its packed id: Lua takes longer to pack an id than to read its usage. */
function packedKeys(keys: readonly string[]): Buffer {
  const packed = Buffer.allocUnsafe(keys.length * (id24Bytes + packedIdBytes));
  for (const [index, key24] of keys.entries()) {
    const at = index * (id24Bytes + packedIdBytes);
    packed.write(key24, at, 'latin1');
    packIdInto(packed, at + id24Bytes, key24);
  }
  return packed;
}

/** The keys that a query names, including deleted ones; undefined if it names none, or identities with very many. */
async function keysNamed(
  context: StoreContext,
  workspaceId: string,
  { keyIds, externalIds }: Pick<UsageQuery, 'keyIds' | 'externalIds'>,
): Promise<readonly string[] | undefined> {
  if (keyIds !== undefined) return [...keyIds].map((keyId) => keyId.slice('key_'.length));
  if (externalIds === undefined) return undefined;
  const keys = await keysOfIdentities(context, workspaceId, [...externalIds], keysOfIdentityMax);
  return keys && [...keys];
}

/** The present and former keys of identities, each once; undefined if they are more than `max`. */
export async function keysOfIdentities(
  context: StoreContext,
  workspaceId: string,
  externalIds: readonly string[],
  max: number,
): Promise<ReadonlySet<string> | undefined> {
  const keys = new Set<string>();
  for (const some of chunks(externalIds, identitiesStep)) {
    const found = await Promise.all(some.map((externalId) => keysOfIdentity(context, workspaceId, externalId)));
    for (const ofIdentity of found) {
      if (!ofIdentity || keys.size + ofIdentity.length > max) return undefined;
      for (const key24 of ofIdentity) keys.add(key24);
    }
  }
  return keys;
}

/**
 * The present and former keys of all identities with this externalId, including deleted identities; undefined if they
 * are many.
 */
async function keysOfIdentity(
  context: StoreContext,
  workspaceId: string,
  externalId: string,
): Promise<string[] | undefined> {
  const { redis, run } = context;
  const keys = new Set<string>();
  /** `identity` is an id without `id_`; '' is the identity that exists. Returns whether it has not too many keys. */
  async function addKeysOf(identity: string): Promise<boolean> {
    for (let after: string | null = ''; after !== null; ) {
      const given: { externalId: string; id16: string; after: string; count: number } = {
        externalId,
        id16: identity,
        after,
        count: membersStep,
      };
      const [found, next]: [string[], string | null] = await run('analytics/identityKeys', workspaceId, given);
      for (const key24 of found) keys.add(key24);
      if (keys.size > keysOfIdentityMax) return false;
      after = next;
    }
    return true;
  }
  // The existing identity is read first. If it is deleted meanwhile, it is in the list that is read next.
  if (!(await addKeysOf(''))) return undefined;
  const identities: string[] = [];
  const former = formerMembersKey(workspaceKey(workspaceId), externalId);
  if ((await orStoreError(redis.zcard(former))) > keysOfIdentityMax) return undefined;
  for await (const member of membersOf(redis, former)) {
    if (member.length === 16) identities.push(member.toString('latin1'));
    else keys.add(member.toString('latin1'));
  }
  for (const identity of identities) if (!(await addKeysOf(identity))) return undefined;
  return [...keys];
}
