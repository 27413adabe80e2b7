// The lines of `tollgate export` and `import`: one JSON object each. `kind` says what it is; a line without one is a key.
// A line has the fields of the operation that creates such a thing, and beside them what keeps it itself: ids and dates.

import Type, { type Static, type TSchema } from 'typebox';
import { JsonText, memberText, print } from '../domain/json.ts';
import { parseBody } from '../http/body.ts';
import { compileInput } from '../http/validate.ts';
import type { Context } from '../operation.ts';
import { createApi } from '../operations/apis/createApi.ts';
import { createIdentity } from '../operations/identities/createIdentity.ts';
import { createKey } from '../operations/keys/createKey.ts';
import { checkIssuedKey, IssuedKey, issuedKey } from '../operations/keys/migrateKeys.ts';
import { createPermission } from '../operations/permissions/createPermission.ts';
import { createRole } from '../operations/permissions/createRole.ts';
import { checkNamesOnce, invalid, metaText } from '../operations/rules.ts';
import { Fields } from '../operations/schemas.ts';
import type { ApiRecord } from '../store/apis.ts';
import type { NewIdentity } from '../store/identities.ts';
import type { ExportedKey, NewKey } from '../store/keys.ts';
import type { Permission, Role } from '../store/rbac.ts';
import type { Identity, KeyRecord } from '../store/records.ts';

/** In the order in which one needs another: an export is written, and a batch imported, in this order. */
export const kinds = ['permission', 'role', 'api', 'identity', 'key'] as const;
export type Kind = (typeof kinds)[number];

const Time = Type.Optional(Type.Integer({ minimum: 0, maximum: 4_102_444_800_000 }));
const base58 = '[1-9A-HJ-NP-Za-km-z]';
const KeptApiId = Type.String({ pattern: `^api_${base58}{16}$` });

/** Room for a prefix and four characters, not for a key string that was put there by mistake. */
const startMax = 24;
const isStart = (start: unknown) => typeof start === 'string' && start.length <= startMax;

const ApiLine = Fields({ apiId: KeptApiId, ...createApi.input.properties, createdAt: Time });

const KeyLine = Fields({
  apiId: Type.Optional(KeptApiId),
  keyId: Type.Optional(Type.String({ pattern: `^key_${base58}{24}$` })),
  ...IssuedKey.properties,
  start: Type.Optional(Type.String({ maxLength: startMax })),
  prefix: createKey.input.properties.prefix,
  byteLength: createKey.input.properties.byteLength,
  createdAt: Time,
  updatedAt: Time,
  lastUsedAt: Time,
});

const schemas = {
  permission: createPermission.input,
  role: createRole.input,
  api: ApiLine,
  identity: createIdentity.input,
  key: KeyLine,
} as const satisfies Record<Kind, TSchema>;

const checks = Object.fromEntries(kinds.map((kind) => [kind, compileInput(schemas[kind])])) as Record<
  Kind,
  (input: unknown) => void
>;

/** What a line asks for, ready for the store. */
export type Wanted =
  | { kind: 'permission'; permission: Static<typeof createPermission.input> }
  | { kind: 'role'; role: Static<typeof createRole.input> & { permissions: string[] } }
  | { kind: 'api'; api: Static<typeof ApiLine> }
  | { kind: 'identity'; identity: NewIdentity }
  | { kind: 'key'; apiId: string; key: NewKey };

export interface ReadOptions {
  metaBytesMax: number;
  /** The API that all keys go to, whatever their lines say. */
  apiId?: string | undefined;
}

/** Throws an ApiError that names the fields at fault, as the operation of that kind does. */
export function readLine(bytes: Buffer, { metaBytesMax, apiId }: ReadOptions): Wanted {
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
): Wanted {
  const { apiId: ownApi, keyId, start = '', prefix, byteLength, createdAt, updatedAt, lastUsedAt, ...issued } = line;
  checkIssuedKey(issued, 'body');
  const apiId = intoApi ?? ownApi;
  if (apiId === undefined) throw invalid('body.apiId', 'is required', 'Or name the API of all keys with --api.');
  if (keyId !== undefined && ownApi !== undefined && keyId.slice(-8) !== ownApi.slice(-8)) {
    throw invalid('body.keyId', 'does not end as its apiId does', 'Leave it out: the key gets a new one.');
  }
  const key: NewKey = {
    ...issuedKey(issued, metaText(issued.meta, context, 'meta')),
    start,
    prefix,
    byteLength,
    // A key's id ends as the id of its API does: in another API it gets a new one.
    keptId: keyId?.slice(-8) === apiId.slice(-8) ? keyId : undefined,
    created: createdAt,
    updated: updatedAt,
    lastUsed: lastUsedAt,
  };
  return { kind: 'key', apiId, key };
}

/**
 * A refused line as it may be written down: those of its fields that a line can have. In others somebody may have put the
 * key string itself, and a line that is no object may be one. Undefined when nothing is left.
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

const line = (kind: Kind, fields: object): string => `${print({ kind, ...fields })}\n`;

export const permissionLine = ({ slug, name, description }: Permission) =>
  line('permission', { slug, name, description });

export const roleLine = ({ name, description, permissions }: Role) =>
  line('role', { name, description, permissions: notEmpty(permissions.map(({ slug }) => slug)) });

export const apiLine = ({ id, name, createdAt }: ApiRecord) => line('api', { apiId: id, name, createdAt });

export const identityLine = ({ externalId, meta, ratelimits }: Identity) =>
  line('identity', { externalId, meta: withoutEmpty(meta), ratelimits: limitsOf(ratelimits) });

export function keyLine({ digest, identity: _shared, meta, ratelimits, start, ...key }: ExportedKey): string {
  const { apiId, keyId, ...rest } = key;
  return line('key', {
    apiId,
    keyId,
    hash: digest.toString('base64'),
    start: start === '' ? undefined : start,
    ...rest,
    meta: withoutEmpty(meta),
    ratelimits: limitsOf(ratelimits ?? []),
  });
}

/** Limits have new ids and empty windows where they are imported. */
const limitsOf = (ratelimits: NonNullable<KeyRecord['ratelimits']>) =>
  notEmpty(ratelimits.map(({ id: _id, ...limit }) => limit));

const notEmpty = <Item>(items: Item[]) => (items.length === 0 ? undefined : items);
const withoutEmpty = (meta: JsonText | undefined) => (meta?.text === '{}' ? undefined : meta);
