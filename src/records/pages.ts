// Pages of lists that can be searched. There is no text index: a search reads the list in steps until the page is full,
// the list ends, or it has read `itemsMax` items. The caller continues with the cursor.

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

export async function searchPages<Item extends Searchable>(
  { after, count, search }: { after?: string | undefined; count: number; search?: string | undefined },
  read: (after: string | undefined, count: number) => Promise<{ items: Item[]; more: boolean }>,
): Promise<PageOf<Item> & { looked: number }> {
  if (search === undefined) {
    const { items, more } = await read(after, count);
    return { items, next: more ? items.at(-1)?.id : undefined, looked: items.length };
  }
  const wanted = search.toLowerCase();
  const found: Item[] = [];
  let last = after;
  let looked = 0;
  while (looked < itemsMax) {
    const { items, more } = await read(last, stepMax);
    for (const [index, item] of items.entries()) {
      last = item.id;
      looked++;
      const texts = [item.id, item.name, item.slug ?? '', item.description ?? ''];
      if (texts.some((text) => text.toLowerCase().includes(wanted))) found.push(item);
      if (found.length === count)
        return { items: found, next: more || index < items.length - 1 ? last : undefined, looked };
    }
    if (!more) return { items: found, next: undefined, looked };
  }
  return { items: found, next: last, looked };
}
