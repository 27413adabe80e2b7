// Tables as CSV files. A list is read from its beginning to its end, however many of its rows are displayed.

import { useEffect, useRef, useState } from 'preact/hooks';
import { csvRows } from '../../domain/csv.ts';
import type { Failure, Page } from '../api.ts';
import { count, download } from '../format.ts';
import { type Paged, pagesOf } from '../pages.ts';
import { Button, Problem } from './basic.tsx';
import { Dialog } from './dialog.tsx';

/** A sheet of the usual programs has 1,048,576 rows. */
const rowsMax = 1_000_000;
/** Rows of a request. */
const pageMax = 100;
/** Text that is joined to a Blob, which the browser may keep on the disk. */
const blobChars = 4_000_000;
/** A file that takes no longer is saved without a dialog. */
const quickMs = 400;

interface Column<T> {
  name: string;
  csv?: (row: T) => string | number | undefined;
}

/** A file that is being written, with bounded memory. */
class File<T> {
  rows = 0;
  readonly #columns: readonly Column<T>[];
  readonly #blobs: Blob[] = [];
  #texts: string[] = [];
  #chars = 0;

  constructor(columns: readonly Column<T>[]) {
    this.#columns = columns.filter(({ csv }) => csv);
    this.#write([this.#columns.map(({ name }) => name)]);
  }

  add(rows: readonly T[]) {
    const some = rows.slice(0, rowsMax - this.rows);
    if (some.length > 0) this.#write(some.map((row) => this.#columns.map(({ csv }) => csv!(row))));
    this.rows += some.length;
  }

  #write(rows: readonly (readonly unknown[])[]) {
    const text = `${csvRows(rows)}\r\n`;
    this.#texts.push(text);
    this.#chars += text.length;
    if (this.#chars < blobChars) return;
    this.#blobs.push(new Blob(this.#texts));
    this.#texts = [];
    this.#chars = 0;
  }

  save(name: string) {
    download(`${name}.csv`, new Blob([...this.#blobs, ...this.#texts], { type: 'text/csv' }));
  }
}

type Read<T> = (after?: string) => AsyncGenerator<Omit<Page<T[]>, 'askedAt'>>;

interface CsvProps<T> {
  name: string;
  columns: readonly Column<T>[];
  /** The displayed rows. */
  rows?: readonly T[] | undefined;
  /** The list to export: all of its pages. */
  of?: Paged<T>;
  /** Reads the rows of the file if it has more than the displayed ones. */
  read?: Read<T>;
  /** Reads what cells need before the first row. */
  prepare?: () => Promise<void>;
}

/** The rows as a file. */
export function CsvButton<T>(props: CsvProps<T>) {
  const { name, columns, of, rows = of?.rows ?? [], prepare } = props;
  const [isSaving, setSaving] = useState(false);
  const ofList: Read<T> = (after) => pagesOf<T>(of!.operation, { ...of!.input, limit: pageMax }, after);
  const read = props.read ?? (of && (prepare || of.hasMore) ? ofList : undefined);
  const save = () => {
    if (read) return setSaving(true);
    const file = new File(columns);
    file.add(rows);
    file.save(name);
  };
  return (
    <>
      <Button onClick={save} disabled={rows.length === 0 && !of?.hasMore}>
        CSV
      </Button>
      {isSaving && read && <Saving {...props} read={read} close={() => setSaving(false)} />}
    </>
  );
}

/** Reads a list into a file. */
function Saving<T>(props: CsvProps<T> & { read: Read<T>; close: () => void }) {
  const { name, columns, prepare, close } = props;
  const [isSlow, setSlow] = useState(false);
  const [failure, setFailure] = useState<Failure>();
  const [isCut, setCut] = useState(false);
  const [progress, setProgress] = useState({ looked: 0, total: undefined as number | undefined });
  // After an error it goes on where it was.
  const [place] = useState(() => ({ file: new File(columns), looked: 0, cursor: undefined as string | undefined }));
  const isLeft = useRef(false);
  const run = async () => {
    setFailure(undefined);
    await prepare?.();
    for await (const page of props.read(place.cursor)) {
      if (isLeft.current) return;
      const { hasMore, cursor, looked, total } = page.pagination ?? {};
      place.file.add(page.data);
      place.looked += looked ?? page.data.length;
      place.cursor = cursor;
      setProgress({ looked: place.looked, total });
      if (place.file.rows < rowsMax || !hasMore) continue;
      place.file.save(name);
      setCut(true);
      return;
    }
    place.file.save(name);
    close();
  };
  const go = () => run().catch((cause) => !isLeft.current && setFailure(cause));
  useEffect(() => {
    const timer = setTimeout(() => setSlow(true), quickMs);
    go();
    return () => {
      isLeft.current = true;
      clearTimeout(timer);
    };
  }, []);
  if (!isSlow && !failure && !isCut) return null;
  const { looked, total } = progress;
  return (
    // Escape does not throw away what was read.
    <Dialog title="Save as CSV">
      <progress aria-label="Read" value={total === undefined ? undefined : looked} max={total} />
      <p>
        {count(place.file.rows)} rows{total !== undefined && `; ${count(looked)} of ${count(total)} were read`}.
      </p>
      {isCut && (
        <p class="notice" role="status">
          The file has the first {count(rowsMax)} rows, as a sheet has few more. A filter or the command line gets
          others.
        </p>
      )}
      <Problem failure={failure} retry={go} />
      <footer class="dialog-foot">
        <Button onClick={close}>{isCut ? 'Close' : 'Stop'}</Button>
      </footer>
    </Dialog>
  );
}
