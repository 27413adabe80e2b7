// Reading a list to its end, page by page, as callers do.

import { expect } from 'vitest';

interface Page<Item> {
  status: number;
  data: Item[];
  pagination: { hasMore: boolean; cursor?: string };
}

/** All pages, one after the other; `between` runs after each, with the number of pages read so far. */
export async function readPages<Item>(
  read: (at: { cursor?: string }) => Promise<Page<Item>>,
  between: (pages: number) => Promise<unknown> = async () => {},
): Promise<Item[][]> {
  const pages: Item[][] = [];
  let cursor: string | undefined;
  do {
    const { status, data, pagination } = await read(cursor === undefined ? {} : { cursor });
    expect(status).toBe(200);
    expect(pagination.hasMore).toBe(pagination.cursor !== undefined);
    pages.push(data);
    cursor = pagination.cursor;
    await between(pages.length);
  } while (cursor !== undefined);
  return pages;
}

/** Invalid cursors: changed versions of `cursor`, and ones that a caller might construct. */
export function brokenCursors(cursor: string, id: string): string[] {
  const encoded = (text: string) => Buffer.from(text).toString('base64url');
  const list = Buffer.from(cursor, 'base64url').toString().split(' ')[0]!;
  const broken = ['x', '!!!', id, `${cursor}x`, `${cursor}=`, ` ${cursor}`, cursor.slice(1), cursor.slice(0, -2)];
  const guessed = [list, `${list} `, `${list} x`, `${list} ${id} more`, `${list} ${id}\0`, `other ${id}`];
  return [...broken, ...guessed.map(encoded)];
}
