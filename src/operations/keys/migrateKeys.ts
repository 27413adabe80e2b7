import Type, { type Static } from 'typebox';
import { manages } from '../../operation.ts';
import type { NewKey } from '../../records/keys.ts';
import { checkMilliseconds, invalid, metaText, requireLimits } from '../rules.ts';
import { ApiId, Fields, NewFields, out, Text } from '../schemas.ts';
import { checkKeyFields, keyFieldErrors, newKeyFields, requireKeyFields } from './keyFields.ts';
import { type Exactly, newKeyOf, newKeyRefused } from './newKey.ts';

/**
 * Maximum permissions, roles and limits of a call. One script imports them in tens of ms, while all other requests
 * wait.
 */
const partsMax = 10_000;
const slugsMax = 1000;

/** A key that another system issued, identified by its hash. */
export const IssuedKey = NewFields({
  hash: Type.String({
    maxLength: 64,
    description:
      'Base64 of the SHA-256 of the whole key string, once in a call. It is stored without a salt and does not reveal the length of the string, so ' +
      'import only keys with at least 128 random bits (22 random letters and digits).',
    documented: { pattern: '^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$' },
    isSecret: true,
  }),
  ...newKeyFields,
});

const lists = Object.entries(newKeyFields)
  .flatMap(([name, schema]) => ('items' in schema ? [name] : []))
  .join(', ');

type IssuedKey = Static<typeof IssuedKey>;

/** Counts the items of all lists of a key (permissions, roles, limits), which determine the time to import it. */
const partsOf = (key: IssuedKey): number =>
  Object.values(key).reduce<number>((sum, value) => sum + (Array.isArray(value) ? value.length : 0), 0);

/** Checks an issued key for what its schema cannot express, except `meta`. `at` is its location in the input. */
export function checkIssuedKey({ hash, ...fields }: IssuedKey, at: string) {
  const digest = Buffer.from(hash, 'base64');
  if (digest.length !== 32 || digest.toString('base64') !== hash)
    throw invalid(`${at}.hash`, 'is not the base64 of 32 bytes');
  checkKeyFields(fields, at);
}

/** Returns an issued key as the store expects it. `meta` is JSON text. */
export function issuedKey<Input extends IssuedKey>(
  input: Exactly<Input, IssuedKey>,
  meta: string | null | undefined,
): NewKey {
  const { hash, ...fields }: IssuedKey = input;
  return { ...newKeyOf(fields, meta), digest: Buffer.from(hash, 'base64'), start: '' };
}

export const migrateKeys = manages({
  name: 'keys.migrateKeys',
  summary:
    'Import keys by the hashes of their strings. They verify at once. Either all keys of the call are imported or none, except those whose hashes exist.',
  description: 'null in an optional field of a key means that it is absent.',
  input: Fields({
    migrationId: Text(3, 255, 'Your id of this import, stored with the keys.'),
    apiId: ApiId,
    keys: Type.Array(IssuedKey, {
      minItems: 1,
      maxItems: 1000,
      description: `Keys to import. Together they have at most ${partsMax} items in their lists (${lists}), and ${slugsMax} different permissions.`,
    }),
  }),
  output: Type.Object({
    migrated: out.objects('Imported keys.', {
      hash: out.text('Hash, as in the request.'),
      keyId: out.text('Id of the new key.'),
    }),
    failed: Type.Array(Type.String(), { description: 'Hashes that already exist in the workspace.' }),
  }),
  errors: ['api_not_found', ...keyFieldErrors],
  needs: { api: ['create_key'] },
  bodyBytesMax: 10 * 1024 * 1024,
  scope: ({ apiId }) => apiId,
  check({ keys }, context) {
    const seen = new Set<string>();
    const slugs = new Set<string>();
    let parts = 0;
    for (const [index, key] of keys.entries()) {
      const at = `body.keys[${index}]`;
      checkIssuedKey(key, at);
      checkMilliseconds({ expires: key.expires }, at);
      if (seen.has(key.hash)) throw invalid(`${at}.hash`, 'appears twice in the call');
      seen.add(key.hash);
      metaText(key.meta, context, 'keys', index, 'meta');
      for (const slug of key.permissions ?? []) slugs.add(slug);
      parts += partsOf(key);
    }
    const split = 'Import them in several calls.';
    if (parts > partsMax) {
      throw invalid(
        'body.keys',
        `have ${parts} items in their lists (${lists}); the maximum for one call is ${partsMax}`,
        split,
      );
    }
    if (slugs.size > slugsMax) {
      throw invalid(
        'body.keys',
        `have ${slugs.size} different permissions; the maximum for one call is ${slugsMax}`,
        split,
      );
    }
  },

  async handle({ migrationId, apiId, keys }, context) {
    const { store, caller, actor } = context;
    for (const key of keys) requireKeyFields(key, store);
    for (const key of keys) requireLimits(key, store);
    const result = await store.keys.create(
      caller.workspaceId,
      {
        apiId,
        migrationId,
        mayCreatePermissions: caller.grants.holds('rbac', '*', 'create_permission'),
        keys: keys.map((key, index) => issuedKey(key, metaText(key.meta, context, 'keys', index, 'meta'))),
      },
      actor,
    );
    if ('refused' in result) throw newKeyRefused(result, apiId, (index) => `body.keys[${index}]`);
    const migrated: { hash: string; keyId: string }[] = [];
    const failed: string[] = [];
    for (const [index, { hash }] of keys.entries()) {
      const keyId = result.created[index];
      if (keyId) migrated.push({ hash, keyId });
      else failed.push(hash);
    }
    return { migrated, failed };
  },
});
