import Type from 'typebox';
import { createKeyString, defaultByteLength, digestOf } from '../../domain/keyString.ts';
import { manages } from '../../operation.ts';
import { checkSlugs, metaText, refusePlaintext, requireLimits } from '../rules.ts';
import { ApiId, Int, NewFields, out, Plaintext, Text } from '../schemas.ts';
import { checkKeyFields, keyFieldErrors, newKeyFields, requireKeyFields } from './keyFields.ts';
import { newKeyOf, newKeyRefused } from './newKey.ts';

export const createKey = manages({
  name: 'keys.createKey',
  summary: 'Create a key. The response is the only place its string ever appears.',
  description: 'null in an optional field means that it is absent.',
  input: NewFields({
    apiId: ApiId,
    prefix: Type.Optional(Text(1, 16, 'Prefix of the key string, followed by `_`.', { pattern: '^[a-zA-Z0-9_]+$' })),
    byteLength: Type.Optional(Int([16, 255], 'Number of random bytes in the key string.', defaultByteLength)),
    ...newKeyFields,
    recoverable: Type.Optional(Plaintext),
  }),
  output: Type.Object({
    keyId: out.text('Id of the new key.'),
    key: out.secret('The key string. It is not stored.'),
  }),
  errors: ['api_not_found', ...keyFieldErrors],
  needs: { api: ['create_key'] },
  scope: ({ apiId }) => apiId,
  check(input, context) {
    refusePlaintext({ recoverable: input.recoverable });
    checkKeyFields(input, 'body');
    metaText(input.meta, context, 'meta');
  },

  async handle({ apiId, prefix, byteLength = defaultByteLength, recoverable: _never, ...fields }, context) {
    await checkSlugs(fields.permissions, context);
    const { store, caller, actor } = context;
    requireKeyFields(fields, store);
    requireLimits(fields, store);
    const { key, start } = createKeyString({ prefix, byteLength });
    const newKey = newKeyOf(fields, metaText(fields.meta, context, 'meta'));
    const request = {
      apiId,
      refusesExpired: true,
      mayCreatePermissions: caller.grants.holds('rbac', '*', 'create_permission'),
      keys: [{ ...newKey, digest: digestOf(key), start, prefix, byteLength }],
    };
    const result = await store.keys.create(caller.workspaceId, request, actor);
    if ('refused' in result) throw newKeyRefused(result, apiId);
    return { keyId: result.created[0]!, key };
  },
});
