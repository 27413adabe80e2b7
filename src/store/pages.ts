// Pages of lists that can be searched. There is no text index: a search reads the list in steps until the page is full, the list
// ends, or it has read `itemsMax` items. The caller continues with the cursor.

export interface PageOf<Item> {
  items: Item[];
  /** The id after which the next page begins; undefined at the end of the list. */
  next: string | undefined;
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
): Promise<PageOf<Item>> {
  if (search === undefined) {
    const { items, more } = await read(after, count);
    return { items, next: more ? items.at(-1)?.id : undefined };
  }
  const wanted = search.toLowerCase();
  const found: Item[] = [];
  let last = after;
  for (let readCount = 0; readCount < itemsMax; readCount += stepMax) {
    const { items, more } = await read(last, stepMax);
    for (const [index, item] of items.entries()) {
      last = item.id;
      const texts = [item.id, item.name, item.slug ?? '', item.description ?? ''];
      if (texts.some((text) => text.toLowerCase().includes(wanted))) found.push(item);
      if (found.length === count) return { items: found, next: more || index < items.length - 1 ? last : undefined };
    }
    if (!more) return { items: found, next: undefined };
  }
  return { items: found, next: last };
}
