// Sums of many groups, of which the largest are returned.

import { tooLong, type UsageCount } from './query.ts';

interface Ranked {
  fields: Partial<Record<'apiId' | 'keyId' | 'externalId' | 'planId' | 'tag' | 'namespace' | 'identifier', string>>;
  count: number;
  refused: number;
  spentCredits?: number;
}

/** The number to rank by. */
export type RankedBy = 'count' | 'refused' | 'spentCredits';
export type TopRow = Ranked['fields'] & Omit<Ranked, 'fields'>;
/** A row: `planId` is the plan now. */
export type Planned = Pick<TopRow, 'keyId' | 'externalId' | 'planId'>;

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

  /** The sums of the plans of identities. */
  static byPlan(identities: readonly TopRow[]): Ranking {
    const ranking = new Ranking();
    for (const { planId, count, refused, spentCredits = 0 } of identities) {
      if (planId === undefined) continue;
      const row = ranking.rowOf(planId, { planId });
      row.count += count;
      row.refused += refused;
      row.spentCredits = (row.spentCredits ?? 0) + spentCredits;
    }
    return ranking;
  }

  /** The largest by a number. */
  top(limit: number, by: RankedBy): TopRow[] {
    const largest = new Largest<Ranked>(limit);
    for (const [name, row] of this.#rows) largest.add(name, row[by] ?? 0, row);
    return largest.cut().entries.map(({ row: { fields, ...numbers } }) => ({ ...fields, ...numbers }));
  }
}

/** A sum, or a bound of one. */
export interface Place {
  name: string;
  sum: number;
}
/** The order of a ranking: the largest first, and those of the same sum by their names. */
export const order = (a: Place, b: Place): number => b.sum - a.sum || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);

/** Entries that are added before all are sorted again: few, because sorting a sorted list takes little time. */
const unsortedMax = 250;

/** The largest entries of many, except those with 0. */
export class Largest<Row> {
  /** Sorted after `cut`. */
  readonly entries: (Place & { row: Row })[] = [];
  /** No omitted entry precedes it. */
  bound: Place = { name: '', sum: 0 };
  readonly #max: number;

  constructor(max: number) {
    this.#max = max;
  }

  add(name: string, sum: number, row: Row) {
    if (sum === 0 || sum < this.bound.sum || (sum === this.bound.sum && name > this.bound.name)) return;
    this.entries.push({ name, sum, row });
    if (this.entries.length >= this.#max + unsortedMax) this.cut();
  }

  cut(): this {
    this.entries.sort(order);
    const [first] = this.entries.splice(this.#max);
    if (first && order(first, this.bound) < 0) this.bound = first;
    return this;
  }
}

/** The group of a verification in a ranking; '' for verifications without one. */
const rankedAs = {
  keys: ({ apiId, keyId = '' }: UsageCount) => ({ name: keyId, fields: { apiId, keyId } }),
  identities: ({ externalId = '' }: UsageCount) => ({ name: externalId, fields: { externalId } }),
  /** By identity: their plans are read when all is counted. */
  plans: ({ externalId = '' }: UsageCount) => ({ name: externalId, fields: { externalId } }),
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
