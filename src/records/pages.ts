// Pages of lists that can be searched. There is no text index: a search reads the list in steps until the page is full,
// the list ends, or it has read `itemsMax` items. The caller continues with the cursor.

import type { Reply } from '../scripts/calls.ts';

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

interface Searchable {
  id: string;
  name: string;
  slug?: string;
  description?: string | null;
}

export interface SearchedPage {
  after?: string | undefined;
  count: number;
  search?: string | undefined;
}

/**
 * A page in order of creation, after the record with the id `after`; only matches of `search` if that is given. `read`
 * runs a script that returns `page_of` (lua/include/pages.lua), and for a page that reports how far it has looked also
 * the number of all records.
 */
export async function searchPages<Item extends Searchable>(
  { after, count, search }: SearchedPage,
  itemOf: (reply: Reply) => Item,
  read: (given: { after: string; count: number }) => Promise<[replies: Reply[], more: 0 | 1, all?: number]>,
): Promise<PageOf<Item> & Partial<LookedPage<Item>>> {
  const wanted = search?.toLowerCase();
  const items: Item[] = [];
  let [last, looked] = [after, 0];
  let total: number | undefined;
  const ending = (next: string | undefined) => ({ items, next, ...(total !== undefined && { looked, total }) });
  while (looked < itemsMax) {
    const step = wanted === undefined ? count : stepMax;
    const [replies, more, all] = await read({ after: last?.slice(last.indexOf('_') + 1) ?? '', count: step });
    total = all;
    for (const [index, reply] of replies.entries()) {
      const item = itemOf(reply);
      last = item.id;
      looked++;
      const texts = [item.id, item.name, item.slug ?? '', item.description ?? ''];
      if (wanted === undefined || texts.some((text) => text.toLowerCase().includes(wanted))) items.push(item);
      if (items.length === count) return ending(more === 1 || index < replies.length - 1 ? last : undefined);
    }
    if (more === 0) return ending(undefined);
  }
  return ending(last);
}
