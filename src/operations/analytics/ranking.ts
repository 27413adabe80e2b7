// Sums of many groups, of which the largest are returned.

import { tooLong } from '../../store/analytics/query.ts';

export interface Ranked {
  fields: Partial<Record<'apiId' | 'keyId' | 'externalId' | 'tag' | 'namespace' | 'identifier', string>>;
  count: number;
  refused: number;
  spentCredits?: number;
}

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

  /** The largest first, and those of the same number by their names. */
  top(limit: number, by: 'count' | 'refused' | 'spentCredits') {
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

function placeOf<Item>(item: Item, sorted: readonly Item[], order: (a: Item, b: Item) => number): number {
  const at = sorted.findIndex((other) => order(item, other) < 0);
  return at === -1 ? sorted.length : at;
}
