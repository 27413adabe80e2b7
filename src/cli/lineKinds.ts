// The kinds of lines of `tollgate export` and `import`.

import Type, { type Static, type TSchema } from 'typebox';
import { compileInputLater } from '../input/validate.ts';
import type { Context } from '../operation.ts';

/**
 * Records, in order of dependence: the order of their creation during an import. Windows are before identities and
 * keys, whose limits of a plan use them. Usage is before keys, and keys before root keys, so that nothing is counted
 * for a record whose usage follows.
 */
export const kinds = [
  'workspace',
  'auditEvent',
  'permission',
  'role',
  'plan',
  'api',
  'namespace',
  'override',
  'window',
  'identity',
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

const parts = ['root-keys', 'usage', 'audit'] as const;

interface KindRow {
  names: readonly [one: string, many: string];
  /** The part of an export that can be left out, with all of its kinds. */
  part?: (typeof parts)[number];
  /** Counts for RECORDS_MAX. */
  isRecord?: true;
  /** Is imported with --api. */
  intoApi?: true;
}

/** In the order in which counts are printed. */
export const kindRows: Readonly<Record<Kind, KindRow>> = {
  key: { names: ['key', 'keys'], isRecord: true, intoApi: true },
  deletedKey: { names: ['deleted key', 'deleted keys'], isRecord: true },
  identity: { names: ['identity', 'identities'], isRecord: true, intoApi: true },
  api: { names: ['API', 'APIs'], isRecord: true },
  role: { names: ['role', 'roles'], isRecord: true, intoApi: true },
  permission: { names: ['permission', 'permissions'], isRecord: true, intoApi: true },
  plan: { names: ['plan', 'plans'], isRecord: true, intoApi: true },
  namespace: { names: ['namespace', 'namespaces'], isRecord: true },
  override: { names: ['override', 'overrides'], isRecord: true },
  window: { names: ['window', 'windows'] },
  rootKey: { names: ['root key', 'root keys'], part: 'root-keys', isRecord: true },
  auditEvent: { names: ['audit event', 'audit events'], part: 'audit' },
  keyUsage: { names: ['usage of a key', 'usages of keys'], part: 'usage' },
  apiUsage: { names: ['day of an API', 'days of APIs'], part: 'usage' },
  tagUsage: { names: ['part of counts by tag', 'parts of counts by tag'], part: 'usage' },
  namespaceUsage: { names: ['day of a namespace', 'days of namespaces'], part: 'usage' },
  identifierUsage: { names: ['part of counts by identifier', 'parts of counts by identifier'], part: 'usage' },
  refusals: { names: ['part of recent refusals', 'parts of recent refusals'], part: 'usage' },
  workspace: { names: ['workspace', 'workspaces'] },
};

/** The kinds of parts as an option names them: `root-keys,usage`. */
export function kindsOfParts(option: string, given = ''): ReadonlySet<Kind> {
  const named: readonly string[] = given.split(',').filter((each) => each !== '');
  if (named.some((name) => !(parts as readonly string[]).includes(name)))
    throw new Error(`${option} takes ${parts.join(', ')}, separated by commas.`);
  return new Set(kinds.filter((kind) => named.includes(kindRows[kind].part ?? '')));
}

/** The format of the lines that this version writes. Files without a header have format 1. */
export const fileFormat = 2;

export type Counts = Record<Kind, number>;
export const newCounts = (): Counts => Object.fromEntries(kinds.map((kind) => [kind, 0])) as Counts;

/** Formats counts as `1,000 keys, 1 API, 2 identities`. Keys come first, even if there are none. */
export function formatCounts(counts: Counts): string {
  const named = (Object.keys(kindRows) as Kind[]).filter((kind) => kind === 'key' || counts[kind] > 0);
  return named
    .map((kind) => `${counts[kind].toLocaleString('en')} ${kindRows[kind].names[counts[kind] === 1 ? 0 : 1]}`)
    .join(', ');
}

export const base58 = '[1-9A-HJ-NP-Za-km-z]';
/** Of most kinds of records. */
export const idOf = (prefix: string) => Type.String({ pattern: `^${prefix}_${base58}{16}$` });

export interface LineContext extends Pick<Context, 'text' | 'limits'> {
  /** The API of all keys; replaces that of their lines. */
  apiId?: string | undefined;
}

/** The fields of a kind of line, and the record that a line describes, as the store expects it. */
export const lineKind = <Schema extends TSchema & { properties: object }, Read>(
  schema: Schema,
  read: (fields: Static<Schema>, context: LineContext) => Read,
) => ({ schema, check: compileInputLater(schema), read });
