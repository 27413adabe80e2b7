// The shapes of docs/contract.md §4 that several operations share.

import Type, { type Static, type TSchema } from 'typebox';
import { actions, type Resource } from '../domain/grants.ts';
import type { JsonText } from '../domain/json.ts';

const integerMax = Number.MAX_SAFE_INTEGER;

/** An object that takes these fields and no others. */
export const Fields = <const Properties extends Record<string, TSchema>>(
  properties: Properties,
  options: { description?: string; documented?: object } = {},
) => Type.Object(properties, { additionalProperties: false, ...options });

/** Also takes null, which the contract gives a meaning of its own. */
export function Nullable<Schema extends TSchema>(schema: Schema) {
  const { type, ...rest } = schema as unknown as { type: string };
  return Type.Unsafe<Static<Schema> | null>({ ...rest, type: [type, 'null'] });
}

export const Int = (options: { minimum: number; maximum?: number; default?: number; description?: string }) =>
  Type.Integer({ maximum: integerMax, ...options });

const id = (prefix: string, what: string) =>
  Type.String({
    minLength: 3,
    maxLength: 255,
    pattern: '^[a-zA-Z0-9_]+$',
    description: `Id of ${what}, \`${prefix}_…\`.`,
  });

export const ApiId = id('api', 'an API');
export const KeyId = id('key', 'a key');
export const RootKeyId = id('root', 'a root key');
export const ExternalId = Type.String({
  minLength: 1,
  maxLength: 255,
  pattern: '^[a-zA-Z0-9_.-]+$',
  description: 'Whose key it is, in your own words: a user, an organisation. Unknown ones are created.',
});
export const KeyName = Type.String({ minLength: 1, maxLength: 255 });
export const KeyString = Type.String({
  minLength: 1,
  maxLength: 512,
  description: 'The key string as its owner presents it.',
});

/** Metadata as it comes in. It is stored and answered as text, see domain/json. */
export const Meta = Type.Record(Type.String(), Type.Unknown(), {
  maxProperties: 100,
  description: 'Any JSON object: answered as the same value by every verification.',
});
/** Metadata as it goes out. */
const MetaText = Type.Unsafe<JsonText>({
  type: 'object',
  additionalProperties: true,
  description: 'As it was stored.',
});

export const Expires = Int({
  minimum: 0,
  maximum: 4_102_444_800_000,
  description: 'Unix milliseconds from which on the key is expired.',
});

/** Of a root key. */
export const RootKeyExpires = Int({
  minimum: 0,
  maximum: 4_102_444_800_000,
  description:
    'Expiry time in Unix milliseconds. A caller that expires itself gives no root key an expiry after its own, or none (403).',
});

export const Slug = Type.String({
  minLength: 3,
  maxLength: 100,
  pattern: '^[a-zA-Z0-9_:.*-]+$',
  description: 'A permission. One that ends in `.*` covers everything below it.',
});
export const RoleName = Type.String({ minLength: 1, maxLength: 100 });

const Refill = Fields({
  interval: Type.Enum(['daily', 'monthly']),
  amount: Int({ minimum: 1, description: 'The balance is set to this.' }),
  refillDay: Type.Optional(
    Int({
      minimum: 1,
      maximum: 31,
      description: 'Of the month; its last day where it is shorter. Monthly only; 1 if left out.',
    }),
  ),
});

export const NewCredits = Fields({ remaining: Nullable(Int({ minimum: 0 })), refill: Type.Optional(Refill) });
export const CreditChanges = Fields({
  remaining: Type.Optional(Nullable(Int({ minimum: 0 }))),
  refill: Type.Optional(Nullable(Refill)),
});

/** The most credits that a verification charges. */
export const costMax = 1e12;

export const Duration = Int({ minimum: 1000, description: 'Milliseconds.' });
/** Of a limit whose counter is a record of its own, which is kept as long. */
export const CounterDuration = Int({
  minimum: 1000,
  maximum: 2_592_000_000,
  description: 'Milliseconds, at most 30 days.',
});

export const RatelimitRequest = Fields({
  name: Type.String({ minLength: 3, maxLength: 128 }),
  limit: Int({ minimum: 1, description: 'Units admitted in any interval of `duration`.' }),
  duration: Duration,
  autoApply: Type.Optional(
    Type.Boolean({ default: false, description: 'Checked by every verification, named or not.' }),
  ),
});
export const Ratelimits = Type.Array(RatelimitRequest, { maxItems: 50 });

export const Ratelimit = Type.Object({
  id: Type.String(),
  name: Type.String(),
  limit: Type.Integer(),
  duration: Type.Integer(),
  autoApply: Type.Boolean(),
});

export const Identity = Type.Object({
  id: Type.String(),
  externalId: Type.String(),
  meta: MetaText,
  ratelimits: Type.Array(Ratelimit),
});

const RefillRule = Type.Object({
  interval: Type.Enum(['daily', 'monthly']),
  amount: Type.Integer(),
  refillDay: Type.Optional(Type.Integer()),
});

export const Credits = Type.Object({ remaining: Type.Integer(), refill: Type.Optional(RefillRule) });
/** `remaining: null` is the one null in answers: unlimited. */
export const CreditsOrUnlimited = Type.Object({
  remaining: Nullable(Type.Integer()),
  refill: Type.Optional(RefillRule),
});

export const KeyRecord = Type.Object({
  keyId: Type.String(),
  apiId: Type.String(),
  start: Type.String({ description: 'The beginning of the key string: enough to recognise it by.' }),
  enabled: Type.Boolean(),
  createdAt: Type.Integer(),
  prefix: Type.Optional(Type.String()),
  name: Type.Optional(Type.String()),
  externalId: Type.Optional(Type.String()),
  meta: Type.Optional(MetaText),
  expires: Type.Optional(Type.Integer()),
  updatedAt: Type.Optional(Type.Integer()),
  lastUsedAt: Type.Optional(Type.Integer({ description: 'The last VALID verification.' })),
  permissions: Type.Optional(Type.Array(Type.String(), { description: 'Direct ones and those of its roles.' })),
  roles: Type.Optional(Type.Array(Type.String())),
  credits: Type.Optional(Credits),
  identity: Type.Optional(Identity),
  ratelimits: Type.Optional(Type.Array(Ratelimit)),
});

export const VerifiedRatelimit = Type.Object({
  id: Type.String({
    description:
      'Empty for a limit that only the request gave. A limit of the identity that has the same name is checked beside it.',
  }),
  name: Type.String(),
  limit: Type.Integer(),
  duration: Type.Integer(),
  autoApply: Type.Boolean(),
  exceeded: Type.Boolean(),
  remaining: Type.Integer(),
  reset: Type.Integer({ description: 'Unix milliseconds.' }),
});

export const Empty = Type.Object({});

export const Cursor = Type.String({
  minLength: 1,
  maxLength: 2048,
  description: 'Of the page before: continues after it.',
});
export const PageSize = (standard: number) => Int({ minimum: 1, maximum: 100, default: standard });

export const Grant = Type.String({
  minLength: 1,
  maxLength: 512,
  description: `\`<resource>.<id or *>.<action>\`, or \`*\` for everything. Resources: ${(Object.keys(actions) as Resource[]).join(', ')}.`,
  documented: { pattern: '^(\\*|[a-z_]+\\.(\\*|[a-zA-Z0-9_]{3,255})\\.[a-z_]+)$' },
});

export const Description = Type.String({ maxLength: 512 });
export const Search = Type.String({
  minLength: 1,
  maxLength: 255,
  description: 'A text to be contained, in any case.',
});

export const PermissionRef = Type.String({
  minLength: 3,
  maxLength: 255,
  description: 'The id, `perm_…`, or the slug of a permission.',
});
export const RoleRef = Type.String({
  minLength: 1,
  maxLength: 255,
  description: 'The id, `role_…`, or the name of a role.',
});
export const IdentityRef = Type.String({
  minLength: 1,
  maxLength: 255,
  description: 'The id, `id_…`, or the externalId of an identity.',
});
export const NamespaceRef = Type.String({
  minLength: 1,
  maxLength: 512,
  description: 'The name of a namespace, or its id, `rlns_…`.',
});
export const Identifier = Type.String({ minLength: 1, maxLength: 512, description: 'Whom or what to limit.' });
export const Tag = Type.String({ minLength: 1, maxLength: 512 });
export const SqlQuery = Type.String({
  description: 'Refused: there is no SQL here. The SDKs of Unkey send it.',
  documented: { not: {} },
});
/** A field of Unkey that asks for the plaintext of a key. */
export const Plaintext = Type.Boolean({
  description: 'Plaintext is never kept: true is refused.',
  documented: { const: false },
});

export const Permission = Type.Object({
  id: Type.String(),
  name: Type.String(),
  slug: Type.String(),
  description: Type.Optional(Type.String()),
});

export const Role = Type.Object({
  id: Type.String(),
  name: Type.String(),
  description: Type.Optional(Type.String()),
  permissions: Type.Array(Permission),
});

export const Override = Type.Object({
  overrideId: Type.String(),
  namespace: Type.String({ description: 'Its name.' }),
  namespaceId: Type.String(),
  identifier: Type.String(),
  limit: Type.Integer(),
  duration: Type.Integer(),
  createdAt: Type.Integer(),
});
