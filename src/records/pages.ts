// Pages of lists that can be searched. There is no text index: a search reads the list in steps until the page is full,
// the list ends, or it has read `itemsMax` items. The caller continues with the cursor.

import { type RecordName, recordKinds } from '../domain/records.ts';
import type { Reply, Run } from '../scripts/calls.ts';

export interface PageOf<Item> {
  items: Item[];
  /** The id after which the next page begins; undefined at the end of the list. */
  next: string | undefined;
}

/** The order of creation: oldest or newest first. */
export type Order = 'asc' | 'desc';

/** A page that reports how far it has looked. */
export interface LookedPage<Item> extends PageOf<Item> {
  /** Items that were examined for this page. */
  looked: number;
  /** Items of the whole list. */
  total: number;
}

const stepMax = 500;
const itemsMax = 10_000;

/** The members of a record that a search looks at, if it has them. */
const searched: ReadonlySet<string> = new Set([
  'id',
  'name',
  'description',
  ...recordKinds.flatMap(([, { unique = [] }]) => unique),
]);

export interface SearchedPage {
  after?: string | undefined;
  count: number;
  search?: string | undefined;
}

/** Whether a text of a record contains `search`, in any case. */
export const contains = (item: object, search: string): boolean =>
  Object.entries(item).some(
    ([name, value]) =>
      searched.has(name) && typeof value === 'string' && value.toLowerCase().includes(search.toLowerCase()),
  );

/**
 * `find` and `list` of a kind whose records lua/records/read.lua reads. `find` takes the id or the name of a record.
 */
export const readsOf = <Item extends { id: string }>(run: Run, kind: RecordName, itemOf: (reply: Reply) => Item) => ({
  async find(workspaceId: string, reference: string): Promise<Item | undefined> {
    const [[reply]] = await run('records/read', workspaceId, { kindName: kind, reference, after: '', count: 1 });
    return reply === undefined ? undefined : itemOf(reply);
  },

  list: (workspaceId: string, page: SearchedPage): Promise<PageOf<Item>> =>
    searchPages(page, itemOf, (given) => run('records/read', workspaceId, { kindName: kind, reference: '', ...given })),
});

/**
 * A page in order of creation, after the record with the id `after`; only records of which a text contains `search`, if
 * that is given. `read` runs a script that returns `page_of` (lua/include/pages.lua), and for a page that reports how
 * far it has looked also the number of all records.
 */
export async function searchPages<Item extends { id: string }>(
  { after, count, search }: SearchedPage,
  itemOf: (reply: Reply) => Item,
  read: (given: { after: string; count: number }) => Promise<[replies: Reply[], more: 0 | 1, all?: number]>,
): Promise<PageOf<Item> & Partial<LookedPage<Item>>> {
  const items: Item[] = [];
  let [last, looked] = [after, 0];
  let total: number | undefined;
  const ending = (next: string | undefined) => ({ items, next, ...(total !== undefined && { looked, total }) });
  while (looked < itemsMax) {
    const step = search === undefined ? count : stepMax;
    const [replies, more, all] = await read({ after: last?.slice(last.indexOf('_') + 1) ?? '', count: step });
    total = all;
    for (const [index, reply] of replies.entries()) {
      const item = itemOf(reply);
      last = item.id;
      looked++;
      if (search === undefined || contains(item, search)) items.push(item);
      if (items.length === count) return ending(more === 1 || index < replies.length - 1 ? last : undefined);
    }
    if (more === 0) return ending(undefined);
  }
  return ending(last);
}
