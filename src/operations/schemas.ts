// Schemas that several operations share (docs/contract.md §4).

import Type, { type Static, type TSchema } from 'typebox';
import { actions } from '../domain/grants.ts';
import type { JsonText } from '../domain/json.ts';
import { timeMax } from '../domain/time.ts';

const integerMax = Number.MAX_SAFE_INTEGER;

/** An object with these fields and no others. */
export const Fields = <const Properties extends Record<string, TSchema>>(
  properties: Properties,
  options: { description?: string; documented?: object } = {},
) => Type.Object(properties, { additionalProperties: false, ...options });

/** Also accepts null, whose meaning the operation defines. */
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
    description: `Id of ${what} (\`${prefix}_…\`).`,
  });

export const ApiId = id('api', 'an API');
export const KeyId = id('key', 'a key');
export const RootKeyId = id('root', 'a root key');
export const ExternalId = Type.String({
  minLength: 1,
  maxLength: 255,
  pattern: '^[a-zA-Z0-9_.-]+$',
  description: 'Your id of the owner of the key, such as a user or an organisation. Created if unknown.',
});
export const KeyName = Type.String({ minLength: 1, maxLength: 255 });
export const KeyString = Type.String({
  minLength: 1,
  maxLength: 512,
  description: 'The key string.',
});

/** Metadata in a request. It is stored and returned as text, see domain/json.ts. */
export const Meta = Type.Record(Type.String(), Type.Unknown(), {
  maxProperties: 100,
  description: 'Any JSON object. Every verification returns it unchanged.',
});
/** Metadata in a response. */
export const MetaText = Type.Unsafe<JsonText>({
  type: 'object',
  additionalProperties: true,
  description: 'The JSON object that was stored.',
});

export const Expires = Int({
  minimum: 0,
  maximum: timeMax,
  description: 'Expiry time in Unix milliseconds.',
});

export const RootKeyExpires = Int({
  minimum: 0,
  maximum: timeMax,
  description: 'Expiry time in Unix milliseconds. A caller with an expiry cannot grant a later one, or none (403).',
});

export const Slug = Type.String({
  minLength: 3,
  maxLength: 100,
  pattern: '^[a-zA-Z0-9_:.*-]+$',
  description: 'Permission slug. One that ends in `.*` covers every permission with that prefix.',
});
export const RoleName = Type.String({ minLength: 1, maxLength: 100 });

const Refill = Fields({
  interval: Type.Enum(['daily', 'monthly']),
  amount: Int({ minimum: 1, description: 'Balance after a refill.' }),
  refillDay: Type.Optional(
    Int({
      minimum: 1,
      maximum: 31,
      description: 'Day of the month, or its last day in a shorter month. Monthly refills only. Defaults to 1.',
    }),
  ),
});

export const NewCredits = Fields({ remaining: Nullable(Int({ minimum: 0 })), refill: Type.Optional(Refill) });
export const CreditChanges = Fields({
  remaining: Type.Optional(Nullable(Int({ minimum: 0 }))),
  refill: Type.Optional(Nullable(Refill)),
});

/** Maximum credits that one verification charges. */
export const costMax = 1e12;

const Duration = Int({ minimum: 1000, description: 'Duration in milliseconds.' });
/** Duration of a limit whose counter is a Redis key of its own, which is kept as long. */
export const CounterDuration = Int({
  minimum: 1000,
  maximum: 2_592_000_000,
  description: 'Duration in milliseconds, at most 30 days.',
});

export const RatelimitRequest = Fields({
  name: Type.String({ minLength: 3, maxLength: 128 }),
  limit: Int({ minimum: 1, description: 'Units admitted in any interval of `duration`.' }),
  duration: Duration,
  autoApply: Type.Optional(
    Type.Boolean({ default: false, description: 'Check the limit in every verification, even if not named.' }),
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
/** `remaining: null` means unlimited. It is the only null in responses. */
export const CreditsOrUnlimited = Type.Object({
  remaining: Nullable(Type.Integer()),
  refill: Type.Optional(RefillRule),
});

export const VerifiedRatelimit = Type.Object({
  id: Type.String({
    description:
      'Id of the limit; empty for a limit that the request defined. A limit of the identity with the same name is checked too.',
  }),
  name: Type.String(),
  limit: Type.Integer(),
  duration: Type.Integer(),
  autoApply: Type.Boolean(),
  exceeded: Type.Boolean(),
  remaining: Type.Integer(),
  reset: Type.Integer({ description: 'Reset time in Unix milliseconds.' }),
});

export const Empty = Type.Object({});

export const Cursor = Type.String({
  minLength: 1,
  maxLength: 2048,
  description: 'Cursor from the previous page.',
});
export const PageSize = (standard: number) => Int({ minimum: 1, maximum: 100, default: standard });

export const Order = Type.Enum(['asc', 'desc'], {
  default: 'asc',
  description: 'Order of creation: `asc` is oldest first, `desc` newest first.',
});

export const Grant = Type.String({
  minLength: 1,
  maxLength: 512,
  description: `A grant: \`<resource>.<id or *>.<action>\`, or \`*\` for everything. Resources: ${Object.keys(actions).join(', ')}.`,
  documented: { pattern: '^(\\*|[a-z_]+\\.(\\*|[a-zA-Z0-9_]{3,255})\\.[a-z_]+)$' },
});

export const Description = Type.String({ maxLength: 512 });
export const Search = Type.String({
  minLength: 1,
  maxLength: 255,
  description: 'Case-insensitive substring filter.',
});

export const PermissionRef = Type.String({
  minLength: 3,
  maxLength: 255,
  description: 'Id (`perm_…`) or slug of a permission.',
});
export const RoleRef = Type.String({
  minLength: 1,
  maxLength: 255,
  description: 'Id (`role_…`) or name of a role.',
});
export const IdentityRef = Type.String({
  minLength: 1,
  maxLength: 255,
  description: 'Id (`id_…`) or externalId of an identity.',
});
export const NamespaceRef = Type.String({
  minLength: 1,
  maxLength: 512,
  description: 'Name or id (`rlns_…`) of a namespace.',
});
export const Identifier = Type.String({
  minLength: 1,
  maxLength: 512,
  description: 'Subject of the limit, such as a user id or an IP address.',
});
export const Tag = Type.String({ minLength: 1, maxLength: 512 });
export const SqlQuery = Type.String({
  description: "Rejected: SQL is not supported. Unkey's SDKs send this field.",
  documented: { not: {} },
});
/** Unkey's fields that ask for the plaintext of a key. */
export const Plaintext = Type.Boolean({
  description: 'true is rejected: the plaintext of a key is never stored.',
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
  namespace: Type.String({ description: 'Name of the namespace.' }),
  namespaceId: Type.String(),
  identifier: Type.String(),
  limit: Type.Integer(),
  duration: Type.Integer(),
  createdAt: Type.Integer(),
});
