import { existsSync } from 'node:fs';
import { type FileHandle, open, truncate } from 'node:fs/promises';
import type { Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ApiRecord } from '../store/apis.ts';
import type { PageOf } from '../store/pages.ts';
import type { Store } from '../store/store.ts';
import type { Said } from './index.ts';
import { apiLine, identityLine, type Kind, keyLine, kinds, permissionLine, roleLine } from './keyLines.ts';
import { type Progress, startProgress } from './progress.ts';
import { requireWorkspace } from './workspaces.ts';

export interface Export {
  workspace: string;
  /** Only this API and its keys; what the keys share (permissions, roles, identities) comes with them. */
  api?: string;
  /** Go on behind the last key of the file. */
  resume?: true;
}

/** Keys a step: a page keeps Redis from others for a few milliseconds. */
const keysAStep = 200;
/** A last line is looked for in so many bytes; a line has far fewer. */
const tailBytes = 4 * 1024 * 1024;

/**
 * Writes what it takes to make the same keys elsewhere, to a file or, as `-`, to standard output. It is read page by page
 * and written as fast as the reader takes it: nothing piles up here. A page is one moment, the whole is not.
 */
export async function exportKeys(store: Store, file: string, { workspace, api, resume }: Export): Promise<Said> {
  await requireWorkspace(store, workspace);
  const apis = (await allApis(store, workspace)).filter(({ id }) => api === undefined || id === api);
  if (api !== undefined && apis.length === 0) throw new Error(`There is no API ${api} in ${workspace}.`);
  const toStdout = file === '-';
  if (toStdout && resume) throw new Error('--resume needs the file to go on with.');

  const counts = Object.fromEntries(kinds.map((kind) => [kind, 0])) as Record<Kind, number>;
  const total = apis.reduce((sum, { keyCount }) => sum + keyCount, 0);
  const output = toStdout ? undefined : await openOutput(file, resume === true);
  const progress = startProgress('export', total);
  try {
    const lines = allLines(store, { workspace, apis, after: output?.lastKeyId, counts, progress });
    const to: Writable = output?.handle.createWriteStream() ?? process.stdout;
    await pipeline(lines, to, { end: !toStdout });
  } finally {
    progress.stop();
  }
  return { words: [`Exported ${countsInWords(counts)}.`], json: counts, aside: toStdout };
}

interface Lines {
  workspace: string;
  apis: readonly ApiRecord[];
  /** Everything up to this key is written already. */
  after: string | undefined;
  counts: Record<Kind, number>;
  progress: Progress;
}

/** The text of the export, a page at a time. The next page is read when this one has been taken. */
async function* allLines(store: Store, { workspace, apis, after, counts, progress }: Lines): AsyncGenerator<string> {
  let lines = 0;
  let passedKeys = 0;
  function page<Item>(kind: Kind, items: readonly Item[], lineOf: (item: Item) => string): string {
    counts[kind] += items.length;
    lines += items.length;
    progress.at(passedKeys + counts.key, lines);
    return items.map(lineOf).join('');
  }

  if (after === undefined) {
    for await (const items of pagesOf((next) => store.permissions.list(workspace, { after: next, count: 500 })))
      yield page('permission', items, permissionLine);
    // A role may have a thousand permissions.
    for await (const items of pagesOf((next) => store.roles.list(workspace, { after: next, count: 20 })))
      yield page('role', items, roleLine);
    for await (const items of pagesOf((next) => store.identities.list(workspace, { after: next, count: keysAStep })))
      yield page('identity', items, identityLine);
  }

  // Both APIs and the keys of one come in order of their ids, so the last key written says where to go on.
  const first = after === undefined ? 0 : apis.findIndex(({ id }) => id.slice(-8) === after.slice(-8));
  if (first < 0) throw new Error(`${after}, the last key of the file, is of none of the APIs asked for.`);
  passedKeys = apis.slice(0, first).reduce((sum, { keyCount }) => sum + keyCount, 0);
  for (const [index, api] of apis.slice(first).entries()) {
    const begun = index === 0 ? after : undefined;
    if (begun === undefined) yield page('api', [api], apiLine);
    const read = async (next: string | undefined) =>
      // An API deleted meanwhile has no keys.
      (await store.keys.export(workspace, { apiId: api.id, after: next, count: keysAStep })) ?? nothing;
    for await (const items of pagesOf(read, begun)) yield page('key', items, keyLine);
  }
}

const nothing = { items: [], next: undefined };

async function* pagesOf<Item>(
  read: (next: string | undefined) => Promise<PageOf<Item>>,
  after?: string | undefined,
): AsyncGenerator<Item[]> {
  let next = after;
  do {
    const found = await read(next);
    yield found.items;
    next = found.next;
  } while (next !== undefined);
}

async function allApis(store: Store, workspace: string): Promise<ApiRecord[]> {
  const all: ApiRecord[] = [];
  for (let more = true; more; ) {
    const found = await store.apis.list(workspace, { after: all.at(-1)?.id, count: 500 });
    all.push(...found.apis);
    more = found.more;
  }
  return all;
}

interface Output {
  handle: FileHandle;
  lastKeyId?: string | undefined;
}

/** A new file that only its owner may read, or one to go on with: behind its last whole line, if that is a key. */
async function openOutput(file: string, resume: boolean): Promise<Output> {
  if (!resume || !existsSync(file)) {
    const handle = await open(file, 'wx', 0o600).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
      throw new Error(`${file} exists. --resume goes on behind its last key; without it the file must be a new one.`);
    });
    return { handle };
  }
  const { lastLine, end } = await lastWholeLine(file);
  const { kind, keyId } = readExported(lastLine);
  if (!kinds.includes(kind as Kind)) throw new Error(`${file} does not end with a line of an export: remove it.`);
  // What comes before the keys is written again as a whole.
  await truncate(file, keyId === undefined ? 0 : end);
  return { handle: await open(file, 'a'), lastKeyId: keyId };
}

/** The last line that ends with a line feed, and where that is: what follows was cut off. */
async function lastWholeLine(file: string): Promise<{ lastLine: string; end: number }> {
  const handle = await open(file, 'r');
  try {
    const { size } = await handle.stat();
    const from = Math.max(0, size - tailBytes);
    const tail = Buffer.alloc(size - from);
    await handle.read(tail, 0, tail.length, from);
    const end = tail.lastIndexOf('\n');
    const start = end <= 0 ? 0 : tail.lastIndexOf('\n', end - 1) + 1;
    return { lastLine: tail.toString('utf8', start, Math.max(end, 0)), end: from + end + 1 };
  } finally {
    await handle.close();
  }
}

function readExported(text: string): { kind?: string; keyId?: string } {
  try {
    return JSON.parse(text) as { kind?: string; keyId?: string };
  } catch {
    return {};
  }
}

const names: Record<Kind, [one: string, many: string]> = {
  permission: ['permission', 'permissions'],
  role: ['role', 'roles'],
  api: ['API', 'APIs'],
  identity: ['identity', 'identities'],
  key: ['key', 'keys'],
};

/** `1,000 keys, 1 API, 2 identities`; the keys come first, and are named even when there is none. */
export function countsInWords(counts: Record<Kind, number>): string {
  const named = [...kinds].reverse().filter((kind) => kind === 'key' || counts[kind] > 0);
  return named
    .map((kind) => `${counts[kind].toLocaleString('en')} ${names[kind][counts[kind] === 1 ? 0 : 1]}`)
    .join(', ');
}
