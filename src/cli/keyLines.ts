// The lines of `tollgate export` and `import`: JSON objects whose `kind` defaults to key. A line has the fields of the
// operation that creates such a record, and in addition its id and dates.

import Type, { type Static, type TSchema } from 'typebox';
import { JsonText, memberText, print } from '../domain/json.ts';
import { timeMax } from '../domain/time.ts';
import { parseBody } from '../input/body.ts';
import { compileInputLater } from '../input/validate.ts';
import type { Context } from '../operation.ts';
import { createApi } from '../operations/apis/createApi.ts';
import { createIdentity } from '../operations/identities/createIdentity.ts';
import { createKey } from '../operations/keys/createKey.ts';
import { checkIssuedKey, IssuedKey, issuedKey } from '../operations/keys/migrateKeys.ts';
import { createPermission } from '../operations/permissions/createPermission.ts';
import { createRole } from '../operations/permissions/createRole.ts';
import { checkNamesOnce, invalid, metaText } from '../operations/rules.ts';
import { Fields, RoleName, Slug } from '../operations/schemas.ts';
import type { ApiRecord } from '../records/apis.ts';
import type { NewIdentity } from '../records/identities.ts';
import type { ExportedKey, NewKey } from '../records/keys.ts';
import type { Permission, Role } from '../records/rbac.ts';
import type { Identity, KeyRecord } from '../records/records.ts';

/** In order of dependence, which is the order of an export, and of creation during an import. */
export const kinds = ['permission', 'role', 'api', 'identity', 'key'] as const;
export type Kind = (typeof kinds)[number];

const Time = Type.Optional(Type.Integer({ minimum: 0, maximum: timeMax }));
const base58 = '[1-9A-HJ-NP-Za-km-z]';
const ExportedKeyId = Type.String({ pattern: `^key_${base58}{24}$` });
const ExportedApiId = Type.String({ pattern: `^api_${base58}{16}$` });

/** Allows a prefix and four characters, but not a key string that was put there by mistake. */
const startMax = 24;
const isStart = (start: unknown) => typeof start === 'string' && start.length <= startMax;

const ApiLine = Fields({ apiId: ExportedApiId, ...createApi.input.properties, createdAt: Time });

const KeyLine = Fields({
  apiId: Type.Optional(ExportedApiId),
  keyId: Type.Optional(ExportedKeyId),
  ...IssuedKey.properties,
  start: Type.Optional(Type.String({ maxLength: startMax })),
  prefix: createKey.input.properties.prefix,
  byteLength: createKey.input.properties.byteLength,
  createdAt: Time,
  updatedAt: Time,
  lastUsedAt: Time,
  successor: Type.Optional(ExportedKeyId),
});

// An import takes the slugs and names that other services have.
const PermissionLine = Fields({ ...createPermission.input.properties, slug: Slug });
const RoleLine = Fields({ ...createRole.input.properties, name: RoleName });

const schemas = {
  permission: PermissionLine,
  role: RoleLine,
  api: ApiLine,
  identity: createIdentity.input,
  key: KeyLine,
} as const satisfies Record<Kind, TSchema>;

const checks = Object.fromEntries(kinds.map((kind) => [kind, compileInputLater(schemas[kind])])) as Record<
  Kind,
  (input: unknown) => void
>;

/** The record that a line describes, as the store expects it. */
export type LineRecord =
  | { kind: 'permission'; permission: Static<typeof createPermission.input> }
  | { kind: 'role'; role: Static<typeof createRole.input> & { permissions: string[] } }
  | { kind: 'api'; api: Static<typeof ApiLine> }
  | { kind: 'identity'; identity: NewIdentity }
  | { kind: 'key'; apiId: string; key: NewKey };

interface ReadOptions {
  metaBytesMax: number;
  /** The API of all keys; replaces that of their lines. */
  apiId?: string | undefined;
}

/** Throws an ApiError that names the invalid fields, as the operation of that kind does. */
export function readLine(bytes: Buffer, { metaBytesMax, apiId }: ReadOptions): LineRecord {
  const { text, value } = parseBody(bytes);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw invalid('body', 'must be an object');
  const { kind = 'key', ...fields } = value as Record<string, unknown>;
  if (!kinds.includes(kind as Kind)) throw invalid('body.kind', `must be one of ${kinds.join(', ')}`);
  checks[kind as Kind](fields);

  const context: Pick<Context, 'text' | 'limits'> = {
    limits: { metaBytesMax },
    text: (...path) => memberText(text, path),
  };
  switch (kind as Kind) {
    case 'permission':
      return { kind: 'permission', permission: fields as Static<typeof createPermission.input> };
    case 'role': {
      const role = fields as Static<typeof createRole.input>;
      return { kind: 'role', role: { ...role, permissions: role.permissions ?? [] } };
    }
    case 'api':
      return { kind: 'api', api: fields as Static<typeof ApiLine> };
    case 'identity': {
      const { externalId, meta, ratelimits = [] } = fields as Static<typeof createIdentity.input>;
      checkNamesOnce(ratelimits);
      return {
        kind: 'identity',
        identity: { externalId, meta: metaText(meta, context, 'meta') ?? undefined, ratelimits },
      };
    }
    case 'key':
      return readKeyLine(fields as Static<typeof KeyLine>, apiId, context);
  }
}

function readKeyLine(
  line: Static<typeof KeyLine>,
  intoApi: string | undefined,
  context: Pick<Context, 'text' | 'limits'>,
): LineRecord {
  const { apiId: ownApi, keyId, start = '', prefix, byteLength, ...others } = line;
  const { createdAt, updatedAt, lastUsedAt, successor, ...issued } = others;
  checkIssuedKey(issued, 'body');
  const apiId = intoApi ?? ownApi;
  if (apiId === undefined)
    throw invalid('body.apiId', 'is required', 'Add it, or pass the API of all keys with --api.');
  if (keyId !== undefined && ownApi !== undefined && keyId.slice(-8) !== ownApi.slice(-8)) {
    throw invalid('body.keyId', 'does not end with the last 8 characters of apiId', 'Leave it out to get a new one.');
  }
  // The id of a key ends with the last 8 characters of its API's id, so in another API the key gets a new id.
  const keepsIds = keyId?.slice(-8) === apiId.slice(-8);
  const key: NewKey = {
    ...issuedKey(issued, metaText(issued.meta, context, 'meta')),
    start,
    prefix,
    byteLength,
    keptId: keepsIds ? keyId : undefined,
    successor: keepsIds ? successor : undefined,
    created: createdAt,
    updated: updatedAt,
    lastUsed: lastUsedAt,
  };
  return { kind: 'key', apiId, key };
}

/**
 * The part of a rejected line that is safe to write to a file: its known fields. An unknown field could hold the key
 * string itself, and so could a line that is not an object; for that this returns undefined.
 */
export function knownFields(bytes: Buffer): Record<string, JsonText> | undefined {
  try {
    const { text, value } = parseBody(bytes);
    const { kind = 'key', start } = value as { kind?: Kind; start?: string };
    const isKnown = (name: string) =>
      name === 'kind' || (Object.hasOwn(schemas[kind].properties, name) && !(name === 'start' && !isStart(start)));
    const names = Object.keys(value as object).filter(isKnown);
    return Object.fromEntries(names.map((name) => [name, new JsonText(memberText(text, [name])!)]));
  } catch {
    return undefined;
  }
}

const printLine = (kind: Kind, fields: object): string => `${print({ kind, ...fields })}\n`;

export const permissionLine = ({ slug, name, description }: Permission) =>
  printLine('permission', { slug, name, description });

export const roleLine = ({ name, description, permissions }: Role) =>
  printLine('role', { name, description, permissions: notEmpty(permissions.map(({ slug }) => slug)) });

export const apiLine = ({ id, name, createdAt }: ApiRecord) => printLine('api', { apiId: id, name, createdAt });

export const identityLine = ({ externalId, meta, ratelimits }: Identity) =>
  printLine('identity', { externalId, meta: withoutEmpty(meta), ratelimits: limitsOf(ratelimits) });

export function keyLine({ digest, identity: _shared, meta, ratelimits, start, ...key }: ExportedKey): string {
  const { apiId, keyId, ...rest } = key;
  return printLine('key', {
    apiId,
    keyId,
    hash: digest.toString('base64'),
    start: start === '' ? undefined : start,
    ...rest,
    meta: withoutEmpty(meta),
    ratelimits: limitsOf(ratelimits ?? []),
  });
}

/** Imported limits get new ids and empty windows. */
const limitsOf = (ratelimits: NonNullable<KeyRecord['ratelimits']>) =>
  notEmpty(ratelimits.map(({ id: _id, ...limit }) => limit));

const notEmpty = <Item>(items: Item[]) => (items.length === 0 ? undefined : items);
const withoutEmpty = (meta: JsonText | undefined) => (meta?.text === '{}' ? undefined : meta);
