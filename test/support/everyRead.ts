// Calls every read operation for every record, all pages, and returns the responses in one order. Two stores have the
// same data if these are equal: before and after a migration, or an export and an import.

import { type RecordName, recordKinds, records as recordsOf } from '../../src/domain/records.ts';
import type { AnyOperation } from '../../src/operation.ts';
import { type OperationName, operations as registry } from '../../src/operations/index.ts';
import { exampleOf } from './examples.ts';

interface Response {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: the responses of all operations.
  data: any;
  pagination?: { hasMore?: boolean; cursor?: string } | undefined;
  /** The error of a refused request, or its code. */
  error?: { type?: string } | undefined;
}

/** Sends one request. `call` of test/support/harness.ts is one, and so is a request over HTTP. */
export type Call = (name: OperationName, input: object) => Promise<Response>;

export interface EveryReadOptions {
  /** Key strings, for the operations that find a key by its string. They are not in the result. */
  keys?: readonly string[];
  /** Ids of APIs and keys, externalIds and namespaces that no list has, such as those of deleted records. */
  alsoApis?: readonly string[];
  alsoKeys?: readonly string[];
  alsoIdentities?: readonly string[];
  alsoNamespaces?: readonly string[];
  /** The period of analytics and of filters by time. A period of more than 41 days is counted by days. */
  period: { start: number; end: number };
  /** Records of each kind for which there is a request of its own, evenly spread. All by default. */
  perKindMax?: number;
  /** Fields at any depth that may differ, by operation, in addition to `byNature`. */
  omit?: Partial<Record<OperationName, readonly string[]>>;
  /** Whether the order of the items may differ. They are sorted then. */
  unordered?: (name: OperationName, input: object) => boolean;
  /** Operations that are not called. */
  without?: readonly OperationName[];
}

export interface Read {
  name: OperationName;
  input: object;
  status: number;
  /** The end of the type of an error. */
  code?: string;
  data?: unknown;
}

/** Fields that differ between two calls of one server: times of the response, and facts about the process and Redis. */
export const byNature: Partial<Record<OperationName, readonly string[]>> = {
  // A cursor has the place where a list goes on: its form is no promise.
  'keys.getAttention': ['cursor'],
  'keys.explainKey': ['time'],
  'system.getStatus': ['time', 'process', 'redis', 'versions', 'sweeper', 'leases', 'data', 'migration'],
};

/** What requests may name of each kind of record: ids and unique names of lists, and what the options add. */
interface Records extends Record<RecordName, string[]> {
  overrides: { namespace: string; identifier: string }[];
  tags: string[];
  keyStrings: readonly string[];
  period: { start: number; end: number };
}

const dayMs = 86_400_000;
const granularities = ['hour', 'day', 'month', 'total'] as const;
const orders = ['asc', 'desc'] as const;
const starts = ({ api }: Records) => [{}, ...api.map((apiId) => ({ apiId }))];
/** The names of records that are no ids. */
const namesOf = (records: Records, kind: RecordName) =>
  records[kind].filter((each) => !each.startsWith(`${recordsOf[kind].prefix}_`));

/** The inputs of the read operations that take more than a reference to a record, or nothing. */
const others: { [Name in OperationName]?: (records: Records) => object[] } = {
  'keys.listKeys': keyLists,
  'keys.getAttention': (records) =>
    starts(records).map((of) => ({
      ...of,
      limit: 100,
      expiresBefore: records.period.end,
      creditsBelow: 100,
      unusedSince: records.period.end,
      rerolledInUse: true,
    })),
  'keys.explainKey': ({ key, keyStrings }) => [
    ...key.map((keyId) => ({ keyId })),
    ...keyStrings.map((key) => ({ key })),
  ],
  'system.find': ({ key, identity, api, plan, root_key }) =>
    [key, identity, api, plan, root_key].flat().map((text) => ({ text })),
  'ratelimits.getOverride': ({ overrides }) => overrides,
  'analytics.getVerifications': verificationCounts,
  'analytics.getTop': rankings,
  'analytics.getRatelimits': ({ period, namespace, overrides }) => [
    ...granularities.flatMap((granularity) => [
      { ...periodFor(granularity, period), granularity },
      ...namespace.map((namespace) => ({ ...periodFor(granularity, period), granularity, namespace })),
    ]),
    ...overrides.map((override) => ({ ...period, granularity: 'day', ...override })),
  ],
  'analytics.listCustomers': (records) => starts(records).map((of) => ({ ...of, ...records.period, limit: 1000 })),
  'analytics.listRefusals': (records) => starts(records).map((of) => ({ ...of, limit: 1000 })),
};

const schemaOf = ({ input }: AnyOperation) => input as { required?: string[]; properties?: { order?: object } };

/** A request for each record that the input may refer to; without a reference one, or one for each order. */
function plainInputs(operation: AnyOperation, records: Records): object[] {
  const { required: [member] = [], properties } = schemaOf(operation);
  if (member === undefined) return properties?.order ? orders.map((order) => ({ order })) : [{}];
  const values = member === 'key' ? records.keyStrings : records[member.replace(/Id$/, '') as RecordName];
  return values.map((value) => ({ [member]: value }));
}

/** Lists of all records, keys, what takes a reference to a record, and then all others: each finds what was listed. */
function rankOf(operation: AnyOperation): number {
  if (operation.name in others) return operation.name === 'keys.listKeys' ? 1 : 3;
  return schemaOf(operation).required ? 2 : 0;
}

/** The read operations in the order of their calls. A stream has no response to compare. */
export const reads: readonly AnyOperation[] = (registry as readonly AnyOperation[])
  .filter(
    (operation) => operation.kind === 'manages' && !operation.streams && exampleOf(operation.name).changes === null,
  )
  .sort((one, other) => rankOf(one) - rankOf(other));

/** Hours are counted in the last days only: a response has at most a thousand buckets. */
const periodFor = (granularity: (typeof granularities)[number], { start, end }: Records['period']) =>
  granularity === 'hour' ? { start: Math.max(start, end - 41 * dayMs), end } : { start, end };

function keyLists(records: Records): object[] {
  const { period } = records;
  const filters = [
    { order: 'desc' },
    { deleted: true },
    { enabled: true },
    { enabled: false },
    { expiresBefore: period.start },
    { expiresBefore: period.end },
    { expiresBefore: period.end + 3650 * dayMs },
    { expiresBefore: period.end + 3650 * dayMs, expiresAfter: period.end },
    { unusedSince: period.end },
    { creditsBelow: 1 },
    { creditsBelow: 1_000_000 },
    { rerolledInUse: true },
    { rerolledInUse: false },
    { search: 'a' },
  ];
  return [
    ...starts(records).flatMap((of) => [of, ...filters.map((filter) => ({ ...of, ...filter }))]),
    ...namesOf(records, 'identity').map((externalId) => ({ externalId })),
    ...namesOf(records, 'permission').map((permission) => ({ permission })),
    ...namesOf(records, 'role').map((role) => ({ role })),
  ];
}

function verificationCounts(records: Records): object[] {
  const { period, api, key, tags } = records;
  const groups = [[], ['outcome'], ['apiId', 'outcome'], ['keyId', 'outcome'], ['externalId'], ['tag', 'outcome']];
  const days = { ...period, granularity: 'day', groupBy: ['outcome'] };
  return [
    ...granularities.flatMap((granularity) =>
      groups.map((groupBy) => ({ ...periodFor(granularity, period), granularity, groupBy, limit: 1000 })),
    ),
    ...api.map((apiId) => ({ ...days, apiId })),
    ...key.map((keyId) => ({ ...days, keyId })),
    ...namesOf(records, 'identity').map((externalId) => ({ ...days, externalId })),
    ...tags.map((tag) => ({ ...days, tag })),
  ];
}

function rankings({ period }: Records): object[] {
  const of = (names: string[], numbers: string[]) =>
    names.flatMap((of) => numbers.map((by) => ({ ...period, of, by, limit: 100 })));
  return [
    ...of(['keys', 'identities', 'apis', 'tags'], ['count', 'refused', 'spentCredits']),
    ...of(['namespaces', 'identifiers'], ['count', 'refused']),
  ];
}

/** Adds to the records what a list returned. */
function collect(records: Records, operation: AnyOperation, items: Record<string, string>[]) {
  const add = (to: string[], values: (string | undefined)[]) => {
    const known = new Set<string | undefined>(to);
    for (const value of values) {
      if (value !== undefined && !known.has(value)) to.push(value);
      known.add(value);
    }
  };
  const { name } = operation;
  const listed = recordKinds.find(([kind]) => 'listedIds' in operation && operation.listedIds === kind);
  if (name === 'keys.listKeys')
    add(
      records.key,
      items.map(({ keyId }) => keyId),
    );
  else if (name === 'ratelimits.listOverrides') {
    const found = items.map((item) => ({ namespace: item.namespaceId!, identifier: item.identifier! }));
    const known = new Set(records.overrides.map(({ namespace, identifier }) => `${namespace} ${identifier}`));
    for (const each of found) if (!known.has(`${each.namespace} ${each.identifier}`)) records.overrides.push(each);
  } else if (name === 'analytics.getVerifications')
    add(
      records.tags,
      items.map(({ tag }) => tag),
    );
  else if (listed) {
    const [kind, { unique = kind === 'namespace' ? 'name' : 'id' }] = listed;
    add(
      records[kind],
      items.flatMap((item) => [item.id, item[unique]]),
    );
  }
}

/** The records for which there are requests of their own. */
function sampleOf(records: Records, max = Number.POSITIVE_INFINITY): Records {
  const sampled = Object.entries(records).map(([kind, list]) => [kind, Array.isArray(list) ? spread(list, max) : list]);
  return Object.fromEntries(sampled) as Records;
}

/** Evenly spread, the first and the last included. */
function spread<Item>(items: readonly Item[], max: number): Item[] {
  if (items.length <= max) return [...items];
  return Array.from({ length: max }, (_, index) => items[Math.round((index * (items.length - 1)) / (max - 1))]!);
}

/** The requests that run at once: a workspace may have four management requests in progress. */
const atOnce = 4;

/** Returns the responses of all read operations. Throws if one fails with 5xx or refuses the caller. */
export async function everyRead(call: Call, options: EveryReadOptions): Promise<Read[]> {
  const { alsoApis = [], alsoKeys = [], alsoIdentities = [], alsoNamespaces = [], without = [] } = options;
  const records: Records = {
    ...(Object.fromEntries(recordKinds.map(([kind]) => [kind, []])) as never as Record<RecordName, string[]>),
    api: [...alsoApis],
    key: [...alsoKeys],
    identity: [...alsoIdentities],
    namespace: [...alsoNamespaces],
    overrides: [],
    tags: [],
    keyStrings: options.keys ?? [],
    period: options.period,
  };
  const found: Read[] = [];
  for (const operation of reads) {
    const name = operation.name as OperationName;
    const inputsOf = others[name] ?? ((records: Records) => plainInputs(operation, records));
    if (without.includes(name)) continue;
    const omitted = [...(byNature[name] ?? []), ...(options.omit?.[name] ?? [])];
    const read = (input: object) => readPages(call, name, input, omitted);
    const run = async (inputs: object[]) => {
      const at = found.length;
      // In order, also if they end in another one.
      const results = await inTurn(inputs, read);
      for (const [index, { read }] of results.entries()) {
        if (Array.isArray(read.data) && options.unordered?.(name, inputs[index]!)) read.data = sorted(read.data);
      }
      found.splice(at, 0, ...results.map(({ read }) => read));
      for (const { items } of results) collect(records, operation, items);
    };
    const known = records.tags.length;
    await run(inputsOf(sampleOf(records, options.perKindMax)));
    // The rows of a group by tag name the tags that the next requests count.
    const later = name === 'analytics.getVerifications' ? records.tags.slice(known) : [];
    if (later.length > 0) {
      const inputs = inputsOf({ ...records, api: [], key: [], identity: [], tags: later });
      await run(inputs.filter((input) => 'tag' in input));
    }
  }
  return found;
}

async function inTurn<Item, Result>(items: readonly Item[], run: (item: Item) => Promise<Result>): Promise<Result[]> {
  const results: Result[] = new Array(items.length);
  let next = 0;
  const worker = async () => {
    for (let at = next++; at < items.length; at = next++) results[at] = await run(items[at]!);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  return results;
}

/** All pages of a list together, or the only response. */
async function readPages(
  call: Call,
  name: OperationName,
  input: object,
  omitted: readonly string[],
): Promise<{ read: Read; items: Record<string, string>[] }> {
  const pages: unknown[] = [];
  let cursor: string | undefined = '';
  let refusals = 0;
  while (cursor !== undefined) {
    const { status, data, pagination, error } = await call(name, { ...input, ...(cursor !== '' && { cursor }) });
    // On a busy machine other reads of the workspace may take longer than a read waits.
    if (status === 429 && ++refusals < 10) continue;
    if (status >= 500 || status === 401 || status === 403 || status === 429)
      throw new Error(`${name} ${JSON.stringify(input)}: ${status} ${JSON.stringify(error)}`);
    if (status !== 200) return { read: { name, input: shown(input), status, code: codeOf(error) }, items: [] };
    pages.push(data);
    cursor = pagination?.cursor;
  }
  const whole = pages.length === 1 ? pages[0] : pages.flatMap(itemsOf);
  const items = pages.flatMap(itemsOf) as Record<string, string>[];
  return { read: { name, input: shown(input), status: 200, data: without(whole, new Set(omitted)) }, items };
}

const sorted = (items: readonly unknown[]) =>
  items
    .map((item) => [JSON.stringify(item), item] as const)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([, item]) => item);

const codeOf = (error: Response['error']) =>
  String(error?.type ?? '')
    .split('/')
    .at(-1)!;

/** Of `ratelimits.listOverrides` the list is a member. */
function itemsOf(data: unknown): unknown[] {
  if (Array.isArray(data)) return data;
  const lists = Object.values(data as object).filter(Array.isArray);
  return lists.length === 1 ? lists[0]! : [];
}

/** A key string is a secret: results are stored in files. */
const shown = (input: { key?: string }): object => ('key' in input ? { ...input, key: '…' } : input);

/** Without the omitted fields, and with sorted members: their order in a response is no promise, that of `meta` is. */
function without(value: unknown, omitted: ReadonlySet<string>): unknown {
  if (Array.isArray(value)) return value.map((item) => without(item, omitted));
  if (typeof value !== 'object' || value === null) return value;
  const members = Object.entries(value).filter(([name]) => !omitted.has(name));
  members.sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(
    members.map(([name, member]) => [name, name === 'meta' ? member : without(member, omitted)]),
  );
}
