// Sums of many groups, of which the largest are returned.

import { tooLong, type UsageCount } from './query.ts';

interface Ranked {
  fields: Partial<Record<'apiId' | 'keyId' | 'externalId' | 'tag' | 'namespace' | 'identifier', string>>;
  count: number;
  refused: number;
  spentCredits?: number;
}

/** The number to rank by. */
export type RankedBy = 'count' | 'refused' | 'spentCredits';
export type TopRow = Ranked['fields'] & Omit<Ranked, 'fields'>;

/** Bounds of the groups that are in memory. Names and tags may have kilobytes. */
const groupsMax = 250_000;
const namesMax = 64 * 2 ** 20;

export class Ranking {
  readonly #rows = new Map<string, Ranked>();
  #nameLength = 0;

  rowOf(name: string, fields: Ranked['fields']): Ranked {
    let row = this.#rows.get(name);
    if (!row) {
      this.#nameLength += name.length;
      if (this.#rows.size >= groupsMax) throw tooLong('250 000 groups');
      if (this.#nameLength > namesMax) throw tooLong('64 MB of names');
      row = { fields, count: 0, refused: 0 };
      this.#rows.set(name, row);
    }
    return row;
  }

  [Symbol.iterator](): IterableIterator<[name: string, row: Ranked]> {
    return this.#rows.entries();
  }

  /** The largest first, and those of the same number by their names. */
  top(limit: number, by: RankedBy): TopRow[] {
    const sizeOf = ([, row]: [string, Ranked]) => row[by] ?? 0;
    const order = (a: [string, Ranked], b: [string, Ranked]) => sizeOf(b) - sizeOf(a) || (a[0] < b[0] ? -1 : 1);
    const top: [string, Ranked][] = [];
    for (const entry of this.#rows) {
      if (sizeOf(entry) === 0 || (top.length === limit && order(entry, top[limit - 1]!) > 0)) continue;
      top.splice(placeOf(entry, top, order), 0, entry);
      if (top.length > limit) top.pop();
    }
    return top.map(([, { fields, ...numbers }]) => ({ ...fields, ...numbers }));
  }
}

/** What a verification is ranked as; '' for verifications without it. */
const rankedAs = {
  keys: ({ apiId, keyId = '' }: UsageCount) => ({ name: keyId, fields: { apiId, keyId } }),
  identities: ({ externalId = '' }: UsageCount) => ({ name: externalId, fields: { externalId } }),
  apis: ({ apiId }: UsageCount) => ({ name: apiId, fields: { apiId } }),
  tags: ({ tag = '' }: UsageCount) => ({ name: tag, fields: { tag } }),
};
export type RankedVerifications = keyof typeof rankedAs;

/** Adds a count of verifications to the sums of its group. */
export function addUsage(ranking: Ranking, of: RankedVerifications, usage: UsageCount) {
  const { name, fields } = rankedAs[of](usage);
  if (name !== '') addTo(ranking.rowOf(name, fields), usage);
}

export function addTo(row: TopRow, usage: UsageCount) {
  row.count += usage.count;
  if (usage.outcome !== 'VALID') row.refused += usage.count;
  row.spentCredits = (row.spentCredits ?? 0) + usage.spentCredits;
}

function placeOf<Item>(item: Item, sorted: readonly Item[], order: (a: Item, b: Item) => number): number {
  const at = sorted.findIndex((other) => order(item, other) < 0);
  return at === -1 ? sorted.length : at;
}
