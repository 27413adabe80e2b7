import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';
import { brokenCursors, readPages } from '../../support/lists.ts';

const { call, ok, clock, send } = harness();
let namespaces = 0;

/** A namespace with this many overrides, in the order of `ids`; every third has a `*`. */
async function withOverrides(count: number, namespace = `listed ${++namespaces}`) {
  const identifiers = Array.from({ length: count }, (_, index) => `${99 - index}${index % 3 === 0 ? '*' : ''}`);
  for (const [index, identifier] of identifiers.entries()) {
    await ok('ratelimits.setOverride', { namespace, identifier, limit: index, duration: 1000 });
    clock.advance(1);
  }
  return { namespace, identifiers };
}

/** The items of a page by the singular path, whose `data` is the list. */
const page = async (input: { namespace: string; limit?: number; cursor?: string }) => {
  const { status, json } = await send('/v2/ratelimit.listOverrides', { body: JSON.stringify(input) });
  return { status, data: json.data as { identifier: string; overrideId: string }[], pagination: json.pagination };
};

describe('ratelimits.listOverrides: 200', () => {
  test('the plural path returns an object, the singular path a bare list', async () => {
    const { namespace, identifiers } = await withOverrides(2);
    const overrides = await Promise.all(
      identifiers.map((identifier) => ok('ratelimits.getOverride', { namespace, identifier })),
    );
    const body = JSON.stringify({ namespace });
    const plural = await send('/v2/ratelimits.listOverrides', { body });
    const singular = await send('/v2/ratelimit.listOverrides', { body });
    expect(plural.json).toEqual({
      meta: expect.anything(),
      data: { overrides },
      pagination: { hasMore: false },
    });
    expect(singular.json).toEqual({ meta: expect.anything(), data: overrides, pagination: { hasMore: false } });
  });

  test('a namespace without overrides has an empty list', async () => {
    await ok('ratelimits.limit', { namespace: 'none', identifier: 'a', limit: 1, duration: 1000 });
    expect(await page({ namespace: 'none' })).toEqual({ status: 200, data: [], pagination: { hasMore: false } });
  });

  test('the default page size is 10', async () => {
    const { namespace, identifiers } = await withOverrides(12);
    const pages = await readPages((at) => page({ namespace, ...at }));
    expect(pages.map((items) => items.length)).toEqual([10, 2]);
    expect(pages.flat().map(({ identifier }) => identifier)).toEqual(identifiers);
    // The last page has the page size, and still no cursor.
    const full = await page({ namespace, limit: 12 });
    expect(full).toMatchObject({ data: { length: 12 }, pagination: { hasMore: false } });
  });

  test('every override that exists throughout is listed exactly once, in order, while others are created, changed and deleted', async () => {
    const { namespace, identifiers } = await withOverrides(20);
    const leaving = identifiers.filter((_, index) => index % 4 === 1);
    const read = await readPages(
      (at) => page({ namespace, limit: 3, ...at }),
      async (pages) => {
        await ok('ratelimits.setOverride', { namespace, identifier: `new ${pages}`, limit: 1, duration: 1000 });
        await ok('ratelimits.setOverride', { namespace, identifier: identifiers[0]!, limit: pages, duration: 1000 });
        const gone = leaving.shift();
        if (gone) await ok('ratelimits.deleteOverride', { namespace, identifier: gone });
        if (pages > 40) throw new Error('no end');
        if (pages > 12) await ok('ratelimits.deleteOverride', { namespace, identifier: `new ${pages}` });
      },
    );
    const seen = read.flat().map(({ identifier }) => identifier);
    expect(new Set(seen).size).toBe(seen.length);
    const stayed = identifiers.filter((_, index) => index % 4 !== 1);
    expect(seen.filter((identifier) => stayed.includes(identifier))).toEqual(stayed);
    const ids = read.flat().map(({ overrideId }) => overrideId);
    expect(ids).toEqual([...ids].sort());
  });

  test('continues after an override that was deleted', async () => {
    const { namespace, identifiers } = await withOverrides(4);
    const { pagination } = await page({ namespace, limit: 2 });
    await ok('ratelimits.deleteOverride', { namespace, identifier: identifiers[1]! });
    const { data } = await page({ namespace, limit: 2, ...pagination, hasMore: undefined } as never);
    expect(data.map(({ identifier }) => identifier)).toEqual(identifiers.slice(2));
  });

  test('a namespace with the longest name has pages', async () => {
    const { namespace, identifiers } = await withOverrides(3, '\u{1f511}'.repeat(512));
    const pages = await readPages((at) => page({ namespace, limit: 1, ...at }));
    expect(pages.flat().map(({ identifier }) => identifier)).toEqual(identifiers);
  });
});

describe('ratelimits.listOverrides: 400', () => {
  test('a cursor of another list', async () => {
    const { namespace } = await withOverrides(2);
    const { data, pagination } = await page({ namespace, limit: 1 });
    const other = await withOverrides(1);
    const asked = brokenCursors(pagination.cursor, data[0]!.overrideId).map((cursor) => ({ namespace, cursor }));
    for (const input of [...asked, { namespace: other.namespace, cursor: pagination.cursor }]) {
      const refused = await call('ratelimits.listOverrides', input);
      expect(refused, input.cursor).toMatchObject({ status: 400, code: 'invalid_input' });
    }
  });

  test.each([{ limit: 0 }, { limit: 101 }, { limit: 1.5 }, { namespace: '' }])('%j', async (wrong) => {
    const refused = await call('ratelimits.listOverrides', { namespace: 'a', ...wrong });
    expect(refused).toMatchObject({ status: 400, code: 'invalid_input' });
  });
});
