// Reads usage counts (lua/include/usage.lua writes them). Counts lie by hour; a reader asks only for what can answer the
// question: the totals of an API, the histories of keys, or the counts by tag. Nothing here is one long script, nor holds the
// server up: a query is many short commands, of which at most `readsMax` are made, and what they bring is handed on as it
// comes. A workspace has millions of counts; memory is for what they add up to.

import { digestOf, unpackId } from '../domain/keyString.ts';
import { hourMs } from '../domain/time.ts';
import { type Outcome, outcomes } from '../domain/verification.ts';
import { ApiError } from '../errors.ts';
import { chunks } from './chunks.ts';
import type { StoreContext } from './context.ts';
import {
  apiKey,
  apisKey,
  formerKeysKey,
  formerMembersKey,
  identityKey,
  identityKeysKey,
  keysKey,
  namespaceNamesKey,
  tagUsageKey,
  workspaceKey,
} from './keyspace.ts';
import { orStoreError, storeError } from './redis.ts';

export interface Period {
  /** Hours since 1970, from and to, the last not included. */
  fromHour: number;
  toHour: number;
}

/** One count: of an hour, an outcome, and what else the query asked to be told apart. */
export interface UsageCount {
  hour: number;
  outcome: Outcome;
  count: number;
  spentCredits: number;
  apiId: string;
  keyId?: string;
  externalId?: string;
  tag?: string;
}

export interface UsageQuery extends Period {
  /** True: of every API there is. */
  apiIds: true | readonly string[];
  keyId?: string | undefined;
  externalId?: string | undefined;
  tag?: string | undefined;
  /** What must be told apart, beyond the API. */
  by: { key: boolean; externalId: boolean; tag: boolean };
}

export interface NamespaceCount {
  hour: number;
  namespace: string;
  passed: number;
  blocked: number;
}

type Visit<Count> = (count: Count) => void;

/** Records: totals of a day, months of a key, counts by tag. */
const readsMax = 200_000;
const keysMax = 50_000;
/** Hours in the histories of keys: a second or so of the server's time. */
const hoursMax = 2_000_000;
/** Totals of a day that one script reads. */
const totalsStep = 50;
/** Months of keys that one script reads, and bytes, as a month has at most 57 KB: what the server adds up in some milliseconds. */
const monthsStep = 200;
const bytesStep = 32_768;
/** Commands sent at once. */
const pipelineMax = 500;
/** Members of a list that one command reads. */
const listStep = 1000;
/** Fields of a hash: a name or a tag may have 2 KB. */
const hashStep = 200;
/** Bytes of counts by tag, which have all names in full: a second or so of the server's time. */
const tagBytesMax = 256 * 1024 * 1024;

/** Days are named by their number since 1970, months as `202611`. */
const dayOf = (hour: number): string => String(Math.floor(hour / 24));
const monthOf = (hour: number): string => new Date(hour * hourMs).toISOString().slice(0, 7).replace('-', '');

/** The names that `nameOf` gives the hours of a period, each once. */
function namesIn({ fromHour, toHour }: Period, nameOf: (hour: number) => string): string[] {
  const names = new Set<string>();
  for (let hour = fromHour; hour < toHour; hour += 24) names.add(nameOf(hour));
  if (toHour > fromHour) names.add(nameOf(toHour - 1));
  return [...names];
}

const hourOf = (day: string, hourOfDay: string): number => 24 * Number(day) + Number(hourOfDay);

const narrowIt = 'Narrow it by time, API, key, identity or namespace.';

const refused = (message: string, fix: string) =>
  new ApiError('invalid_input', `The query ${message}. ${fix}`, { fields: [{ location: 'body', message, fix }] });

export const tooMuch = () => refused('covers too much to be read at once', narrowIt);

/** The answer to a query would be too long; `bound` is what it may have at most. */
export const tooLong = (bound: string) =>
  refused(`makes more than ${bound}`, `${narrowIt} Or group by less, or take a coarser granularity.`);

export function openAnalytics({ redis, scripts, currentMs, usageRetentionMs }: StoreContext) {
  type Commands = ReturnType<typeof redis.pipeline>;

  /** Sends one command for each item, in bounded pipelines. */
  async function readAll<Item, Reply>(
    items: readonly Item[],
    add: (commands: Commands, item: Item) => void,
  ): Promise<Reply[]> {
    if (items.length > readsMax) throw tooMuch();
    const replies: Reply[] = [];
    for (const some of chunks(items, pipelineMax)) {
      const commands = redis.pipeline();
      for (const item of some) add(commands, item);
      const answers = await orStoreError(commands.exec());
      for (const [error, reply] of answers ?? []) {
        if (error) throw storeError(error);
        replies.push(reply as Reply);
      }
    }
    return replies;
  }

  /** Counts older than the retention are gone, so there is no use in asking for them. */
  async function clampPeriod({ fromHour, toHour }: Period): Promise<Period> {
    const nowHour = Math.floor((await currentMs()) / hourMs);
    const oldest = nowHour - Math.ceil(usageRetentionMs / hourMs) - 24 * 32;
    return { fromHour: Math.max(fromHour, oldest), toHour: Math.min(toHour, nowHour + 24 * 32) };
  }

  async function liveApis(workspaceId: string, wanted: true | readonly string[]): Promise<string[]> {
    if (wanted === true) {
      const list = apisKey(workspaceKey(workspaceId));
      if ((await orStoreError(redis.zcard(list))) > readsMax) throw tooMuch();
      const ids: string[] = [];
      for (let from = '-'; ; from = `(${ids.at(-1)}`) {
        const some = await orStoreError(redis.zrange(list, from, '+', 'BYLEX', 'LIMIT', 0, listStep));
        ids.push(...some);
        if (some.length < listStep) return ids.map((id16) => `api_${id16}`);
      }
    }
    const found = await readAll<string, string | null>(wanted, (commands, apiId) =>
      commands.hget(apiKey(workspaceKey(workspaceId), apiId), 'id'),
    );
    return wanted.filter((apiId, index) => found[index] === apiId);
  }

  /** Totals by day of so many APIs or namespaces; of each that there is, the number of its id and its counts by field. */
  async function* totalsOf(
    workspaceId: string,
    kind: 'api' | 'namespace' | 'identifier',
    ids: readonly string[],
    period: Period,
    identifier = '',
  ): AsyncGenerator<{ index: number; day: string; counts: Map<string, number> }> {
    const days = namesIn(period, dayOf);
    if (ids.length * days.length > readsMax) throw tooMuch();
    for (const someDays of chunks(days, totalsStep)) {
      let first = 0;
      for (const someIds of chunks(ids, Math.max(1, Math.floor(totalsStep / someDays.length)))) {
        const args = [kind, someIds.join(''), someDays.join(' '), identifier];
        const reply = (await scripts.run('analytics/totals', workspaceId, args)) as (number | string | string[])[];
        for (let at = 0; at < reply.length; at += 3) {
          const flat = reply[at + 2] as string[];
          const counts = new Map<string, number>();
          for (let field = 0; field < flat.length; field += 2) counts.set(flat[field]!, Number(flat[field + 1]));
          yield { index: first + (reply[at] as number) - 1, day: reply[at + 1] as string, counts };
        }
        first += someIds.length;
      }
    }
  }

  /** From the totals of APIs. */
  async function byApi(workspaceId: string, apiIds: readonly string[], period: Period, each: Visit<UsageCount>) {
    const ids = apiIds.map((apiId) => apiId.slice(-8));
    for await (const { index, day, counts } of totalsOf(workspaceId, 'api', ids, period)) {
      for (const [field, count] of counts) {
        if (field.startsWith('s')) continue;
        each({
          hour: hourOf(day, field.slice(0, 2)),
          outcome: outcomes[Number(field[2]) - 1]!,
          count,
          spentCredits: counts.get(`s${field}`) ?? 0,
          apiId: apiIds[index]!,
        });
      }
    }
  }

  /** Keys (without `key_`) whose histories may hold what a query asks for: those there are, and those that were. */
  async function keysOf(
    workspace: string,
    apiIds: readonly string[],
    { keyId, externalId }: UsageQuery,
  ): Promise<string[]> {
    if (keyId !== undefined) return [keyId.slice('key_'.length)];
    const keys = new Set<string>();
    let room = keysMax;
    /** Adds the keys in a list, unless they are too many. */
    async function add(list: string, keyOf: (member: Buffer) => string) {
      room -= await orStoreError(redis.zcard(list));
      if (room < 0) throw tooMuch();
      let cursor = '0';
      do {
        const [next, members] = await orStoreError(redis.zscanBuffer(list, cursor, 'COUNT', 1000));
        cursor = next.toString();
        for (let at = 0; at < members.length; at += 2) keys.add(keyOf(members[at]!));
      } while (cursor !== '0');
    }
    const itself = (member: Buffer) => member.toString('latin1');
    if (externalId === undefined) {
      for (const apiId of apiIds) {
        await add(keysKey(workspace, apiId), (member) => unpackId(member) + apiId.slice(-8));
        await add(formerKeysKey(workspace, apiId), itself);
      }
      return [...keys];
    }
    const identities: string[] = [];
    // An identity's list names the API first, and so does its record, where one of its keys stands.
    const keyUnderIdentity = (member: Buffer) => member.toString('latin1', 8) + member.toString('latin1', 0, 8);
    const [state, key] = await orStoreError(redis.hmgetBuffer(identityKey(workspace, externalId), 'state', 'key'));
    if (state) identities.push(state.toString('latin1', 0, 16));
    await add(formerMembersKey(workspace, externalId), (member) => {
      if (member.length === 16) identities.push(itself(member));
      return itself(member);
    });
    if (key) keys.add(keyUnderIdentity(key));
    for (const id16 of identities) await add(identityKeysKey(workspace, id16), keyUnderIdentity);
    return [...keys];
  }

  /** From the histories of keys, and what they carry of the present hour. */
  async function byKey(
    workspaceId: string,
    apiIds: readonly string[],
    query: UsageQuery,
    period: Period,
    each: Visit<UsageCount>,
  ) {
    const workspace = workspaceKey(workspaceId);
    const apiOf = new Map(apiIds.map((apiId) => [apiId.slice(-8), apiId]));
    const keys = (await keysOf(workspace, apiIds, query)).filter(
      (key) => key.length === 24 && apiOf.has(key.slice(16)),
    );
    const months = namesIn(period, monthOf);
    if (keys.length * months.length > readsMax) throw tooMuch();
    let room = hoursMax;
    const keysStep = Math.max(1, Math.floor(monthsStep / months.length));
    for (let first = 0; first < keys.length; ) {
      const some = keys.slice(first, first + keysStep);
      const args = [some.join(''), months.join(''), bytesStep];
      const histories = (await scripts.runPacked('analytics/keys', workspaceId, args)) as (Buffer | 0)[];
      first += histories.length;
      for (const [index, history] of histories.entries()) {
        if (history === 0) throw tooMuch();
        const key = some[index]!;
        const apiId = apiOf.get(key.slice(16))!;
        const keyId = `key_${key}`;
        for (const { hour, counted, spent, externalId } of readHistory(history)) {
          if (--room < 0) throw tooMuch();
          for (const [at, count] of counted.entries()) {
            if (count === 0) continue;
            const outcome = outcomes[at]!;
            // Only what passes is charged.
            const spentCredits = outcome === 'VALID' ? spent : 0;
            each({ hour, outcome, count, spentCredits, apiId, keyId, externalId });
          }
        }
      }
    }
  }

  /** Hands on the fields of a hash with their values, some hundred at a time, each field once. */
  async function* fieldsOf(hash: string): AsyncGenerator<[field: Buffer, value: Buffer][]> {
    // A scan may return a field twice. Digests of the names, as these may have megabytes.
    const seen = new Set<string>();
    let cursor = '0';
    do {
      const [next, pairs] = await orStoreError(redis.hscanBuffer(hash, cursor, 'COUNT', hashStep));
      cursor = next.toString();
      const found: [Buffer, Buffer][] = [];
      for (let at = 0; at < pairs.length; at += 2) {
        const field = pairs[at]!;
        const name = field.length <= 32 ? field.toString('latin1') : digestOf(field).toString('latin1');
        if (seen.has(name)) continue;
        seen.add(name);
        found.push([field, pairs[at + 1]!]);
      }
      yield found;
    } while (cursor !== '0');
  }

  /** From the counts by tag, which tell everything else apart as well. */
  async function byTag(workspaceId: string, apiIds: readonly string[], period: Period, each: Visit<UsageCount>) {
    const days = namesIn(period, dayOf);
    if (apiIds.length * days.length > readsMax) throw tooMuch();
    const wanted = apiIds.flatMap((apiId) => days.map((day) => ({ apiId, day })));
    const sizes = await readAll<(typeof wanted)[number], number>(wanted, (commands, { apiId, day }) =>
      commands.hlen(tagUsageKey(workspaceKey(workspaceId), apiId, day)),
    );
    if (sizes.reduce((sum, size) => sum + size, 0) > readsMax) throw tooMuch();
    let bytes = 0;
    for (const [index, { apiId, day }] of wanted.entries()) {
      if (sizes[index] === 0) continue;
      for await (const fields of fieldsOf(tagUsageKey(workspaceKey(workspaceId), apiId, day))) {
        for (const [field, value] of fields) {
          bytes += field.length;
          if (bytes > tagBytesMax) throw tooMuch();
          each(readTagCount(apiId, day, field, Number(value.toString())));
        }
      }
    }
  }

  /** The names of namespaces by their ids, some hundred at a time: all of them may have hundreds of megabytes. */
  async function* namespacesOf(
    workspaceId: string,
    wanted: true | readonly string[],
    period: Period,
  ): AsyncGenerator<Map<string, string>> {
    const names = namespaceNamesKey(workspaceKey(workspaceId));
    const count = wanted === true ? await orStoreError(redis.hlen(names)) : wanted.length;
    if (count * namesIn(period, dayOf).length > readsMax) throw tooMuch();
    if (wanted !== true) {
      const ids = wanted.map((id) => id.slice('rlns_'.length));
      const found = await readAll<string, string | null>(ids, (commands, id16) => commands.hget(names, id16));
      yield new Map(ids.flatMap((id16, index) => (found[index] === null ? [] : [[id16, found[index]!]])));
      return;
    }
    for await (const fields of fieldsOf(names)) {
      yield new Map(fields.map(([id16, name]) => [id16.toString('latin1'), name.toString()]));
    }
  }

  return {
    /** Hands on counts of verifications, in no order; those of one hour may come in several parts. */
    async verifications(workspaceId: string, query: UsageQuery, each: Visit<UsageCount>): Promise<void> {
      const period = await clampPeriod(query);
      const apiIds = await liveApis(workspaceId, query.apiIds);
      const ifWanted = (count: UsageCount) => {
        if (count.hour < period.fromHour || count.hour >= period.toHour) return;
        if (query.keyId !== undefined && count.keyId !== query.keyId) return;
        if (query.externalId !== undefined && count.externalId !== query.externalId) return;
        if (query.tag !== undefined && count.tag !== query.tag) return;
        each(count);
      };
      if (query.by.tag || query.tag !== undefined) await byTag(workspaceId, apiIds, period, ifWanted);
      else if (query.by.key || query.by.externalId || query.keyId !== undefined || query.externalId !== undefined) {
        await byKey(workspaceId, apiIds, query, period, ifWanted);
      } else await byApi(workspaceId, apiIds, period, ifWanted);
    },

    /** Hands on counts of limit checks, of all identifiers or of one. `namespaces` are ids without `rlns_`, or all there are. */
    async ratelimits(
      workspaceId: string,
      query: Period & { namespaceIds: true | readonly string[]; identifier?: string | undefined },
      each: Visit<NamespaceCount>,
    ): Promise<void> {
      const period = await clampPeriod(query);
      const { identifier } = query;
      const kind = identifier === undefined ? 'namespace' : 'identifier';
      for await (const names of namespacesOf(workspaceId, query.namespaceIds, period)) {
        const ids = [...names.keys()];
        for await (const { index, day, counts } of totalsOf(workspaceId, kind, ids, period, identifier)) {
          for (const [field, count] of counts) {
            const hour = hourOf(day, field.slice(0, 2));
            if (hour < period.fromHour || hour >= period.toHour) continue;
            const passed = field.endsWith('p');
            const namespace = names.get(ids[index]!)!;
            each({ hour, namespace, passed: passed ? count : 0, blocked: passed ? 0 : count });
          }
        }
      }
    },
  };
}

/** A count by tag. Credits spent have a field of their own, `s` before that of the count. */
function readTagCount(apiId: string, day: string, name: Buffer, amount: number): UsageCount {
  const isSpent = name[0] === 's'.charCodeAt(0);
  const field = isSpent ? name.subarray(1) : name;
  const externalIdBytes = field[27]!;
  return {
    hour: hourOf(day, field.toString('latin1', 0, 2)),
    outcome: outcomes[Number(field.toString('latin1', 2, 3)) - 1]!,
    count: isSpent ? 0 : amount,
    spentCredits: isSpent ? amount : 0,
    apiId,
    keyId: `key_${field.toString('latin1', 3, 27)}`,
    externalId: field.toString('utf8', 28, 28 + externalIdBytes),
    tag: field.toString('utf8', 28 + externalIdBytes),
  };
}

/** All but NOT_FOUND, which is about no key. */
const outcomesCounted = outcomes.length - 1;

/** The hours that usage_entry of lua/include/usage.lua writes, each with the offset at which it ends. */
export function* readHistory(history: Buffer) {
  for (let at = 0; at < history.length; ) {
    const hour = history.readUInt32BE(at);
    const bits = history[at + 4]!;
    at += 5;
    const counted: number[] = [];
    for (let outcome = 0; outcome < outcomesCounted; outcome++) {
      counted.push(0);
      if (bits & (1 << outcome)) {
        counted[outcome] = history.readUInt32BE(at);
        at += 4;
      }
    }
    let spent = 0;
    if (bits & (1 << outcomesCounted)) {
      spent = history.readUIntBE(at, 3) * 2 ** 32 + history.readUInt32BE(at + 3);
      at += 7;
    }
    const externalIdBytes = history[at]!;
    const externalId = history.toString('utf8', at + 1, at + 1 + externalIdBytes);
    at += 1 + externalIdBytes;
    yield { hour, counted, spent, externalId, end: at };
  }
}
