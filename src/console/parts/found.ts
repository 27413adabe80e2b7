// What has a text: from the indexes at once (system.find), and from searches of lists, which read on. The text may be a
// whole key string: it is sent in bodies of requests only.

import { useEffect } from 'preact/hooks';
import { forget, useData } from '../api.ts';
import { asChanged, usePages } from '../pages.ts';
import type { Api, Found, Identity, Key, Plan } from '../records.ts';
import { apiOfKeys, may } from '../session.ts';

function useFind(text: string) {
  const data = useData<{ items: Found[] }>('system.find', text ? { text } : undefined);
  // It may be a secret, so it does not stay in memory.
  useEffect(() => () => forget('system.find', { text }), [text]);
  return data;
}

/** Keys that are displayed above those of a search: by id, hash or whole string, by start, and those of a customer. */
export function useIndexedKeys(text: string, apiId: string) {
  const { data, failure } = useFind(text);
  const items = data?.items.filter(({ deleted }) => !deleted) ?? [];
  const [key, customer] = (['key', 'identity'] as const).map((kind) =>
    items.find((item) => item.kind === kind && item.exact),
  );
  const hasStart = items.some(({ kind, start }) => kind === 'key' && start?.startsWith(text));
  const listed = { ...(apiId && { apiId }), order: 'desc', limit: 50 };
  const one = useData<Key>('keys.getKey', key && { keyId: key.id });
  const ofCustomer = useData<Key[]>('keys.listKeys', customer && { ...listed, externalId: customer.externalId });
  const withStart = useData<Key[]>('keys.listKeys', hasStart ? { ...listed, start: text } : undefined);
  const keys = [one, ofCustomer, withStart]
    .flatMap(({ data = [], askedAt }) => [data].flat().map((found) => asChanged(found, askedAt)))
    .filter((found) => apiId === '' || found.apiId === apiId);
  return { keys: [...new Map(keys.map((found) => [found.keyId, found])).values()], failure };
}

/** Characters of a text that lists are searched for. */
const searchMax = 255;
/** Rows that a search reads before it ends. */
const few = 5;

const isIn = ({ id, name, start, externalId }: Found, text: string) =>
  [id, name, start, externalId].some((field) => field?.toLowerCase().includes(text.toLowerCase()));

/** Everything that has the text. */
export function useResults(text: string) {
  const find = useFind(text);
  const indexed = find.data?.items ?? [];
  const isFound = text !== '' && (find.data ?? find.failure) !== undefined;
  // No list has the string or the hash of a key.
  const isExact = indexed.some((item) => item.kind === 'key' && item.exact && !isIn(item, text));
  const isSearched = isFound && !isExact && text.length <= searchMax;
  const useList = <Row>(
    kind: Found['kind'],
    isAllowed: boolean,
    operation: string,
    of: (row: Row) => Omit<Found, 'kind' | 'exact'>,
    more: object = {},
  ) => {
    const pages = usePages<Row>(operation, isSearched && isAllowed ? { ...more, search: text, limit: few } : undefined);
    const found = (pages.rows ?? []).map((row): Found => ({ kind, exact: false, ...of(row) }));
    return { kind, pages, found, hasMore: pages.hasMore && found.length >= few };
  };
  const apiId = apiOfKeys('');
  const newest = { ...(apiId && { apiId }), order: 'desc' };
  const lists = [
    useList<Key>('key', may('api', 'read_key'), 'keys.listKeys', (key) => ({ ...key, id: key.keyId }), newest),
    useList<Identity>('identity', may('identity', 'read_identity'), 'identities.listIdentities', (row) => row),
    useList<Api>('api', may('api', 'read_api', '*'), 'apis.listApis', (row) => row),
    useList<Plan>('plan', may('plan', 'read_plan'), 'plans.listPlans', ({ planId }) => ({ id: planId })),
  ];
  const found = [...indexed, ...lists.flatMap((list) => list.found)];
  return {
    found: found.filter(({ kind, id }, at) => found.findIndex((one) => one.kind === kind && one.id === id) === at),
    isFound,
    lists,
    failure: find.failure ?? lists.find(({ pages }) => pages.failure)?.pages.failure,
  };
}
export type Results = ReturnType<typeof useResults>;
