import Type from 'typebox';
import { ApiError } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { apisMax } from '../../records/keySearch.ts';
import type { Store } from '../../store.ts';
import { listOf } from '../lists.ts';
import { apiNotFound, checkMilliseconds, invalid } from '../rules.ts';
import {
  ApiId,
  ExternalId,
  Fields,
  Int,
  may,
  OneOf,
  OptionalFlag,
  optional,
  out,
  PlanId,
  pageFields,
  RoleName,
  Slug,
  Text,
  UnixTime,
} from '../schemas.ts';
import { KeyRecord } from './keyFields.ts';

export const keyFilters = optional({
  search: Text(
    1,
    255,
    'Text that the name, `start`, id, externalId or metadata (its JSON) contains, with A to Z in any case. The id of a key finds that key at once.',
  ),
  start: Text(1, 64, 'The first characters of the key string.', { pattern: '^[a-zA-Z0-9_]+$' }),
  enabled: OptionalFlag('Enabled keys, or disabled ones.'),
  expiresBefore: UnixTime('Keys that expire before this time in Unix milliseconds, in order of expiry.'),
  expiresAfter: UnixTime('With `expiresBefore`: keys that expire at this time in Unix milliseconds or later.'),
  unusedSince: UnixTime(
    'Keys that were created before this time in Unix milliseconds and have had no VALID verification since.',
  ),
  creditsBelow: Int(0, 'Keys with a balance of their own below this number.'),
  rerolledInUse: OptionalFlag(
    'Enabled keys that have a successor, have not expired, and have had a VALID verification since it was created; or all others.',
  ),
  permission: Slug,
  role: RoleName,
  externalId: ExternalId,
  planId: PlanId,
  deleted: OptionalFlag(
    'List deleted keys whose record is kept, instead of the others. `keys.restoreKey` restores them.',
    false,
  ),
});

/** Throws if a request names an API that does not exist. */
export async function requireApi(store: Store, workspaceId: string, apiId: string | undefined) {
  if (apiId !== undefined && !(await store.apis.find(workspaceId, apiId))) throw apiNotFound(apiId);
}

/** Describes the operations that list the keys of all APIs. */
export const apiIdRequired = `In a workspace with more than ${apisMax} APIs, \`apiId\` is required.`;

/** The error for a workspace with too many APIs to list their keys together. */
export const tooManyApis = (): ApiError =>
  new ApiError(
    'invalid_input',
    `The workspace has more than ${apisMax} APIs, whose keys cannot be listed together. Name one with apiId.`,
    { fields: [{ location: 'body.apiId', message: `is required: there are more than ${apisMax} APIs` }] },
  );

export const listKeys = manages({
  name: 'keys.listKeys',
  summary: 'List the keys of one API or of all APIs in order of creation, with filters that all must match.',
  description: `With \`expiresBefore\`, keys are in order of expiry instead, unless they are deleted, and \`total\` is the number of keys that expire in that time. ${apiIdRequired}`,
  input: Fields({
    apiId: Type.Optional(ApiId),
    ...pageFields,
    order: Type.Optional(
      OneOf(
        ['asc', 'desc'],
        'Order of creation: `asc` is oldest first, `desc` newest first. With `expiresBefore`: `asc` is the first to expire first, `desc` the last.',
        'asc',
      ),
    ),
    ...keyFilters,
  }),
  output: out.list({
    ...KeyRecord.properties,
    restorableUntil: may.int('Of a deleted key: when its record may be removed, in Unix milliseconds.'),
  }),
  errors: ['api_not_found'],
  needs: { api: ['read_key', 'read_api'] },
  scope: ({ apiId }) => apiId ?? '*',
  list: (query) => listOf('found', query),
  check({ expiresBefore, expiresAfter, unusedSince }) {
    checkMilliseconds({ expiresBefore, expiresAfter, unusedSince });
    if (expiresAfter !== undefined && expiresBefore === undefined)
      throw invalid('body.expiresAfter', 'needs expiresBefore');
  },
  listedIds: ({ expiresBefore, deleted }) => (expiresBefore === undefined || deleted ? 'key' : 'expiring_key'),

  async handle({ apiId, limit = 100, cursor: _after, order = 'asc', ...filter }, { store, caller, after }) {
    const { workspaceId } = caller;
    await requireApi(store, workspaceId, apiId);
    const query = { apiId, filter, order, after, count: limit };
    const page = await store.keySearch.list(workspaceId, query);
    if ('refused' in page) throw tooManyApis();
    return page;
  },
});
