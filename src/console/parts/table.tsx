// Tables: columns with their cells, and pages by cursor.

import type { ComponentChildren } from 'preact';
import type { Shared } from '../../domain/columns.ts';
import { useAddress } from '../address.ts';
import { count, isoOf } from '../format.ts';
import type { Paged } from '../pages.ts';
import { sumOf } from '../period.ts';
import { Button, Count, Problem, Time, Waiting } from './basic.tsx';

export type Order = 'asc' | 'desc';
/** The order of a list by a column, if it is sorted by it, and a function that sorts it. */
export interface Sort {
  order: Order | undefined;
  set: (order: Order) => void;
}
/** By the names of columns. Only the store sorts, so these are the columns that it can sort by. */
export type Sorts = Record<string, Sort>;

/** The order of creation of a list, newest first, in the address. `column` has the time. */
export function useOrder(column: string): { order: Order; sorts: Sorts } {
  const [address, set] = useAddress({ order: 'desc', pages: '' });
  const order = address.order === 'asc' ? 'asc' : 'desc';
  return { order, sorts: { [column]: { order, set: (to) => set({ order: to, pages: '' }) } } };
}

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  /** The cell in a CSV file; without it the column is not in the file. */
  csv?: (row: T) => string | number | undefined;
  /** Right-aligned. */
  isNumber?: boolean;
  /** Sentences, which wrap. */
  isText?: boolean;
  /** The heading is for screen readers only. */
  isMark?: boolean;
  /** A control in the heading. */
  head?: ComponentChildren;
  /** Left out on narrow screens. */
  isWide?: boolean;
  /** In the CSV file only. */
  isCsvOnly?: boolean;
}

/** A column of one value of each row, from which its cell and its text in a file follow. `more` overrides them. */
export function column<Row>(
  name: string,
  kind: Shared<Row>['kind'],
  value: Shared<Row>['value'],
  more: Partial<Column<Row>> = {},
): Column<Row> {
  const cell = (row: Row): ComponentChildren => {
    const content = value(row, Date.now());
    if (kind === 'time') return <Time ms={content as number | undefined} />;
    return kind === 'count' && content !== undefined ? <Count value={content as number} /> : content;
  };
  const csv = (row: Row) => {
    const content = value(row, Date.now());
    return kind === 'time' ? isoOf(content as number | undefined) : content;
  };
  return { name, cell, csv, isNumber: kind === 'count', ...more };
}

/** A column that the command line displays, too. `more` has the properties for the console only. */
export const shared = <
  Columns extends Record<string, Shared<never>>,
  Name extends keyof Columns & string,
  Row extends Parameters<Columns[Name]['value']>[0] = Parameters<Columns[Name]['value']>[0],
>(
  columns: Columns,
  name: Name,
  more: Partial<Column<Row>> = {},
): Column<Row> => column<Row>(name, columns[name]!.kind, columns[name]!.value as Shared<Row>['value'], more);

export function Table<T>(props: {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  idOf: (row: T) => string;
  sorts?: Sorts | undefined;
  /** On a narrow screen each row is a card, with all columns. */
  isCards?: boolean;
}) {
  const { rows, label, idOf, sorts, isCards } = props;
  const columns = props.columns.filter(({ isCsvOnly }) => !isCsvOnly);
  const classOf = ({ isNumber, isWide, isText, isMark }: Column<T>) =>
    `${isNumber ? 'right' : ''} ${isWide ? 'wide' : ''} ${isText ? 'wrap' : ''} ${isMark ? 'mark' : ''}`;
  return (
    // The part that scrolls sideways can be reached by keyboard.
    // biome-ignore lint/a11y/noNoninteractiveTabindex: see above.
    <section class={`table ${isCards ? 'cards' : ''}`} tabIndex={0} aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <Heading key={column.name} of={column} sort={sorts?.[column.name]} class={classOf(column)} />
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={idOf(row)}>
              {columns.map((column) => (
                <td key={column.name} class={classOf(column)} data-name={column.name}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

const ariaSort = { asc: 'ascending', desc: 'descending' } as const;

function Heading<T>(props: { of: Column<T>; sort: Sort | undefined; class: string }) {
  const { of, sort } = props;
  const { name, head } = of;
  if (!sort) {
    return (
      <th scope="col" class={props.class}>
        {name}
        {head}
      </th>
    );
  }
  const { order, set } = sort;
  return (
    <th scope="col" class={props.class} aria-sort={order && ariaSort[order]}>
      <button type="button" class="sort" onClick={() => set(order === 'desc' ? 'asc' : 'desc')}>
        {name}
        <span aria-hidden="true">{order ? { asc: '↑', desc: '↓' }[order] : '↕'}</span>
      </button>
    </th>
  );
}

function examinedOf(of: { found: number; looked: number; total: number; isSearching: boolean }): string {
  const [looked, total] = [count(of.looked), count(of.total)];
  if (of.found === of.looked) return `${looked} of ${total}`;
  if (of.isSearching) return `${looked} of ${total} were examined.`;
  return of.found === 0
    ? `${looked} of ${total} were examined, and none matches. “Show more” continues.`
    : `${looked} of ${total} were examined. “Show more” continues.`;
}

/** How many records a search has examined, while it goes on and when it was stopped. */
export function Examined({ of: { rows, pages, hasMore, isSearching } }: { of: Paged<unknown> }) {
  const total = pages.at(-1)?.pagination?.total;
  const looked = sumOf(pages, ({ pagination }) => pagination?.looked ?? 0);
  if (!hasMore || (total !== undefined && looked >= total)) return null;
  if (total === undefined) return isSearching ? <progress aria-label="Searching" /> : null;
  return (
    <div class="examined">
      {isSearching && <progress aria-label="Examined" value={looked} max={total} />}
      <p class="quiet" role={isSearching ? undefined : 'status'}>
        {examinedOf({ found: rows?.length ?? 0, looked, total, isSearching })}
      </p>
    </div>
  );
}

/** A table of a list, with its empty state, its errors and further pages. */
export function List<T>(props: {
  label: string;
  columns: readonly Column<T>[];
  of: Paged<T>;
  idOf: (row: T) => string;
  sorts?: Sorts;
  empty: ComponentChildren;
  lines?: number;
  isCards?: boolean;
}) {
  const { of } = props;
  const { rows, failure, hasMore, isSearching } = of;
  if (!rows) return failure ? <Problem failure={failure} retry={of.reload} /> : <Waiting lines={props.lines ?? 8} />;
  return (
    <>
      {rows.length > 0 ? <Table {...props} rows={rows} /> : !hasMore && props.empty}
      <Examined of={of} />
      <Problem failure={failure} />
      {hasMore && (
        <div class="more">
          {of.isFull && !isSearching ? (
            <p class="quiet">
              {count(rows.length)} rows are displayed. A search or a filter finds others; a file has all.
            </p>
          ) : (
            <Button onClick={isSearching ? of.stop : of.more}>{isSearching ? 'Stop' : 'Show more'}</Button>
          )}
        </div>
      )}
    </>
  );
}
