// The fields of a key, as callers send and read them.

import type { Static } from 'typebox';
import Type from 'typebox';
import { isRange } from '../../domain/ipRange.ts';
import type { JsonText } from '../../domain/json.ts';
import type { Store } from '../../store.ts';
import { checkCredits, checkLimits, invalid, plansSince, requireData } from '../rules.ts';
import {
  CreatedAt,
  CreditChanges,
  Credits,
  Expires,
  ExpiresAt,
  ExternalId,
  Fields,
  Identity,
  IpRange,
  KeyName,
  Meta,
  MetaText,
  may,
  NewCredits,
  Nullable,
  OptionalFlag,
  out,
  PlanId,
  Ratelimit,
  Ratelimits,
  RoleName,
  Slugs,
} from '../schemas.ts';

const RoleNames = Type.Array(RoleName, { maxItems: 100, description: 'Names of its roles.' });
const DirectSlugs = Slugs('Its direct permissions.');
const AllowedIps = Type.Array(IpRange, {
  minItems: 1,
  maxItems: 100,
  description:
    'IP addresses and CIDR ranges that may use the key, such as `203.0.113.7` or `2001:db8::/32`. Verifications with another `ip` or without one return FORBIDDEN. Without the list, any address may use it.',
});
const enabledDescription = 'False: every verification that finds the key returns DISABLED.';

/** In keys.createKey, keys.migrateKeys and imports. */
export const newKeyFields = {
  name: Type.Optional(KeyName),
  externalId: Type.Optional(ExternalId),
  meta: Type.Optional(Meta),
  roles: Type.Optional(RoleNames),
  permissions: Type.Optional(DirectSlugs),
  expires: Type.Optional(Expires),
  enabled: OptionalFlag(enabledDescription, true),
  credits: Type.Optional(NewCredits),
  ratelimits: Type.Optional(Ratelimits),
  allowedIps: Type.Optional(AllowedIps),
  planId: Type.Optional(PlanId),
};

/** In keys.updateKey: an omitted field is unchanged, and null removes a value. */
export const changedKeyFields = {
  name: Type.Optional(Nullable(KeyName)),
  externalId: Type.Optional(Nullable(ExternalId)),
  meta: Type.Optional(Nullable(Meta)),
  expires: Type.Optional(Nullable(Expires)),
  credits: Type.Optional(Nullable(CreditChanges)),
  ratelimits: Type.Optional(Nullable(Ratelimits)),
  allowedIps: Type.Optional(Nullable(AllowedIps)),
  planId: Type.Optional(Nullable(PlanId)),
  enabled: OptionalFlag(enabledDescription),
  roles: Type.Optional(RoleNames),
  permissions: Type.Optional(DirectSlugs),
} satisfies Record<keyof typeof newKeyFields, unknown>;

export const KeyRecord = out.object('A key, without its string.', {
  keyId: out.text('Id of the key.'),
  apiId: out.text('Id of its API.'),
  start: out.text('First characters of the key string, to recognise it by.'),
  enabled: out.flag(enabledDescription),
  createdAt: CreatedAt,
  prefix: may.text('Prefix of the key string.'),
  name: may.text('Name for people.'),
  externalId: may.text('Your id of the owner of the key.'),
  meta: Type.Optional(MetaText),
  expires: Type.Optional(ExpiresAt),
  updatedAt: may.int('Time of the last change in Unix milliseconds.'),
  lastUsedAt: may.int('Time of the last VALID verification in Unix milliseconds.'),
  successor: may.text('Id of the key that `keys.rerollKey` made to replace it; of several the last.'),
  drawsOn: may.text(
    'Id of the key to whose credits it is charged: `keys.rerollKey` moved its own. `credits` are these.',
  ),
  drawnBy: may.texts('Ids of keys that are charged to its credits, too: it replaced them.'),
  permissions: Type.Optional(
    Type.Unsafe<readonly string[] | JsonText>({
      type: 'array',
      items: { type: 'string' },
      description: 'Direct permissions and the permissions of its roles.',
    }),
  ),
  roles: may.texts('Names of its roles.'),
  credits: Type.Optional(Credits),
  identity: Type.Optional(Identity),
  ratelimits: Type.Optional(Type.Array(Ratelimit, { description: 'Limits of the key itself.' })),
  allowedIps: may.texts('IP addresses and CIDR ranges that may use it, in canonical form.'),
  planId: may.text('Plan of the key itself. Its limits are not in `ratelimits`.'),
});

/** The fields that verifications return unchanged: `verified` of src/scripts/layout.ts. */
export const verifiedKeyFields = {
  name: may.text('Name of the key.'),
  meta: Type.Optional(Meta),
};

/** Errors of roles, permissions and limits that the fields name. */
export const keyFieldErrors = ['role_not_found', 'plan_not_found', 'precondition_failed', 'too_many_records'] as const;

const New = Fields(newKeyFields);
const Changed = Fields(changedKeyFields);
export type NewKeyInput = Static<typeof New>;
type ChangedKeyInput = Static<typeof Changed>;

/** Checks rules that the schemas cannot express, except for `meta`. `at` is the location of the fields in the input. */
export function checkKeyFields({ credits, ratelimits, allowedIps }: NewKeyInput | ChangedKeyInput, at: string) {
  checkCredits(credits, `${at}.credits`);
  checkLimits(ratelimits, `${at}.ratelimits`);
  const odd = (allowedIps ?? []).findIndex((range) => !isRange(range));
  if (odd >= 0) {
    const fix = 'Write 203.0.113.7, 203.0.113.0/24, 2001:db8::1 or 2001:db8::/32, without port, brackets and zone.';
    throw invalid(`${at}.allowedIps[${odd}]`, 'is not an IPv4 or IPv6 address or CIDR range', fix);
  }
}

/** The version of the stored data from which on all servers apply a field, if earlier ones have keys without it. */
export const keyFieldsSince = { allowedIps: 6, planId: plansSince } as const satisfies Partial<
  Record<keyof NewKeyInput, number>
>;

/** From which version on servers charge a key to the credits of its successor. */
export const movedCreditsSince = 7;

/** Refuses these fields while servers of an earlier release may verify keys: they would not apply them. */
export function requireKeyFields(fields: NewKeyInput | ChangedKeyInput, store: Pick<Store, 'dataVersion'>) {
  for (const [name, since] of Object.entries(keyFieldsSince)) {
    if (fields[name as keyof typeof keyFieldsSince]) requireData(store, since, name);
  }
}
