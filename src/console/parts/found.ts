// What has a text: from the indexes at once (system.find), and from searches of lists, which read on. Nothing is
// cached: the text may be a whole key string. It is sent in bodies of requests only, and forgotten with its field.

import { useEffect, useState } from 'preact/hooks';
import { call, type Failure } from '../api.ts';
import { pagesOf } from '../pages.ts';
import type { Api, Found, Identity, Key, Plan } from '../records.ts';
import { apiOfKeys, may } from '../session.ts';
import { useChanges } from './many.tsx';

const find = async (text: string) => (await call<{ items: Found[] }>('system.find', { text })).items;

/** The keys that the indexes have for the text: by id, hash or whole string, by start, and those of a customer. */
async function readKeys(text: string, apiId: string): Promise<Key[]> {
  const items = (await find(text)).filter(({ deleted }) => !deleted);
  const list = (filter: object) =>
    call<Key[]>('keys.listKeys', { ...(apiId && { apiId }), ...filter, order: 'desc', limit: 50 });
  const reads = items
    .filter(({ exact }) => exact)
    .map(({ kind, id, externalId }) => {
      if (kind === 'key') return call<Key>('keys.getKey', { keyId: id });
      return kind === 'identity' ? list({ externalId }) : [];
    });
  if (items.some(({ kind, start }) => kind === 'key' && start?.startsWith(text))) reads.push(list({ start: text }));
  const keys = (await Promise.all(reads)).flat().filter((key) => apiId === '' || key.apiId === apiId);
  return [...new Map(keys.map((key) => [key.keyId, key])).values()];
}

/** Keys that are displayed above those of a search. */
export function useIndexedKeys(text: string, apiId: string): { keys: readonly Key[]; failure?: Failure } {
  const [found, setFound] = useState<{ of: string; keys: readonly Key[]; failure?: Failure }>({ of: '', keys: [] });
  const of = `${apiId} ${text}`;
  useEffect(() => {
    if (!text) return undefined;
    let isLeft = false;
    readKeys(text, apiId).then(
      (keys) => !isLeft && setFound({ of, keys }),
      (failure) => !isLeft && setFound({ of, keys: [], failure }),
    );
    return () => {
      isLeft = true;
    };
  }, [of]);
  useChanges((change) => setFound((before) => ({ ...before, keys: before.keys.map(change) })));
  return found.of === of ? found : { keys: [] };
}

/** Rows that a search reads before it ends. */
const few = 5;

type Row = Omit<Found, 'kind' | 'exact'>;
const source = <Listed>(kind: Found['kind'], operation: string, input: object, of: (row: Listed) => Row) => ({
  kind,
  async *read(text: string) {
    for await (const { data, pagination } of pagesOf<Listed>(operation, { ...input, search: text, limit: few }))
      yield { items: data.map((row): Found => ({ kind, exact: false, ...of(row) })), pagination };
  },
});

/** The lists that the root key may search. */
function sources() {
  const apiId = apiOfKeys('');
  const newest = { ...(apiId && { apiId }), order: 'desc' };
  return [
    may('api', 'read_key') && source<Key>('key', 'keys.listKeys', newest, (key) => ({ ...key, id: key.keyId })),
    may('identity', 'read_identity') && source<Identity>('identity', 'identities.listIdentities', {}, (row) => row),
    may('api', 'read_api', '*') && source<Api>('api', 'apis.listApis', {}, (row) => row),
    may('plan', 'read_plan') && source<Plan>('plan', 'plans.listPlans', {}, ({ planId }) => ({ id: planId })),
  ].filter((one) => one !== false);
}

export interface Results {
  of: string;
  found: readonly Found[];
  /** Whether the indexes have responded. */
  isFound: boolean;
  /** Whether a search reads on, and how many keys it has examined. */
  isReading: boolean;
  looked: number;
  total: number;
  /** Kinds of which a list may have more. */
  more: readonly Found['kind'][];
  failure?: Failure;
  stop: () => void;
}
const nothing = { found: [], isFound: false, looked: 0, total: 0, more: [], stop: () => {} };
const noneOf = (of: string): Results => ({ of, isReading: of !== '', ...nothing });

const isIn = ({ id, name, start, externalId }: Found, text: string) =>
  [id, name, start, externalId].some((field) => field?.toLowerCase().includes(text.toLowerCase()));

type Update = (change: (before: Results) => Partial<Results>) => void;

async function search(text: string, update: Update, isOver: () => boolean) {
  const fail = (failure: Failure) => update(() => ({ failure }));
  const first = await find(text).catch(fail);
  update(() => ({ found: first ?? [], isFound: true }));
  // No list has the string or the hash of a key.
  if (first?.some((item) => item.kind === 'key' && item.exact && !isIn(item, text))) return;
  const readOn = async ({ kind, read }: ReturnType<typeof source>) => {
    let number = 0;
    for await (const { items, pagination: { looked = 0, total = 0 } = {} } of read(text)) {
      if (isOver()) return;
      number += items.length;
      update(({ found, more, ...before }) => ({
        found: [...found, ...items.filter(({ id }) => !found.some((one) => one.kind === kind && one.id === id))],
        ...(kind === 'key' && { looked: before.looked + looked, total }),
        more: number >= few ? [...more, kind] : more,
      }));
      if (number >= few) return;
    }
  };
  await Promise.all(sources().map((one) => readOn(one).catch(fail)));
}

/** Everything that has the text. A new text stops the search of the one before. */
export function useResults(text: string): Results {
  const [results, setResults] = useState(noneOf(''));
  useEffect(() => {
    let isOver = false;
    const update: Update = (change) => !isOver && setResults((before) => ({ ...before, ...change(before) }));
    const end = () => {
      update(() => ({ isReading: false }));
      isOver = true;
    };
    setResults({ ...noneOf(text), stop: end });
    if (text) search(text, update, () => isOver).finally(end);
    return () => {
      isOver = true;
    };
  }, [text]);
  return results.of === text ? results : noneOf(text);
}
