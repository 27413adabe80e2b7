import type { Static } from 'typebox';
import { manages } from '../../operation.ts';
import type { KeyChanges } from '../../store/keys.ts';
import Type from '../../typebox.ts';
import { checkCredits, checkNamesOnce, invalid, keyNotFound, mayNotCreate, metaText, roleNotFound } from '../rules.ts';
import {
  CreditChanges,
  Empty,
  Expires,
  ExternalId,
  Fields,
  KeyId,
  KeyName,
  Meta,
  Nullable,
  Ratelimits,
  RoleName,
  Slug,
} from '../schemas.ts';
import { loadKey, scopeOfKey } from './keyById.ts';

const input = Fields({
  keyId: KeyId,
  name: Type.Optional(Nullable(KeyName)),
  externalId: Type.Optional(Nullable(ExternalId)),
  meta: Type.Optional(Nullable(Meta)),
  expires: Type.Optional(Nullable(Expires)),
  credits: Type.Optional(Nullable(CreditChanges)),
  ratelimits: Type.Optional(Nullable(Ratelimits)),
  enabled: Type.Optional(Type.Boolean()),
  roles: Type.Optional(Type.Array(RoleName, { maxItems: 100 })),
  permissions: Type.Optional(Type.Array(Slug, { maxItems: 1000 })),
});

/** Fields that are passed to the store unchanged. */
type Unchanged = Exclude<keyof Static<typeof input>, 'keyId' | 'meta' | 'credits'>;

export const updateKey = manages({
  name: 'keys.updateKey',
  summary: 'Update a key. Omitted fields are unchanged; null removes a value.',
  input,
  output: Empty,
  errors: ['key_not_found', 'role_not_found', 'too_many_records'],
  needs: { api: ['update_key'] },
  check({ credits, ratelimits, meta }, context) {
    checkCredits(credits);
    checkNamesOnce(ratelimits);
    metaText(meta, context, 'meta');
  },
  load: loadKey,
  scope: scopeOfKey,

  async handle({ keyId, meta, credits, ...fields }, context) {
    const { store, caller, actor } = context;
    const text = metaText(meta, context, 'meta');
    const { name, externalId, expires, ratelimits, enabled, roles, permissions } = fields;
    const changes: KeyChanges = {
      // A field that is missing here does not compile.
      ...({ name, externalId, expires, ratelimits, enabled, roles, permissions } satisfies Pick<KeyChanges, Unchanged> &
        Record<Unchanged, unknown>),
      credits: credits as KeyChanges['credits'],
      meta: meta && text === undefined ? null : text,
    };
    const mayCreatePermissions = caller.grants.holds('rbac', '*', 'create_permission');
    const result = await store.keys.update(caller.workspaceId, keyId, changes, mayCreatePermissions, actor);
    switch (result.refused) {
      case undefined:
        return {};
      case 'key_not_found':
        throw keyNotFound();
      case 'refill_unlimited':
        throw invalid(
          'body.credits.refill',
          'needs a balance: an unlimited key has nothing to refill',
          'Set remaining as well.',
        );
      case 'role_not_found':
        throw roleNotFound(result.name);
      case 'create_permission':
        throw mayNotCreate(result.name);
    }
  },
});
