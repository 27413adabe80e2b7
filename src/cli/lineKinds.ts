// The kinds of lines of `tollgate export` and `import`.

/**
 * Records, in order of dependence: the order of their creation during an import. Usage is before keys, and keys before
 * root keys, so that nothing is counted for a record whose usage follows.
 */
export const kinds = [
  'workspace',
  'auditEvent',
  'permission',
  'role',
  'api',
  'identity',
  'namespace',
  'override',
  'window',
  'apiUsage',
  'tagUsage',
  'namespaceUsage',
  'identifierUsage',
  'refusals',
  'keyUsage',
  'key',
  'deletedKey',
  'rootKey',
] as const;
export type Kind = (typeof kinds)[number];

/**
 * Lines that are no records: the first and the last line of a file, and the places where an export that was interrupted
 * can continue.
 */
export const markers = ['header', 'position', 'end'] as const;
export type Marker = (typeof markers)[number];

/** Parts of an export that can be left out, and their kinds. */
const parts = {
  'root-keys': ['rootKey'],
  usage: ['apiUsage', 'tagUsage', 'namespaceUsage', 'identifierUsage', 'keyUsage', 'refusals'],
  audit: ['auditEvent'],
} as const satisfies Record<string, readonly Kind[]>;
type PartName = keyof typeof parts;

/** The kinds of parts as an option names them: `root-keys,usage`. */
export function kindsOfParts(option: string, given: string | undefined): ReadonlySet<Kind> {
  const found = new Set<Kind>();
  for (const name of (given ?? '').split(',').filter((each) => each !== '')) {
    if (!Object.hasOwn(parts, name))
      throw new Error(`${option} takes ${Object.keys(parts).join(', ')}, separated by commas.`);
    for (const kind of parts[name as PartName]) found.add(kind);
  }
  return found;
}

/** The format of the lines that this version writes. Files without a header have format 1. */
export const fileFormat = 2;

export type Counts = Record<Kind, number>;
export const newCounts = (): Counts => Object.fromEntries(kinds.map((kind) => [kind, 0])) as Counts;

/** In the order in which they are printed. */
const names: Record<Kind, [one: string, many: string]> = {
  key: ['key', 'keys'],
  deletedKey: ['deleted key', 'deleted keys'],
  identity: ['identity', 'identities'],
  api: ['API', 'APIs'],
  role: ['role', 'roles'],
  permission: ['permission', 'permissions'],
  namespace: ['namespace', 'namespaces'],
  override: ['override', 'overrides'],
  window: ['window', 'windows'],
  rootKey: ['root key', 'root keys'],
  auditEvent: ['audit event', 'audit events'],
  keyUsage: ['usage of a key', 'usages of keys'],
  apiUsage: ['day of an API', 'days of APIs'],
  tagUsage: ['part of counts by tag', 'parts of counts by tag'],
  namespaceUsage: ['day of a namespace', 'days of namespaces'],
  identifierUsage: ['part of counts by identifier', 'parts of counts by identifier'],
  refusals: ['part of recent refusals', 'parts of recent refusals'],
  workspace: ['workspace', 'workspaces'],
};

/** Formats counts as `1,000 keys, 1 API, 2 identities`. Keys come first, even if there are none. */
export function formatCounts(counts: Counts): string {
  const named = (Object.keys(names) as Kind[]).filter((kind) => kind === 'key' || counts[kind] > 0);
  return named
    .map((kind) => `${counts[kind].toLocaleString('en')} ${names[kind][counts[kind] === 1 ? 0 : 1]}`)
    .join(', ');
}
