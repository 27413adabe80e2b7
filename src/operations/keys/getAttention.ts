import Type from 'typebox';
import { cursorAfter } from '../../domain/cursor.ts';
import { manages } from '../../operation.ts';
import type { KeyFilter } from '../../records/keySearch.ts';
import { listOf } from '../lists.ts';
import { checkMilliseconds, invalid } from '../rules.ts';
import { ApiId, Fields, Int, may, out } from '../schemas.ts';
import { KeyRecord } from './keyFields.ts';
import { apiIdRequired, keyFilters, requireApi, tooManyApis } from './listKeys.ts';

const { expiresBefore, creditsBelow, unusedSince, rerolledInUse } = keyFilters;
const attentionFilters = { expiresBefore, creditsBelow, unusedSince, rerolledInUse };
type FilterName = keyof typeof attentionFilters;
const names = Object.keys(attentionFilters) as FilterName[];

const partFields = {
  keys: Type.Array(KeyRecord, { description: 'Keys that match, the oldest first.' }),
  hasMore: out.flag('True if not all keys were examined.'),
  cursor: may.text('For `keys.listKeys` with this filter and `apiId` alone: continues after these keys.'),
  looked: out.int('Keys that were examined.'),
  total: out.int('Keys of the API, or of all APIs.'),
};
const expiringFields = {
  ...partFields,
  keys: Type.Array(KeyRecord, { description: 'Keys that match, the first to expire first.' }),
  hasMore: out.flag('True if more keys expire before this time.'),
  total: out.int('Keys that expire before this time.'),
};
const partOf = (description: string, fields = partFields) => Type.Object(fields, { description });

export const getAttention = manages({
  name: 'keys.getAttention',
  summary:
    'Find keys that expire, are short of credits, are unused, or are still used after a reroll: a list for each.',
  description: `Needs at least one of ${names.map((name) => `\`${name}\``).join(', ')}. ${apiIdRequired}`,
  input: Fields({
    apiId: Type.Optional(ApiId),
    limit: Type.Optional(Int([1, 100], 'Limit of keys of each list.', 10)),
    ...attentionFilters,
  }),
  output: out.object('A list for each filter of the request.', {
    expiresBefore: Type.Optional(partOf('Keys that expire before this time.', expiringFields)),
    creditsBelow: Type.Optional(partOf('Keys with fewer credits.')),
    unusedSince: Type.Optional(partOf('Keys that were not used since.')),
    rerolledInUse: Type.Optional(partOf('Rerolled keys that are still used.')),
  }),
  errors: ['api_not_found'],
  needs: { api: ['read_key', 'read_api'] },
  readsMuch: true,
  scope: ({ apiId }) => apiId ?? '*',
  check(input) {
    const { expiresBefore, unusedSince } = input;
    checkMilliseconds({ expiresBefore, unusedSince });
    if (names.every((name) => input[name] === undefined))
      throw invalid('body', `needs at least one of ${names.join(', ')}`);
  },

  async handle({ apiId, limit = 10, ...values }, { store, caller }) {
    const { workspaceId } = caller;
    await requireApi(store, workspaceId, apiId);
    const filters = names.filter((name) => values[name] !== undefined).map((name) => ({ [name]: values[name]! }));
    const found = await store.keySearch.listEach(workspaceId, { apiId, filters, order: 'asc', count: limit });
    if ('refused' in found) throw tooManyApis();
    const nameOf = (filter: KeyFilter) => listOf('found', apiId === undefined ? filter : { apiId, ...filter });
    const parts = filters.map((filter, index) => {
      const { items: keys, next, looked, total } = found[index]!;
      const cursor = next && cursorAfter(nameOf(filter), next);
      return [Object.keys(filter)[0], { keys, hasMore: next !== undefined, cursor, looked, total }];
    });
    return Object.fromEntries(parts);
  },
});
