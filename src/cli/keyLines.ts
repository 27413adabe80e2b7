// The lines of `tollgate export` and `import`: JSON objects whose `kind` defaults to key. Lines of keys, and of records
// to which keys refer, are here. They have the fields of the operation that creates such a record, and in addition ids
// and dates.

import Type, { type Static } from 'typebox';
import { JsonText, memberText } from '../domain/json.ts';
import type { ExportedLimit, UsedSlices } from '../domain/limit.ts';
import { timeMax } from '../domain/time.ts';
import type { ApiError } from '../errors.ts';
import { parseBody } from '../input/body.ts';
import { createApi } from '../operations/apis/createApi.ts';
import { createIdentity } from '../operations/identities/createIdentity.ts';
import { createKey } from '../operations/keys/createKey.ts';
import { checkIssuedKey, IssuedKey, issuedKey } from '../operations/keys/migrateKeys.ts';
import { createPermission } from '../operations/permissions/createPermission.ts';
import { createRole } from '../operations/permissions/createRole.ts';
import { createPlan } from '../operations/plans/createPlan.ts';
import { checkCredits, checkLimits, checkPeriod, checkSlots, invalid, metaText } from '../operations/rules.ts';
import {
  Duration,
  ExternalId,
  Fields,
  Int,
  RatelimitRequest,
  RoleName,
  ratelimitsMax,
  Slug,
} from '../operations/schemas.ts';
import type { ApiRecord } from '../records/apis.ts';
import type { ExportedIdentity, NewIdentity } from '../records/identities.ts';
import type { ExportedKey, NewKey } from '../records/keys.ts';
import type { Plan } from '../records/plans.ts';
import type { Permission, Role } from '../records/rbac.ts';
import type { KeyRecord } from '../records/records.ts';
import { type ExportedLine, lineOf } from './exportedLine.ts';
import { base58, idOf, type Kind, kinds, type LineContext, lineKind, type Marker } from './lineKinds.ts';
import { checkUsed, LineApiId, LineKeyId, Used, usageKinds } from './usageLines.ts';
import { markerKinds, workspaceKinds } from './workspaceLines.ts';

const RequiredTime = Type.Integer({ minimum: 0, maximum: timeMax });
const Time = Type.Optional(RequiredTime);
const keptId = (prefix: string) => Type.Optional(idOf(prefix));

const { id, name, type, until, former: _former, ...formerValues } = RatelimitRequest.properties;
const LineLimit = Fields({
  ...RatelimitRequest.properties,
  former: Type.Optional(Fields({ ...formerValues, duration: Duration, autoApply: Type.Boolean() })),
  used: Type.Optional(Used),
});
const Limits = Type.Optional(Type.Array(LineLimit, { maxItems: ratelimitsMax }));

/** Allows a prefix and four characters, but not a key string that was put there by mistake. */
const startMax = 24;
const isStart = (start: unknown) => typeof start === 'string' && start.length <= startMax;

const LineCredits = Fields({
  ...IssuedKey.properties.credits.properties,
  debt: Type.Optional(Int(1)),
});

const KeyLine = Fields({
  apiId: Type.Optional(LineApiId),
  keyId: Type.Optional(LineKeyId),
  ...IssuedKey.properties,
  credits: Type.Optional(LineCredits),
  ratelimits: Limits,
  start: Type.Optional(Type.String({ maxLength: startMax })),
  prefix: createKey.input.properties.prefix,
  byteLength: createKey.input.properties.byteLength,
  createdAt: Time,
  updatedAt: Time,
  lastUsedAt: Time,
  successor: Type.Optional(LineKeyId),
  drawsOn: Type.Optional(LineKeyId),
  drawnBy: Type.Optional(Type.Array(LineKeyId, { minItems: 1, maxItems: 16 })),
  refillAt: Time,
  formerIdentity: Type.Optional(Fields({ identityId: idOf('id'), externalId: ExternalId })),
});
const DeletedKeyLine = Fields({
  ...KeyLine.properties,
  apiId: LineApiId,
  keyId: LineKeyId,
  restorableUntil: RequiredTime,
});

const IdentityLine = Fields({
  ...createIdentity.input.properties,
  credits: Type.Optional(LineCredits),
  ratelimits: Limits,
  identityId: keptId('id'),
  refillAt: Time,
});

/** The limits keep their ids. A limit of a plan has no end, and counts nothing itself. */
const PlanLine = Fields({ ...createPlan.input.properties, createdAt: Time, updatedAt: Time });

const lines = {
  permission: lineKind(
    // An import accepts the slugs and names of other services.
    Fields({ ...createPermission.input.properties, slug: Slug, permissionId: keptId('perm') }),
    ({ permissionId, ...permission }) => ({ ...permission, keptId: permissionId?.slice('perm_'.length) }),
  ),
  role: lineKind(
    Fields({ ...createRole.input.properties, name: RoleName, roleId: keptId('role') }),
    ({ roleId, permissions = [], ...role }) => ({ ...role, permissions, keptId: roleId?.slice('role_'.length) }),
  ),
  plan: lineKind(PlanLine, ({ ratelimits = [], permissions = [], roles = [], meta, ...line }, context) => {
    checkLimits(ratelimits);
    const { createdAt, updatedAt, ...others } = line;
    return {
      ...others,
      ratelimits: limitsOfLine(ratelimits),
      permissions,
      roles,
      meta: metaText(meta, context, 'meta') ?? undefined,
      created: createdAt,
      updated: updatedAt,
    };
  }),
  api: lineKind(Fields({ apiId: LineApiId, ...createApi.input.properties, createdAt: Time }), (api) => api),
  identity: lineKind(IdentityLine, readIdentityLine),
  key: lineKind(KeyLine, readKeyLine),
  deletedKey: lineKind(DeletedKeyLine, ({ restorableUntil, ...line }, context) => {
    const { apiId, key } = readKeyLine(line, context);
    return { apiId, key: { ...key, restorableUntil } };
  }),
  ...usageKinds,
  ...workspaceKinds,
  ...markerKinds,
} satisfies Record<Kind | Marker, object>;

export type AnyKind = keyof typeof lines;
export type RecordOf<K extends AnyKind> = ReturnType<(typeof lines)[K]['read']>;
type LineRecord = { [K in AnyKind]: { kind: K; record: RecordOf<K> } }[AnyKind];

/** Throws an ApiError that names the invalid fields, as the operation of that kind does. */
export function readLine(bytes: Buffer, given: Pick<LineContext, 'apiId'> & LineContext['limits']): LineRecord {
  const { apiId, ...limits } = given;
  const { text, value } = parseLine(bytes);
  const { kind = 'key', ...others } = value as { kind?: AnyKind } & Record<string, unknown>;
  if (typeof kind !== 'string' || !Object.hasOwn(lines, kind))
    throw invalid('body.kind', `must be one of ${kinds.join(', ')}`);
  const fields = withoutNulls(others);
  if (typeof fields.hash === 'string' && /^[0-9a-f]{64}$/i.test(fields.hash))
    fields.hash = Buffer.from(fields.hash, 'hex').toString('base64');
  const { check, read } = lines[kind];
  check(fields);
  const context: LineContext = { limits, apiId, text: (...path) => memberText(text, path) };
  return { kind, record: read(fields as never, context) } as LineRecord;
}

function parseLine(bytes: Buffer): { text: string; value: Record<string, unknown> } {
  if (bytes[0] === 0x1f && bytes[1] === 0x8b) throw invalid('body', 'is compressed by gzip; unpack the file first');
  const { text, value } = orForm(() => parseBody(bytes));
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw invalid('body', 'must be an object: an import has one JSON object a line');
  return { text, value: value as Record<string, unknown> };
}

function orForm<Result>(parse: () => Result): Result {
  try {
    return parse();
  } catch (cause) {
    const [{ location, message } = { location: 'body', message: 'cannot be read' }] = (cause as ApiError).fields;
    throw invalid(location, `${message}: an import has one JSON object a line`);
  }
}

/** Depth of the records of keys: limits are objects in a list. */
const depthMax = 3;

/** Exports of databases have null for an absent value. It has a meaning as a balance, and in metadata. */
function withoutNulls(fields: Record<string, unknown>, depth = 1): Record<string, unknown> {
  const inner = (value: unknown): unknown => {
    if (typeof value !== 'object' || value === null || depth === depthMax) return value;
    if (Array.isArray(value)) return value.map((item) => (Array.isArray(item) ? item : inner(item)));
    return withoutNulls(value as Record<string, unknown>, depth + 1);
  };
  const kept = Object.entries(fields).filter(([name, value]) => value !== null || name === 'remaining');
  return Object.fromEntries(kept.map(([name, value]) => [name, name === 'meta' ? value : inner(value)]));
}

function readIdentityLine(line: Static<typeof IdentityLine>, context: LineContext): NewIdentity {
  const { externalId, planId, meta, ratelimits = [], identityId, refillAt } = line;
  checkLimits(ratelimits);
  checkCredits(line.credits, 'body.credits', 'the identity');
  const { debt, credits } = creditsOfLine(line.credits);
  const remaining = debt === undefined ? credits?.remaining : -debt;
  const refill = credits?.refill as NewKey['refill'];
  return {
    externalId,
    planId,
    meta: metaText(meta, context, 'meta') ?? undefined,
    ratelimits: limitsOfLine(ratelimits),
    keptId: identityId?.slice('id_'.length),
    credits: typeof remaining === 'number' ? { remaining, refill, refillDue: refillAt } : undefined,
  };
}

function readKeyLine(line: Static<typeof KeyLine>, context: LineContext): { apiId: string; key: NewKey } {
  const { apiId: ownApi, keyId, start = '', prefix, byteLength, ...others } = line;
  const { createdAt, updatedAt, lastUsedAt, refillAt, formerIdentity, ratelimits, ...rest } = others;
  const { successor, drawsOn, drawnBy, ...fields } = rest;
  const { debt, credits } = creditsOfLine(fields.credits);
  const issued = { ...fields, credits };
  checkIssuedKey({ ...issued, ratelimits }, 'body');
  if (formerIdentity !== undefined && issued.externalId !== undefined)
    throw invalid('body.formerIdentity', 'is of a key without an identity');
  const apiId = context.apiId ?? ownApi;
  if (apiId === undefined)
    throw invalid('body.apiId', 'is required', 'Add it, or pass the API of all keys with --api.');
  if (keyId !== undefined && ownApi !== undefined && keyId.slice(-8) !== ownApi.slice(-8)) {
    throw invalid('body.keyId', 'does not end with the last 8 characters of apiId', 'Leave it out to get a new one.');
  }
  // The id of a key ends with the last 8 characters of its API's id, so in another API the key gets a new id.
  const keepsIds = keyId?.slice(-8) === apiId.slice(-8);
  const key: NewKey = {
    ...issuedKey(issued, metaText(issued.meta, context, 'meta')),
    ratelimits: ratelimits && limitsOfLine(ratelimits, keepsIds),
    start,
    prefix,
    byteLength,
    keptId: keepsIds ? keyId : undefined,
    ...(keepsIds && { successor, drawsOn, drawnBy }),
    created: createdAt,
    updated: updatedAt,
    lastUsed: lastUsedAt,
    refillDue: refillAt,
    formerLink: formerIdentity && formerIdentity.identityId.slice('id_'.length) + formerIdentity.externalId,
  };
  // The balance is below 0 by what a hold was settled for beyond it.
  if (debt !== undefined) key.remaining = -debt;
  // The balance is that of a key which does not have that id here.
  if (drawsOn !== undefined && !keepsIds && key.remaining !== undefined) key.remaining = 0;
  return { apiId, key };
}

function creditsOfLine(given: Static<typeof KeyLine>['credits']) {
  if (!given) return { debt: undefined, credits: undefined };
  const { debt, ...credits } = given;
  if (debt !== undefined && credits.remaining !== 0) throw invalid('body.credits.debt', 'is of a balance of 0');
  return { debt, credits };
}

const limitId = new RegExp(`^rl_${base58}{16}$`);

/** A limit keeps its id if its owner does. Ids of another form are those of another service. */
function limitsOfLine(
  limits: NonNullable<Static<typeof Limits>>,
  keepsIds = true,
): (Omit<(typeof limits)[number], 'id' | 'used' | 'former'> & ExportedLimit)[] {
  return limits.map(({ id, used, former, ...limit }, index) => {
    if (used && limit.type === 'concurrency')
      throw invalid(
        `body.ratelimits[${index}].used`,
        'is of a window: the slots of a concurrency limit are those of holds',
      );
    if (used) checkUsed(used, `body.ratelimits[${index}].used`);
    const keptFormer = formerOfLine(limit, former, `body.ratelimits[${index}]`);
    return {
      ...limit,
      keptId: keepsIds && id && limitId.test(id) ? id.slice('rl_'.length) : undefined,
      used,
      keptFormer,
    };
  });
}

/** The permanent limit behind a temporary one; null if there is none. It may be in force since the export. */
function formerOfLine(
  { type, until }: Static<typeof LineLimit>,
  former: Static<typeof LineLimit>['former'],
  location: string,
): ExportedLimit['keptFormer'] {
  if (until === undefined || until === null) {
    if (former) throw invalid(`${location}.former`, 'needs `until`, the time from which on it is in force');
    return undefined;
  }
  if (!former) return null;
  checkPeriod({ ...former, type }, `${location}.former`);
  checkSlots({ name: '', ...former, type }, `${location}.former`);
  return former;
}

/**
 * The part of a rejected line that is safe to write to a file: its known fields. An unknown field could hold the key
 * string itself, and so could a line that is not an object; for that this returns undefined.
 */
export function knownFields(bytes: Buffer): Record<string, JsonText> | undefined {
  try {
    const { text, value } = parseBody(bytes);
    const { kind = 'key', start } = value as { kind?: AnyKind; start?: string };
    const isKnown = (name: string) =>
      name === 'kind' || (Object.hasOwn(lines[kind].schema.properties, name) && !(name === 'start' && !isStart(start)));
    const names = Object.keys(value as object).filter(isKnown);
    return Object.fromEntries(names.map((name) => [name, new JsonText(memberText(text, [name])!)]));
  } catch {
    return undefined;
  }
}

export const permissionLine = ({ id, slug, name, description }: Permission) =>
  lineOf('permission', { permissionId: id, slug, name, description });

export const roleLine = ({ id, name, description, permissions }: Role) =>
  lineOf('role', { roleId: id, name, description, permissions: notEmpty(permissions.map(({ slug }) => slug)) });

export const planLine = ({ planId, ratelimits, permissions, roles, meta, createdAt, updatedAt }: Plan) =>
  lineOf('plan', {
    planId,
    ratelimits: notEmpty(ratelimits),
    permissions: notEmpty(permissions),
    roles: notEmpty(roles),
    meta: meta && withoutEmpty(meta),
    createdAt,
    updatedAt,
  });

export const apiLine = ({ id, name, createdAt }: ApiRecord) => lineOf('api', { apiId: id, name, createdAt });

export const identityLine = ({
  id,
  externalId,
  planId,
  meta,
  ratelimits,
  credits,
  refillDue,
  used,
}: ExportedIdentity): ExportedLine =>
  lineOf('identity', {
    identityId: id,
    externalId,
    planId,
    meta: withoutEmpty(meta),
    credits,
    refillAt: refillDue,
    ratelimits: limitsOf(ratelimits, used),
  });

/** The key may be deleted: then it has `restorableUntil`. */
export function keyLine({
  digest,
  identity: _shared,
  meta,
  ratelimits,
  start,
  used,
  planUsed: _inWindows,
  ...key
}: ExportedKey): ExportedLine {
  const { apiId, keyId, refillDue, formerLink, ...rest } = key;
  return lineOf(key.restorableUntil === undefined ? 'key' : 'deletedKey', {
    apiId,
    keyId,
    hash: digest.toString('base64'),
    start: start === '' ? undefined : start,
    ...rest,
    refillAt: refillDue,
    formerIdentity: formerLink && { identityId: `id_${formerLink.slice(0, 16)}`, externalId: formerLink.slice(16) },
    meta: withoutEmpty(meta),
    ratelimits: limitsOf(ratelimits ?? [], used),
  });
}

const limitsOf = (ratelimits: NonNullable<KeyRecord['ratelimits']>, used: ReadonlyMap<number, UsedSlices>) =>
  notEmpty(ratelimits.map((limit, index) => ({ ...limit, used: used.get(index) })));

const notEmpty = <Item>(items: Item[]) => (items.length === 0 ? undefined : items);
const withoutEmpty = (meta: JsonText | undefined) => (meta?.text === '{}' ? undefined : meta);
