// Reading a list to its end, page by page, as callers do, and what every list of records promises.

import { describe, expect, test } from 'vitest';
import { testIf } from './testIf.ts';

interface Page<Item> {
  status: number;
  data: Item[];
  pagination: { hasMore: boolean; cursor?: string };
}

interface Answer<Item> extends Page<Item> {
  code?: string;
  error: { errors?: object[] };
}

/** A list of records. Each record has a text that no other one has, such as its name. */
interface ListUnderTest<Item extends { id: string }> {
  list(input?: { limit?: number; cursor?: string; search?: string }): Promise<Answer<Item>>;
  textOf(item: Item): string;
  /** Creates records in several milliseconds, and returns their texts in order of creation. */
  create(count: number, prefix?: string): Promise<string[]>;
  delete(text: string): Promise<unknown>;
  /** The same list in another workspace. */
  listElsewhere(): Promise<Answer<Item>>;
  /** A cursor of the list of other records. */
  cursorOfAnother(): Promise<string>;
  hasNoSearch?: true;
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

/** The promises of every list of records: pages, sizes, cursors, and that no change of others disturbs a reader. */
export function testList<Item extends { id: string }>(name: string, of: ListUnderTest<Item>) {
  const readAll = async (input: { limit?: number } = {}, between?: (pages: number) => Promise<unknown>) =>
    (await readPages((at) => of.list({ ...input, ...at }), between)).map((page) => page.map(of.textOf));

  describe(`${name}: as every list`, () => {
    test('it is empty at first', async () => {
      expect(await of.list()).toMatchObject({ status: 200, data: [], pagination: { hasMore: false } });
    });

    test('pages are in order of creation, for any page size', async () => {
      const texts = await of.create(13);
      for (const limit of [1, 2, 5, 12, 13, 14, 100]) {
        const pages = await readAll({ limit });
        expect(pages.flat()).toEqual(texts);
        expect(pages.map((page) => page.length)).toEqual(
          Array.from({ length: Math.ceil(13 / limit) }, (_, index) => Math.min(limit, 13 - index * limit)),
        );
      }
    });

    test('the default page size is 100', async () => {
      await of.create(101);
      expect((await readAll()).map((page) => page.length)).toEqual([100, 1]);
    });

    test('every item that exists throughout is listed exactly once while others are created and deleted', async () => {
      const texts = await of.create(20);
      const [deleted, created]: [string[], string[]] = [[], []];
      const pages = await readAll({ limit: 4 }, async (page) => {
        // Some before the cursor, the one at the cursor, and some after it.
        for (const index of [page * 4 - 4, page * 4 - 1, page * 4 + 1]) {
          const text = texts[index];
          if (!text) continue;
          await of.delete(text);
          deleted.push(text);
        }
        if (page <= 3) created.push(...(await of.create(2, `late.${page}`)));
      });
      const listed = pages.flat();
      expect(new Set(listed).size).toBe(listed.length);
      const stayed = texts.filter((text) => !deleted.includes(text));
      expect(listed.filter((text) => stayed.includes(text))).toEqual(stayed);
      expect(listed.slice(-created.length)).toEqual(created);
      expect((await readAll()).flat()).toEqual([...stayed, ...created]);
    });

    test('it has this workspace only', async () => {
      await of.create(2);
      expect((await of.listElsewhere()).data).toEqual([]);
    });

    testIf(!of.hasNoSearch)('a search has 1 to 255 characters', async () => {
      expect((await of.list({ search: 'x'.repeat(255) })).status).toBe(200);
      for (const search of ['', 'x'.repeat(256)]) expect((await of.list({ search })).status).toBe(400);
    });

    test('a cursor that is malformed or of another list is 400', async () => {
      await of.create(3);
      const { data, pagination } = await of.list({ limit: 1 });
      for (const cursor of brokenCursors(pagination.cursor!, data[0]!.id)) {
        const answer = await of.list({ cursor });
        expect(answer, cursor).toMatchObject({ status: 400, code: 'invalid_input' });
        expect(answer.error.errors).toEqual([expect.objectContaining({ location: 'body.cursor' })]);
      }
      expect((await of.list({ cursor: await of.cursorOfAnother() })).status).toBe(400);
    });

    test.each([0, 101, -1, 1.5, Number.MAX_SAFE_INTEGER])('the page size %d is 400', async (limit) => {
      const { status, error } = await of.list({ limit });
      expect(status).toBe(400);
      expect(error.errors).toEqual([expect.objectContaining({ location: 'body.limit' })]);
    });
  });
}
