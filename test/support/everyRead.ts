// Calls every read operation for every record, all pages, and returns the responses in one order. Two stores have the
// same data if these are equal: before and after a migration, or an export and an import.

import type { OperationName } from '../../src/operations/index.ts';

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

/** The records that lists returned, and what the options add. */
interface Records {
  apis: string[];
  keys: string[];
  externalIds: string[];
  identities: string[];
  permissions: string[];
  roles: string[];
  namespaces: string[];
  overrides: { namespace: string; identifier: string }[];
  tags: string[];
  keyStrings: readonly string[];
  period: { start: number; end: number };
}

const dayMs = 86_400_000;
const granularities = ['hour', 'day', 'month', 'total'] as const;
const orders = ['asc', 'desc'] as const;
const starts = ({ apis }: Records) => [{}, ...apis.map((apiId) => ({ apiId }))];

/**
 * The inputs of each read operation, in an order in which each finds the records that earlier ones listed. A test
 * compares the names with the registry.
 */
export const reads: { [Name in OperationName]?: (records: Records) => object[] } = {
  'workspace.getSettings': () => [{}],
  'system.getStatus': () => [{}],
  'rootKeys.whoami': () => [{}],
  'rootKeys.listRootKeys': () => [{}],
  'apis.listApis': () => orders.map((order) => ({ order })),
  'apis.getApi': ({ apis }) => apis.map((apiId) => ({ apiId })),
  'apis.listKeys': ({ apis }) => apis.map((apiId) => ({ apiId })),
  'identities.listIdentities': () => [{}],
  'identities.getIdentity': ({ identities, externalIds }) =>
    [...identities, ...externalIds].map((identity) => ({ identity })),
  'permissions.listPermissions': () => [{}],
  'permissions.getPermission': ({ permissions }) => permissions.map((permission) => ({ permission })),
  'permissions.listRoles': () => [{}],
  'permissions.getRole': ({ roles }) => roles.map((role) => ({ role })),
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
  'keys.getKey': ({ keys }) => keys.map((keyId) => ({ keyId })),
  'keys.whoami': ({ keyStrings }) => keyStrings.map((key) => ({ key })),
  'keys.explainKey': ({ keys, keyStrings }) => [
    ...keys.map((keyId) => ({ keyId })),
    ...keyStrings.map((key) => ({ key })),
  ],
  'ratelimits.listNamespaces': () => orders.map((order) => ({ order })),
  'ratelimits.listOverrides': ({ namespaces }) => namespaces.map((namespace) => ({ namespace })),
  'ratelimits.getOverride': ({ overrides }) => overrides,
  'analytics.getVerifications': verificationCounts,
  'analytics.getTop': rankings,
  'analytics.getRatelimits': ({ period, namespaces, overrides }) => [
    ...granularities.flatMap((granularity) => [
      { ...periodFor(granularity, period), granularity },
      ...namespaces.map((namespace) => ({ ...periodFor(granularity, period), granularity, namespace })),
    ]),
    ...overrides.map((override) => ({ ...period, granularity: 'day', ...override })),
  ],
  'analytics.listRefusals': (records) => starts(records).map((of) => ({ ...of, limit: 1000 })),
  'audit.listEvents': () => orders.map((order) => ({ order })),
};

/** Hours are counted in the last days only: a response has at most a thousand buckets. */
const periodFor = (granularity: (typeof granularities)[number], { start, end }: Records['period']) =>
  granularity === 'hour' ? { start: Math.max(start, end - 41 * dayMs), end } : { start, end };

function keyLists(records: Records): object[] {
  const { externalIds, permissions, roles, period } = records;
  const filters = [
    { order: 'desc' },
    { deleted: true },
    { enabled: true },
    { enabled: false },
    { expiresBefore: period.start },
    { expiresBefore: period.end },
    { expiresBefore: period.end + 3650 * dayMs },
    { unusedSince: period.end },
    { creditsBelow: 1 },
    { creditsBelow: 1_000_000 },
    { rerolledInUse: true },
    { rerolledInUse: false },
    { search: 'a' },
  ];
  return [
    ...starts(records).flatMap((of) => [of, ...filters.map((filter) => ({ ...of, ...filter }))]),
    ...externalIds.map((externalId) => ({ externalId })),
    ...permissions.filter((slug) => !slug.startsWith('perm_')).map((permission) => ({ permission })),
    ...roles.filter((name) => !name.startsWith('role_')).map((role) => ({ role })),
  ];
}

function verificationCounts({ period, apis, keys, externalIds, tags }: Records): object[] {
  const groups = [[], ['outcome'], ['apiId', 'outcome'], ['keyId', 'outcome'], ['externalId'], ['tag', 'outcome']];
  const days = { ...period, granularity: 'day', groupBy: ['outcome'] };
  return [
    ...granularities.flatMap((granularity) =>
      groups.map((groupBy) => ({ ...periodFor(granularity, period), granularity, groupBy, limit: 1000 })),
    ),
    ...apis.map((apiId) => ({ ...days, apiId })),
    ...keys.map((keyId) => ({ ...days, keyId })),
    ...externalIds.map((externalId) => ({ ...days, externalId })),
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
function collect(records: Records, name: OperationName, items: Record<string, string>[]) {
  const add = (to: string[], ...values: (string | undefined)[]) => {
    const known = new Set<string | undefined>(to);
    for (const value of values) {
      if (value !== undefined && !known.has(value)) to.push(value);
      known.add(value);
    }
  };
  if (name === 'apis.listApis') add(records.apis, ...items.map(({ id }) => id));
  if (name === 'keys.listKeys') add(records.keys, ...items.map(({ keyId }) => keyId));
  if (name === 'identities.listIdentities') {
    add(records.identities, ...items.map(({ id }) => id));
    add(records.externalIds, ...items.map(({ externalId }) => externalId));
  }
  if (name === 'permissions.listPermissions') add(records.permissions, ...items.flatMap(({ id, slug }) => [id, slug]));
  if (name === 'permissions.listRoles') add(records.roles, ...items.flatMap(({ id, name }) => [id, name]));
  if (name === 'ratelimits.listNamespaces') add(records.namespaces, ...items.flatMap(({ id, name }) => [id, name]));
  if (name === 'ratelimits.listOverrides') {
    const found = items.map((item) => ({ namespace: item.namespaceId!, identifier: item.identifier! }));
    const known = new Set(records.overrides.map(({ namespace, identifier }) => `${namespace} ${identifier}`));
    records.overrides.push(...found.filter(({ namespace, identifier }) => !known.has(`${namespace} ${identifier}`)));
  }
  if (name === 'analytics.getVerifications') add(records.tags, ...items.map(({ tag }) => tag));
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
    apis: [...alsoApis],
    keys: [...alsoKeys],
    externalIds: [...alsoIdentities],
    identities: [],
    permissions: [],
    roles: [],
    namespaces: [...alsoNamespaces],
    overrides: [],
    tags: [],
    keyStrings: options.keys ?? [],
    period: options.period,
  };
  const found: Read[] = [];
  for (const [operation, inputsOf] of Object.entries(reads)) {
    const name = operation as OperationName;
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
      for (const { items } of results) collect(records, name, items);
    };
    const known = records.tags.length;
    await run(inputsOf(sampleOf(records, options.perKindMax)));
    // The rows of a group by tag name the tags that the next requests count.
    const later = name === 'analytics.getVerifications' ? records.tags.slice(known) : [];
    if (later.length > 0) {
      const inputs = inputsOf({ ...records, apis: [], keys: [], externalIds: [], tags: later });
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
  let cursor: string | undefined;
  do {
    const { status, data, pagination, error } = await call(name, { ...input, ...(cursor !== undefined && { cursor }) });
    if (status >= 500 || status === 401 || status === 403 || status === 429)
      throw new Error(`${name} ${JSON.stringify(input)}: ${status} ${JSON.stringify(error)}`);
    if (status !== 200) return { read: { name, input: shown(input), status, code: codeOf(error) }, items: [] };
    pages.push(data);
    cursor = pagination?.cursor;
  } while (cursor !== undefined);
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
