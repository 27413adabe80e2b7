import { existsSync } from 'node:fs';
import { type FileHandle, open, truncate } from 'node:fs/promises';
import type { Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ApiRecord } from '../records/apis.ts';
import type { PageOf } from '../records/pages.ts';
import type { Store } from '../store.ts';
import { apiLine, identityLine, type Kind, keyLine, kinds, permissionLine, roleLine } from './keyLines.ts';
import { type Progress, startProgress } from './progress.ts';
import type { CommandResult } from './result.ts';
import type { Terminal } from './terminal.ts';
import { requireWorkspace } from './workspaces.ts';

interface Export {
  workspace: string;
  /** Export this API and its keys only. Permissions, roles and identities are always exported. */
  api?: string;
  /** Continue after the last key of the file. */
  resume?: true;
}

/** A page of this many keys blocks Redis for a few milliseconds. */
const keysPerPage = 200;
/** The last line is searched in this part of the file; lines are far shorter. */
const tailBytes = 4 * 1024 * 1024;

/**
 * Exports the keys of a workspace and everything they depend on to a file or, for `-`, to standard output. Pages are
 * read as fast as the output accepts them, so memory stays bounded. A page is consistent, the whole export is not.
 */
export async function exportKeys(
  store: Store,
  { stdout, stderr }: Terminal,
  file: string,
  { workspace, api, resume }: Export,
): Promise<CommandResult> {
  await requireWorkspace(store, workspace);
  const apis = (await allApis(store, workspace)).filter(({ id }) => api === undefined || id === api);
  if (api !== undefined && apis.length === 0) throw new Error(`There is no API ${api} in ${workspace}.`);
  const toStdout = file === '-';
  if (toStdout && resume) throw new Error('--resume needs the file to continue.');

  const counts = Object.fromEntries(kinds.map((kind) => [kind, 0])) as Record<Kind, number>;
  const total = apis.reduce((sum, { keyCount }) => sum + keyCount, 0);
  const output = toStdout ? undefined : await openOutput(file, resume === true);
  const progress = startProgress(stderr, 'export', total);
  try {
    const lines = allLines(store, { workspace, apis, after: output?.lastKeyId, counts, progress });
    const to: Writable = output?.handle.createWriteStream() ?? stdout;
    await pipeline(lines, to, { end: !toStdout });
  } finally {
    progress.stop();
  }
  return { lines: [`Exported ${formatCounts(counts)}.`], json: counts, toStderr: toStdout };
}

interface Lines {
  workspace: string;
  apis: readonly ApiRecord[];
  /** The last key that the file already contains. */
  after: string | undefined;
  counts: Record<Kind, number>;
  progress: Progress;
}

/** Yields the text of the export page by page. */
async function* allLines(store: Store, { workspace, apis, after, counts, progress }: Lines): AsyncGenerator<string> {
  let lines = 0;
  let passedKeys = 0;
  function page<Item>(kind: Kind, items: readonly Item[], lineOf: (item: Item) => string): string {
    counts[kind] += items.length;
    lines += items.length;
    progress.update(passedKeys + counts.key, lines);
    return items.map(lineOf).join('');
  }

  if (after === undefined) {
    for await (const items of pagesOf((next) => store.permissions.list(workspace, { after: next, count: 500 })))
      yield page('permission', items, permissionLine);
    // Small pages, as a role may have a thousand permissions.
    for await (const items of pagesOf((next) => store.roles.list(workspace, { after: next, count: 20 })))
      yield page('role', items, roleLine);
    for await (const items of pagesOf((next) => store.identities.list(workspace, { after: next, count: keysPerPage })))
      yield page('identity', items, identityLine);
  }

  // APIs, and the keys of each, are in order of their ids, so the last key determines where to continue.
  const first = after === undefined ? 0 : apis.findIndex(({ id }) => id.slice(-8) === after.slice(-8));
  if (first < 0) throw new Error(`${after}, the last key of the file, belongs to none of the exported APIs.`);
  passedKeys = apis.slice(0, first).reduce((sum, { keyCount }) => sum + keyCount, 0);
  for (const [index, api] of apis.slice(first).entries()) {
    const begun = index === 0 ? after : undefined;
    if (begun === undefined) yield page('api', [api], apiLine);
    const read = async (next: string | undefined) =>
      // Undefined if the API was deleted meanwhile.
      (await store.keys.export(workspace, { apiId: api.id, after: next, count: keysPerPage })) ?? emptyPage;
    for await (const items of pagesOf(read, begun)) yield page('key', items, keyLine);
  }
}

const emptyPage = { items: [], next: undefined };

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
  for await (const apis of pagesOf((after) => store.apis.list(workspace, { after, count: 500 }))) all.push(...apis);
  return all;
}

interface Output {
  handle: FileHandle;
  lastKeyId?: string | undefined;
}

/** Opens a new file that only its owner can read, or an existing one to continue after its last complete line. */
async function openOutput(file: string, resume: boolean): Promise<Output> {
  if (!resume || !existsSync(file)) {
    const handle = await open(file, 'wx', 0o600).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
      throw new Error(`${file} exists. Use --resume to continue after its last key, or name a new file.`);
    });
    return { handle };
  }
  const { lastLine, end } = await lastWholeLine(file);
  const { kind, keyId } = readExported(lastLine);
  if (!kinds.includes(kind as Kind)) throw new Error(`${file} does not end with a line of an export. Remove it.`);
  // If no key was written yet, the export starts over.
  await truncate(file, keyId === undefined ? 0 : end);
  return { handle: await open(file, 'a'), lastKeyId: keyId };
}

/** Returns the last line that ends with a line feed, and the offset after it. What follows is an incomplete line. */
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

/** Formats counts as `1,000 keys, 1 API, 2 identities`. Keys come first, even if there are none. */
export function formatCounts(counts: Record<Kind, number>): string {
  const named = [...kinds].reverse().filter((kind) => kind === 'key' || counts[kind] > 0);
  return named
    .map((kind) => `${counts[kind].toLocaleString('en')} ${names[kind][counts[kind] === 1 ? 0 : 1]}`)
    .join(', ');
}
