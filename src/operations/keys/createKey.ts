import Type from 'typebox';
import { createKeyString, defaultByteLength, digestOf } from '../../domain/keyString.ts';
import { manages } from '../../operation.ts';
import { apiNotFound, checkCredits, checkNamesOnce, invalid, mayNotCreate, metaText, roleNotFound } from '../rules.ts';
import {
  ApiId,
  Expires,
  ExternalId,
  Fields,
  Int,
  KeyName,
  Meta,
  NewCredits,
  Plaintext,
  Ratelimits,
  RoleName,
  Slug,
} from '../schemas.ts';

export const createKey = manages({
  name: 'keys.createKey',
  summary: 'Create a key. The response is the only place its string ever appears.',
  input: Fields({
    apiId: ApiId,
    prefix: Type.Optional(Type.String({ minLength: 1, maxLength: 16, pattern: '^[a-zA-Z0-9_]+$' })),
    byteLength: Type.Optional(
      Int({
        minimum: 16,
        maximum: 255,
        default: defaultByteLength,
        description: 'Number of random bytes in the key string.',
      }),
    ),
    name: Type.Optional(KeyName),
    externalId: Type.Optional(ExternalId),
    meta: Type.Optional(Meta),
    expires: Type.Optional(Expires),
    enabled: Type.Optional(Type.Boolean({ default: true })),
    credits: Type.Optional(NewCredits),
    ratelimits: Type.Optional(Ratelimits),
    roles: Type.Optional(Type.Array(RoleName, { maxItems: 100 })),
    permissions: Type.Optional(Type.Array(Slug, { maxItems: 1000 })),
    recoverable: Type.Optional(Plaintext),
  }),
  output: Type.Object({ keyId: Type.String(), key: Type.String() }),
  errors: ['api_not_found', 'role_not_found', 'too_many_records'],
  needs: { api: ['create_key'] },
  scope: ({ apiId }) => apiId,
  check({ recoverable, credits, ratelimits, meta }, context) {
    if (recoverable) throw invalid('body.recoverable', 'cannot be true: the plaintext of a key is never stored');
    checkCredits(credits);
    checkNamesOnce(ratelimits);
    metaText(meta, context, 'meta');
  },

  async handle(input, context) {
    const {
      apiId,
      prefix,
      byteLength = defaultByteLength,
      name,
      externalId,
      expires,
      enabled,
      credits,
      ratelimits,
      roles,
      permissions,
    } = input;
    const { store, caller, actor } = context;
    const { key, start } = createKeyString({ prefix, byteLength });
    const result = await store.keys.create(
      caller.workspaceId,
      {
        apiId,
        mayCreatePermissions: caller.grants.holds('rbac', '*', 'create_permission'),
        keys: [
          {
            digest: digestOf(key),
            start,
            prefix,
            byteLength,
            name,
            externalId,
            meta: metaText(input.meta, context, 'meta') ?? undefined,
            expires,
            enabled,
            remaining: credits?.remaining ?? undefined,
            refill: credits?.refill as Parameters<typeof store.keys.create>[1]['keys'][number]['refill'],
            ratelimits,
            roles,
            permissions,
          },
        ],
      },
      actor,
    );
    if ('created' in result) return { keyId: result.created[0]!, key };
    if (result.refused === 'api_not_found') throw apiNotFound();
    throw result.refused === 'role_not_found' ? roleNotFound(result.name) : mayNotCreate(result.name);
  },
});
