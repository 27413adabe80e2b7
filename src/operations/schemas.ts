// Schemas that several operations share (docs/contract.md §4).

import Type, { type Static, type TProperties, type TSchema } from 'typebox';
import { actions, grantPattern } from '../domain/grants.ts';
import { addressCharactersMax, rangeCharactersMax } from '../domain/ipRange.ts';
import type { JsonText } from '../domain/json.ts';
import {
  type FormerValueName,
  type LimitValueName,
  lastsMax,
  limitTypes,
  slotDurationMax,
  slotsMax,
} from '../domain/limit.ts';
import { anchorMax, type Quota, quotaPeriods } from '../domain/quota.ts';
import { dayMs, timeMax } from '../domain/time.ts';

const integerMax = Number.MAX_SAFE_INTEGER;
/** Characters of the slugs that operations create. */
export const slugLengths = { minLength: 3, maxLength: 100 };

/**
 * Keywords for the published schema only: rules of one field that the operation checks itself, with a better message.
 * Rules between fields are in descriptions, because generators of clients cannot read them.
 */
interface Documented {
  documented?: object;
  /** A key string, its hash, or a request for one. No tool of a model takes or returns it (src/cli/mcpTools.ts). */
  isSecret?: true;
}

/** An object with these fields and no others. */
export const Fields = <const Properties extends TProperties>(
  properties: Properties,
  options: { description?: string; nullIsAbsent?: boolean } & Documented = {},
) => Type.Object(properties, { additionalProperties: false, ...options });

/** The same, where null in an optional field means that it is absent, unless it has another meaning (validate.ts). */
export const NewFields = <const Properties extends TProperties>(properties: Properties) =>
  Fields(properties, { nullIsAbsent: true });

/** Also accepts null, whose meaning the operation defines. */
export function Nullable<Schema extends TSchema>(schema: Schema) {
  const { type, ...rest } = schema as unknown as { type?: string };
  if (type === undefined) throw new Error('Nullable: a schema without `type`, such as an enum, is not supported');
  return Type.Unsafe<Static<Schema> | null>({ ...rest, type: [type, 'null'] });
}

const described = (description?: string, standard?: unknown) => ({
  ...(standard !== undefined && { default: standard }),
  ...(description !== undefined && { description }),
});

/** A number in a request, from a minimum on, or between two bounds. */
export const Int = (bounds: number | readonly [number, number], description?: string, standard?: number) => {
  const [minimum, maximum = integerMax] = [bounds].flat();
  return Type.Integer({ maximum, minimum, ...described(description, standard) });
};

/** A text in a request, with the bounds of its characters. */
export const Text = (
  minLength: number,
  maxLength: number,
  description: string,
  more: { pattern?: string } & Documented = {},
) => Type.String({ minLength, maxLength, ...more, description });
export const OptionalFlag = (description: string, standard?: boolean) =>
  Type.Optional(Type.Boolean(described(description, standard)));

/** The same members, each of which may be absent. */
export const optional = <const Properties extends TProperties>(properties: Properties) =>
  Type.Partial(Type.Object(properties)).properties;
/** One of these names. */
export const OneOf = <const Name extends string>(names: readonly Name[], description: string, standard?: Name) =>
  Type.Unsafe<Name>(Type.Enum([...names], described(description, standard)));
export const DescribedFields = <const Properties extends TProperties>(description: string, properties: Properties) =>
  Fields(properties, { description });

/** Values with only a description, mostly in responses. */
export const out = {
  text: (description: string) => Type.String({ description }),
  secret: (description: string) => Type.String({ description, isSecret: true }),
  int: (description: string) => Type.Integer({ description }),
  flag: (description: string, more: Documented = {}) => Type.Boolean({ description, ...more }),
  object: <const Properties extends TProperties>(description: string, properties: Properties) =>
    Type.Object(properties, { description }),
  objects: <const Properties extends TProperties>(description: string, properties: Properties) =>
    Type.Array(Type.Object(properties), { description }),
  list: <const Properties extends TProperties>(properties: Properties) => Type.Array(Type.Object(properties)),
};
/** Values in responses that may be absent. */
export const may = {
  text: (description: string) => Type.Optional(Type.String({ description })),
  texts: (description: string) => Type.Optional(Type.Array(Type.String(), { description })),
  int: (description: string) => Type.Optional(Type.Integer({ description })),
  object: <const Properties extends TProperties>(description: string, properties: Properties) =>
    Type.Optional(out.object(description, properties)),
  objects: <const Properties extends TProperties>(description: string, properties: Properties) =>
    Type.Optional(out.objects(description, properties)),
  oneOf: <const Name extends string>(names: readonly Name[], description: string) =>
    Type.Optional(OneOf(names, description)),
};

/** A time in a request. */
export const UnixTime = (description: string) => Int([0, timeMax], description);

const id = (prefix: string, what: string) =>
  Text(3, 255, `Id of ${what} (\`${prefix}_…\`).`, { pattern: '^[a-zA-Z0-9_]+$' });

export const ApiName = Text(3, 256, 'Name for people. Need not be unique.');
export const ApiId = id('api', 'an API');
export const KeyId = id('key', 'a key');
export const IdentityId = id('id', 'an identity');
export const RootKeyId = id('root', 'a root key');
export const ExternalId = Text(
  1,
  255,
  'Your id of the owner of the key, such as a user or an organisation. Created if unknown.',
  { pattern: '^[a-zA-Z0-9_.-]+$' },
);
/** Named by callers, so that exports and configuration can name it. */
export const PlanId = Text(1, 64, 'Name of a plan, such as `pro`.', { pattern: '^[a-zA-Z0-9_.-]+$' });
export const KeyName = Text(1, 255, 'Name for people. Need not be unique.');
export const KeyString = Text(1, 512, 'The key string.', { isSecret: true });

/** Metadata in a request. It is stored and returned as text, see domain/json.ts. */
export const Meta = Type.Record(Type.String(), Type.Unknown(), {
  maxProperties: 100,
  description:
    'Any JSON object of at most 10 KB (`META_LIMIT_BYTES`). Every verification but one that is NOT_FOUND returns it unchanged.',
});
/** Metadata in a response. */
export const MetaText = Type.Unsafe<JsonText>({
  type: 'object',
  additionalProperties: true,
  description: 'The JSON object that was stored.',
});

export const Expires = UnixTime('Expiry time in Unix milliseconds.');
export const RootKeyExpires = UnixTime(
  'Expiry time in Unix milliseconds. A caller with an expiry cannot grant a later one, or none (403).',
);

const slugPattern = '^[a-zA-Z0-9_:.*-]+$';
const slugMeaning =
  'Permission slug. One that ends in `.*` covers every permission with that prefix. A `*` elsewhere, as in `docs:*`, is literal.';
/** The slug of a permission that is created. */
export const NewSlug = Type.String({ ...slugLengths, pattern: slugPattern, description: slugMeaning });
/** The slug of a permission that may exist: an import can contain slugs of other lengths (rules.ts, checkSlugs). */
export const Slug = Text(
  1,
  128,
  `${slugMeaning} It has ${slugLengths.minLength} to ${slugLengths.maxLength} characters, unless it was imported.`,
  { pattern: slugPattern },
);
/** Permissions of `whose`. */
export const Slugs = (whose: string) =>
  Type.Array(Slug, {
    maxItems: 1000,
    description: `${whose} Unknown ones are created, which requires \`rbac.*.create_permission\`.`,
  });
/** The names of a role that is created, and of a role that may have been imported. */
export const NewRoleName = Text(1, 100, 'Name of a role.');
export const RoleName = Text(1, 128, 'Name of a role.');

const interval = OneOf(['daily', 'monthly'], 'Interval of refills, which happen at midnight UTC.');

const Refill = DescribedFields('Automatic refill. Needs a balance.', {
  interval,
  amount: Int(1, 'Balance after a refill.'),
  refillDay: Type.Optional(
    Int([1, 31], 'Day of the month, or its last day in a shorter month. Monthly refills only. Defaults to 1.'),
  ),
});

const Balance = Nullable(Int(0, `Balance of credits, at most ${integerMax}. null: unlimited.`));

const newCredits = (description: string) =>
  Fields({ remaining: Balance, refill: Type.Optional(Refill) }, { description });
export const NewCredits = newCredits('Credits of the key. Absent: unlimited.');
export const NewSharedCredits = newCredits('Credits that all keys of the identity share. Absent: none.');
const creditChanges = (description: string) =>
  Fields({ remaining: Type.Optional(Balance), refill: Type.Optional(Nullable(Refill)) }, { description });
export const CreditChanges = creditChanges('Changes of the credits. null: unlimited.');
export const SharedCreditChanges = creditChanges(
  'Changes of the credits that all keys of the identity share. null: they are removed.',
);

/** Maximum credits that one verification charges. */
export const costMax = 1e12;

export const Duration = Int(1000, 'Duration in milliseconds.');

/** Of the number of a limit, in requests and responses. */
export const unitsMeaning = 'Units admitted in any interval of `duration`, or of a quota in each `period`';
export const orPeriod = 'Required without `period`; with it only as it was read.';
const anchorMeaning =
  'Time in Unix milliseconds. Each period begins at its time of day, weekday, day of the month and month in UTC; on the last day of a month that is shorter. By default midnight, Monday, the 1st, 1 January.';
/** Of a quota, in requests. */
export const periodFields = optional({
  period: OneOf(
    quotaPeriods,
    'Makes it a quota: `limit` units in each period of the calendar, in place of `duration`. `anchor` says where periods begin.',
  ),
  anchor: Int([0, anchorMax], `Only with \`period\`. ${anchorMeaning}`),
});
/** Of a quota, in responses. */
export const shownPeriodFields = {
  period: may.oneOf(
    quotaPeriods,
    'Period of a quota, whose `duration` is the length of the present period. Absent for others.',
  ),
  anchor: may.int(`Of a quota. ${anchorMeaning}`),
};

/** A member that a read returns, in a request that repeats the response. */
export const Ignored = <Schema extends TSchema>(schema: Schema) =>
  Type.Optional({ ...schema, description: 'Accepted and ignored, so that an item can be sent as it was read.' });

export const lastsBound = `at most ${lastsMax / dayMs} days ahead`;
const LimitEnd = Type.Optional(
  Nullable(
    UnixTime(
      `Time in Unix milliseconds at which the limit ends, ${lastsBound}. From then on the permanent limit that it replaces is in force again, if there is one; both have the same type. null: it is permanent. Absent: it is permanent, but a temporary limit whose limit, duration and type stay the same keeps its end.`,
    ),
  ),
);

const unlessReplaced = 'unless an earlier check refuses it or another limit of this name takes its place';

/** The values of a configured limit in responses. */
const limitValueFields = {
  limit: out.int(`${unitsMeaning}, or slots.`),
  duration: out.int('Duration in milliseconds.'),
  autoApply: out.flag(`True if every verification checks the limit, even if not named, ${unlessReplaced}.`),
} satisfies Record<FormerValueName, TSchema>;

const FormerRatelimit = out.object(
  'The permanent limit that a temporary one replaced, which is in force again from `until` on. Absent: there is none then.',
  { ...limitValueFields, ...shownPeriodFields },
);

/** In a request that repeats the response of a read, maybe by a caller that is older than some values. */
const IgnoredFormer = Ignored(
  Type.Object({
    ...Type.Partial(FormerRatelimit).properties,
    limit: limitValueFields.limit,
    duration: limitValueFields.duration,
    autoApply: limitValueFields.autoApply,
  }),
);

const typeMeaning = `\`quota\` admits \`limit\` units in each \`period\`. \`window\` admits \`limit\` units in any interval of \`duration\`. \`concurrency\` has \`limit\` slots, at most ${slotsMax}: a verification takes one and makes a hold, whose end frees it, at the latest after \`duration\`, at most ${slotDurationMax} ms.`;

const requestedType = (otherwise: string) => Type.Optional(OneOf(limitTypes, `${typeMeaning} ${otherwise}`));

type LimitSchemas = Record<LimitValueName | keyof Quota | 'id' | 'name' | 'until' | 'former', TSchema>;

const ratelimitRequestFields = {
  id: Ignored(Type.String({ maxLength: 255 })),
  name: Text(3, 128, 'Name of the limit, unique in its list.'),
  limit: Int(1, `${unitsMeaning}, or slots.`),
  duration: Type.Optional(Int(1000, `Duration in milliseconds. ${orPeriod}`)),
  ...periodFields,
  autoApply: OptionalFlag(`Check the limit in every verification, even if not named, ${unlessReplaced}.`, false),
  type: requestedType(
    'Of a new limit `window` by default. In `ratelimits` of an update, the type of the limit with this name.',
  ),
};
export const RatelimitRequest = Fields({
  ...ratelimitRequestFields,
  until: LimitEnd,
  former: IgnoredFormer,
} satisfies LimitSchemas);
/** A limit of a plan: it has no end. */
export const PlanLimit = Fields(ratelimitRequestFields);
/** Maximum limits of a key or an identity; MAX in lua/include/limitList.lua. */
export const ratelimitsMax = 50;
/** Limits of a plan, and of an owner with a plan (LIMITS_MAX of lua/include/plans.lua). */
export const planLimitsMax = 25;
export const Ratelimits = Type.Array(RatelimitRequest, {
  maxItems: ratelimitsMax,
  description: `Rate limits, each of another name. A limit with \`until\` ends, ${lastsBound}. A temporary limit has the type of the permanent one.`,
});

/** In operations that replace `ratelimits`: concurrent changes of different limits do not undo each other. */
export const RatelimitChange = DescribedFields(
  'A limit to change, add or remove. All others stay. Not together with `ratelimits`.',
  {
    id: Ignored(Type.String({ maxLength: 255 })),
    name: Text(3, 128, 'Name of the limit.'),
    limit: Nullable(Int(1, `${unitsMeaning}, or slots. null: the limit is removed.`)),
    duration: Type.Optional(
      Int(1000, `Duration in milliseconds; as before by default. A new limit needs one, or a period. ${orPeriod}`),
    ),
    ...periodFields,
    autoApply: OptionalFlag(
      `Check the limit in every verification, even if not named, ${unlessReplaced}; as before by default, and false for a new limit.`,
    ),
    type: requestedType(
      'As before by default, and `window` for a new limit. Each type has a counter of its own: the former one is used again if the type is set back while anything in it counts.',
    ),
    until: LimitEnd,
    former: IgnoredFormer,
  } satisfies LimitSchemas,
);
export const limitTypeMeaning =
  '`concurrency` for a limit of slots, `quota` for one with a period. Absent for a window.';
/** The fields of a configured limit in responses. */
export const ratelimitFields = {
  name: out.text('Name of the limit.'),
  ...limitValueFields,
  type: may.oneOf(['concurrency', 'quota'], limitTypeMeaning),
  ...shownPeriodFields,
  until: may.int('End of a temporary limit in Unix milliseconds. Absent: it is permanent.'),
  former: Type.Optional(FormerRatelimit),
} satisfies Record<LimitValueName | keyof Quota | 'name' | 'until' | 'former', TSchema>;

/** In a request that names a limit, and may repeat its fields as they were read. Its period has a meaning there. */
export const ignoredLimitFields = {
  autoApply: Ignored(ratelimitFields.autoApply),
  type: Ignored(Type.Enum([...limitTypes])),
  until: Ignored(Type.Integer()),
  former: IgnoredFormer,
} satisfies Record<Exclude<keyof typeof ratelimitFields, 'name' | 'limit' | 'duration' | keyof Quota>, TSchema>;

export const Ratelimit = Type.Object({ id: out.text('Id of the limit.'), ...ratelimitFields });

/** The fields of a refill in responses. */
export const refillFields = {
  interval,
  amount: out.int('Balance after a refill.'),
  refillDay: may.int('Day of the month. Monthly refills only.'),
};
const RefillRule = Type.Object(refillFields, { description: 'Automatic refill.' });

/** In responses, next to a balance of 0. */
export const Debt = out.int('Credits that settled holds spent beyond the balance, which then is 0. Absent for none.');

export const Credits = out.object('Credits of the key. Absent: unlimited.', {
  remaining: out.int('Balance of credits.'),
  debt: Type.Optional(Debt),
  refill: Type.Optional(RefillRule),
});

const identityFields = {
  id: out.text('Id of the identity (`id_…`).'),
  externalId: out.text('Your id of the owner.'),
  meta: MetaText,
  ratelimits: Type.Array(Ratelimit, { description: 'Limits that all keys of the identity share.' }),
};
export const Identity = out.object('Owner of keys.', {
  ...identityFields,
  credits: may.object('Credits that all keys of the identity share. Absent: none.', Credits.properties),
  planId: may.text('Its plan, which all its keys have. Its limits are not in `ratelimits`.'),
});
/** An identity that is read by itself, not as part of a key. */
export const ListedIdentity = out.object('Owner of keys.', {
  ...Identity.properties,
  keyCount: out.int('Number of its keys, without deleted ones. Those of a deleted API count until they are removed.'),
  restorableUntil: may.int('Time until which a deleted identity can be restored, in Unix milliseconds.'),
});
/** In a verification, whose balances are numbers. */
export const VerifiedIdentity = out.object('Owner of keys.', {
  ...identityFields,
  credits: may.int('Balance of the identity after charging. Absent: none.'),
  debt: Type.Optional(Debt),
});

/** `remaining: null` means unlimited. Only this, and a change of keys.changeKeys, is null in responses. */
export const CreditsOrUnlimited = Type.Object({
  remaining: Nullable(out.int('Balance of credits. null: unlimited.')),
  debt: Type.Optional(Debt),
  refill: Type.Optional(RefillRule),
});

export const Remaining = out.int(
  'Units that can be charged, or slots that can be taken, directly after this response.',
);

export const Reset = out.int(
  'Time in Unix milliseconds at which the next unit or slot is available again by itself; now if none is used. After a refusal, the time at which the cost would fit.',
);

export const VerifiedRatelimit = Type.Object({
  id: out.text(
    'Id of the limit; empty for a limit that the request defined. A limit of the identity with the same name is checked too.',
  ),
  ...ratelimitFields,
  exceeded: out.flag('True if the limit refused the request.'),
  remaining: Remaining,
  reset: Reset,
});

/** Limits by their names in a response, each with units or slots. */
export const Units = (name: string, cost: string, description: string) =>
  out.objects(description, { name: out.text(name), cost: out.int(cost) });

export const Empty = out.object('An empty object.', {});

export const Cursor = Type.String({
  maxLength: 2048,
  description: 'Cursor from the previous page. Empty: the first page.',
});
export const PageSize = (standard: number) => Int([1, 100], 'Maximum number of items in the page.', standard);

/** The page of a list. */
export const pageFields = { limit: Type.Optional(PageSize(100)), cursor: Type.Optional(Cursor) };

export const Order = OneOf(['asc', 'desc'], 'Order of creation: `asc` is oldest first, `desc` newest first.', 'asc');

export const Grant = Text(
  1,
  512,
  `A grant: \`<resource>.<id or *>.<action>\`, or \`*\` for everything. Resources: ${Object.keys(actions).join(', ')}.`,
  { documented: { pattern: grantPattern } },
);

export const Description = Type.String({ maxLength: 512, description: 'Description for people.' });
/** The page of a list that can be searched. */
export const searchFields = {
  ...pageFields,
  search: Type.Optional(Text(1, 255, 'Case-insensitive substring filter.')),
};

export const PermissionRef = Text(1, 255, 'Id (`perm_…`) or slug of a permission.');
export const RoleRef = Text(1, 255, 'Id (`role_…`) or name of a role.');
export const IdentityRef = Text(1, 255, 'Id (`id_…`) or externalId of an identity.');
export const NamespaceRef = Text(1, 512, 'Name or id (`rlns_…`) of a namespace.');
export const Identifier = Text(1, 512, 'Subject of the limit, such as a user id or an IP address.');
export const IpAddress = Text(
  2,
  addressCharactersMax,
  'IPv4 or IPv6 address of the end user, for keys with `allowedIps`. Without port, brackets and zone.',
);
export const IpRange = Text(2, rangeCharactersMax, 'IP address or CIDR range.');
export const Tag = Text(1, 512, 'Tag of verifications.');
export const SqlQuery = out.text("Rejected: SQL is not supported. Unkey's SDKs send this field.");
/** Unkey's fields that ask for the plaintext of a key. */
export const Plaintext = out.flag('true is rejected: the plaintext of a key is never stored.', { isSecret: true });

export const Permission = out.object('A permission.', {
  id: out.text('Id of the permission (`perm_…`).'),
  name: out.text('Name for people.'),
  slug: out.text('Slug, as in permission queries.'),
  description: may.text('Description for people.'),
});

export const Role = out.object('A role: permissions under one name.', {
  id: out.text('Id of the role (`role_…`).'),
  name: out.text('Name of the role, unique in the workspace.'),
  description: may.text('Description for people.'),
  permissions: Type.Array(Permission, { description: 'Permissions of the role.' }),
});

export const OverrideId = out.text('Id of the override (`rlor_…`).');
export const CreatedAt = out.int('Creation time in Unix milliseconds.');

/** An API in a response. */
export const Api = Type.Object({
  id: out.text('Id of the API.'),
  name: out.text('Name of the API.'),
  createdAt: CreatedAt,
  keyCount: out.int('Number of its keys, without deleted ones.'),
  restorableUntil: may.int('Time until which a deleted API can be restored, in Unix milliseconds.'),
});
export const ExpiresAt = out.int('Expiry time in Unix milliseconds. Absent: never.');

export const Override = out.object('An override: the limit of an identifier in a namespace.', {
  overrideId: OverrideId,
  namespace: out.text('Name of the namespace.'),
  namespaceId: out.text('Id of the namespace (`rlns_…`).'),
  identifier: out.text('Identifier, or a wildcard with `*`.'),
  limit: out.int(`${unitsMeaning}. 0 blocks every request.`),
  duration: out.int('Duration in milliseconds.'),
  ...shownPeriodFields,
  createdAt: CreatedAt,
  until: may.int('End of a temporary override in Unix milliseconds. Absent: it is permanent.'),
  former: may.object(
    'The permanent override that a temporary one replaced, which is in force again from `until` on. Absent: there is none then.',
    {
      limit: out.int(`${unitsMeaning}.`),
      duration: out.int('Duration in milliseconds.'),
      ...shownPeriodFields,
    },
  ),
});
