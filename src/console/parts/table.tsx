// Tables: columns with their cells, and pages by cursor.

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { csvOf } from '../../domain/csv.ts';
import { callPage, type Data, type Failure, type Page, useData } from '../api.ts';
import { count, download } from '../format.ts';
import { Button, Problem, Waiting } from './basic.tsx';

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  /** Of the cell in a CSV file; without it the column is not in the file. */
  csv?: (row: T) => string | number | undefined;
  /** Right-aligned. */
  isNumber?: boolean;
  /** Sentences, which wrap. */
  isText?: boolean;
  /** Left out on narrow screens. */
  isWide?: boolean;
  /** In the CSV file only. */
  isCsvOnly?: boolean;
}

export function Table<T>(props: {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  idOf: (row: T) => string;
  /** On a narrow screen each row is a card, with all columns. */
  isCards?: boolean;
}) {
  const { rows, label, idOf, isCards } = props;
  const columns = props.columns.filter(({ isCsvOnly }) => !isCsvOnly);
  const classOf = ({ isNumber, isWide, isText }: Column<T>) =>
    `${isNumber ? 'right' : ''} ${isWide ? 'wide' : ''} ${isText ? 'wrap' : ''}`;
  return (
    // The part that scrolls sideways can be reached by keyboard.
    // biome-ignore lint/a11y/noNoninteractiveTabindex: see above.
    <section class={`table ${isCards ? 'cards' : ''}`} tabIndex={0} aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.name} scope="col" class={classOf(column)}>
                {column.name}
              </th>
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

/** The rows as a file. */
export function CsvButton<T>(props: { name: string; columns: readonly Column<T>[]; rows: readonly T[] }) {
  const columns = props.columns.filter(({ csv }) => csv);
  const save = () => {
    const names = columns.map(({ name }) => name);
    const rows = props.rows.map((row) => columns.map(({ csv }) => csv!(row)));
    download(`${props.name}.csv`, csvOf(names, rows));
  };
  return (
    <Button onClick={save} disabled={props.rows.length === 0}>
      CSV
    </Button>
  );
}

interface Paged<T> {
  rows: readonly T[] | undefined;
  failure: Failure | undefined;
  hasMore: boolean;
  more: () => Promise<void>;
  reload: () => Promise<void>;
  /** All pages that were loaded. */
  pages: readonly Page<T[]>[];
}

/** The rows of a list, page after page. */
export function usePages<T>(operation: string, input: object | undefined, everyMs = 0): Paged<T> {
  return usePagesAfter(useData<T[]>(operation, input, everyMs), operation, input);
}

/** The rows of a list whose first page is known, page after page. */
export function usePagesAfter<T>(first: Data<T[]>, operation: string, input: object | undefined): Paged<T> {
  const id = JSON.stringify(input);
  const [others, setOthers] = useState<{ id: string; pages: readonly Page<T[]>[] } | undefined>();
  const [failure, setFailure] = useState<Failure>();
  useEffect(() => setOthers(undefined), [id]);
  const later = others?.id === id ? others.pages : [];
  const pages = first.data ? [{ data: first.data, pagination: first.pagination }, ...later] : [];
  const pagination = pages.at(-1)?.pagination;
  const more = async () => {
    try {
      const page = await callPage<T[]>(operation, { ...input, cursor: pagination?.cursor });
      setFailure(undefined);
      setOthers({ id, pages: [...later, page] });
    } catch (cause) {
      setFailure(cause as Failure);
    }
  };
  return {
    rows: first.data && pages.flatMap(({ data }) => data),
    failure: first.failure ?? failure,
    hasMore: pagination?.hasMore ?? false,
    more,
    reload: first.reload,
    pages,
  };
}

/** The number of records that a search has examined, if it has not examined all. */
function Looked({ page }: { page: Page<unknown> | undefined }) {
  const { looked, total, hasMore } = page?.pagination ?? {};
  if (!hasMore || looked === undefined || total === undefined || looked >= total) return null;
  return (
    <p class="quiet" role="status">
      {count(looked)} of {count(total)} were examined. “Show more” continues.
    </p>
  );
}

/** A table of a list, with its empty state, its errors and further pages. */
export function List<T>(props: {
  label: string;
  columns: readonly Column<T>[];
  of: Paged<T>;
  idOf: (row: T) => string;
  empty: ComponentChildren;
  lines?: number;
  isCards?: boolean;
}) {
  const { rows, failure, hasMore, more, reload, pages } = props.of;
  if (!rows) return failure ? <Problem failure={failure} retry={reload} /> : <Waiting lines={props.lines ?? 8} />;
  return (
    <>
      {rows.length > 0 ? <Table {...props} rows={rows} /> : !hasMore && props.empty}
      <Looked page={pages.at(-1)} />
      <Problem failure={failure} />
      {hasMore && (
        <div class="more">
          <Button onClick={more}>Show more</Button>
        </div>
      )}
    </>
  );
}
