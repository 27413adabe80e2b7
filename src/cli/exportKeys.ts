import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { type FileHandle, open, truncate } from 'node:fs/promises';
import type { Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ApiRecord } from '../records/apis.ts';
import type { WindowIndex } from '../records/windows.ts';
import type { Store } from '../store.ts';
import { version } from '../version.ts';
import { done, ofWorkspaceOnly, pagesOf, type SectionName, sections } from './exportSections.ts';
import { type Counts, fileFormat, formatCounts, type Kind, kinds, kindsOfParts, newCounts } from './lineKinds.ts';
import { type Progress, withProgress } from './progress.ts';
import type { CommandResult } from './result.ts';
import type { Terminal } from './terminal.ts';
import { endLine, headerLine, type Position, positionLine, workspaceLine } from './workspaceLines.ts';
import { requireWorkspace } from './workspaces.ts';

interface Export {
  /** Export this workspace only. */
  workspace?: string;
  /** Export this API and its keys only, with all permissions, roles and identities. */
  api?: string;
  /** Parts to leave out: `root-keys`, `usage`, `audit`. */
  without?: string;
  /** Continue after the last place of the file. */
  resume?: true;
}

/** The last place is searched in parts of the file of this size. A page is shorter. */
const tailBytes = 4 * 1024 * 1024;

/**
 * Exports everything that is stored, or a workspace of it, to a file or, for `-`, to standard output. Pages are read as
 * fast as the output accepts them, so memory stays bounded. A page is consistent, the whole export is not.
 */
export async function exportKeys(
  store: Store,
  { stdout, stderr }: Terminal,
  file: string,
  { workspace, api, without, resume }: Export,
): Promise<CommandResult> {
  const omitted = kindsOfParts('--without', without);
  const workspaces = await workspacesToExport(store, workspace, api);
  const toStdout = file === '-';
  if (toStdout && resume) throw new Error('--resume needs the file to continue.');

  const output = toStdout ? undefined : await openOutput(file, resume === true);
  if (output?.isComplete) {
    await output.handle.close();
    return { lines: [`${file} is complete.`], json: { complete: true } };
  }
  const counts = { ...newCounts(), ...output?.position?.counts };
  const leftOut: string[] = [];
  const total = workspaces.flatMap(({ apis }) => apis).reduce((sum, { keyCount }) => sum + keyCount, 0);
  const run = async (progress: Progress) => {
    const given = { api, omitted, without: without?.split(',').filter(Boolean), position: output?.position };
    const leaveOut = (keyId: string) => void leftOut.push(keyId);
    const lines = allLines(store, workspaces, { ...given, counts, progress, leaveOut });
    const to: Writable = output?.handle.createWriteStream() ?? stdout;
    await pipeline(lines, to, { end: !toStdout });
  };
  try {
    await withProgress(run, stderr, 'export', total);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    // Other errors than those of Redis and of the disk come again.
    if (toStdout || code === undefined) throw error;
    const place = `The export stopped after ${sumOf(counts).toLocaleString('en')} records: ${message}`;
    throw new Error(`${place}${message.endsWith('.') ? '' : '.'} The same command with --resume continues it.`, {
      cause: error,
    });
  }
  const importing = await importingAmong(store, workspaces);
  return {
    lines: [`Exported ${formatCounts(counts)}.`],
    notes: [
      ...importing.map((id) => `The export of ${id} is incomplete, as its import is not finished.`),
      ...leftOut.map((keyId) => `The usage of ${keyId} was left out: it has more than 4 MB.`),
    ],
    json: counts,
    toStderr: toStdout,
    failed: leftOut.length > 0,
  };
}

async function importingAmong(store: Store, workspaces: readonly InExport[]): Promise<string[]> {
  const ids = new Set(workspaces.map(({ workspaceId }) => workspaceId));
  const listed = await store.workspaces.list();
  return listed.flatMap(({ workspaceId, isImporting }) => (isImporting && ids.has(workspaceId) ? workspaceId : []));
}

interface InExport {
  workspaceId: string;
  /** APIs to export. */
  apis: readonly ApiRecord[];
}

async function workspacesToExport(
  store: Store,
  workspace: string | undefined,
  api: string | undefined,
): Promise<InExport[]> {
  if (workspace !== undefined) await requireWorkspace(store, workspace);
  const ids = workspace === undefined ? await store.workspaces.ids() : [workspace];
  if (ids.length === 0) throw new Error('There is no workspace to export.');
  const found: InExport[] = [];
  for (const workspaceId of ids) {
    const apis = (await allApis(store, workspaceId)).filter(({ id }) => api === undefined || id === api);
    if (api === undefined || apis.length > 0) found.push({ workspaceId, apis });
  }
  if (found.length === 0)
    throw new Error(`There is no API ${api}${workspace === undefined ? '' : ` in ${workspace}`}.`);
  return found;
}

interface Lines {
  api: string | undefined;
  omitted: ReadonlySet<Kind>;
  without: string[] | undefined;
  /** Where the export continues. */
  position: Position | undefined;
  counts: Counts;
  progress: Progress;
  leaveOut: (keyId: string) => void;
}

/** Yields the text of the export page by page. */
async function* allLines(
  store: Store,
  workspaces: readonly InExport[],
  { api, omitted, without, position, counts, progress, leaveOut }: Lines,
): AsyncGenerator<string> {
  const names = (Object.keys(sections) as SectionName[]).filter(
    (name) => api === undefined || !ofWorkspaceOnly.includes(name),
  );
  if (!position) yield await header(store, workspaces, { api, without });
  const first = position ? workspaces.findIndex(({ workspaceId }) => workspaceId === position.workspaceId) : 0;
  if (first < 0) throw new Error(`There is no workspace ${position?.workspaceId}, in which the file ends.`);
  const omits = (kind: Kind) => omitted.has(kind);
  let index: Promise<WindowIndex> | undefined;
  const windowIndex = () => {
    index ??= store.windows.index();
    return index;
  };
  let place = position;
  for (const { workspaceId, apis } of workspaces.slice(first)) {
    if (!place) {
      const settings = await store.workspaces.settings(workspaceId);
      const sequence = await store.workspaces.sequenceOf(workspaceId);
      yield workspaceLine({ ...settings, sequence });
      counts.workspace++;
    }
    const begun = place ? names.indexOf(place.section as SectionName) : 0;
    if (begun < 0) throw new Error('The file was begun with other options. Use the same ones, or name a new file.');
    for (const section of names.slice(begun)) {
      const exported = {
        store,
        workspaceId,
        apis,
        omits,
        leaveOut,
        windowIndex: workspaces.length > 1 ? windowIndex : undefined,
      };
      const from = place?.after;
      place = undefined;
      if (from === done) continue;
      for await (const { lines, after } of sections[section](exported, from)) {
        for (const [kind] of lines) counts[kind]++;
        progress.update(counts.key, sumOf(counts));
        const next = positionLine({ workspaceId, section, after, counts: present(counts) });
        yield lines.map(([, text]) => text).join('') + next;
      }
    }
  }
  yield endLine({ counts: present(counts) });
}

const sumOf = (counts: Counts) => Object.values(counts).reduce((sum, count) => sum + count, 0);
const present = (counts: Counts): Partial<Counts> =>
  Object.fromEntries(kinds.filter((kind) => counts[kind] > 0).map((kind) => [kind, counts[kind]]));

async function header(
  store: Store,
  workspaces: readonly InExport[],
  { api, without }: { api: string | undefined; without: string[] | undefined },
): Promise<string> {
  return headerLine({
    format: fileFormat,
    release: version,
    exportId: randomBytes(12).toString('base64url'),
    exportedAt: await store.currentMs(),
    workspaces: workspaces.map(({ workspaceId }) => workspaceId),
    ...(api !== undefined && { api }),
    ...(without && { without }),
  });
}

async function allApis(store: Store, workspace: string): Promise<ApiRecord[]> {
  const all: ApiRecord[] = [];
  for await (const { items } of pagesOf((after) => store.apis.list(workspace, { after, count: 500 })))
    all.push(...items);
  return all;
}

interface Output {
  handle: FileHandle;
  position?: Position | undefined;
  isComplete?: boolean;
}

/** Opens a new file that only its owner can read, or an existing one to continue after its last place. */
async function openOutput(file: string, resume: boolean): Promise<Output> {
  if (!resume || !existsSync(file)) {
    const handle = await open(file, 'wx', 0o600).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
      throw new Error(`${file} exists. Use --resume to continue an export that was interrupted, or name a new file.`);
    });
    return { handle };
  }
  const { kind } = await firstLine(file);
  if (kind !== undefined && kind !== 'header')
    throw new Error(`${file} is no export of this version. Remove it, or name a new file.`);
  const { position, end, isComplete } = await lastPlace(file);
  // If no page was written yet, the export starts over.
  if (!isComplete) await truncate(file, position === undefined ? 0 : end);
  return { handle: await open(file, 'a'), position, isComplete };
}

/** The first line; without a kind if there is no complete one. */
async function firstLine(file: string): Promise<{ kind?: string }> {
  const handle = await open(file, 'r');
  try {
    const { size } = await handle.stat();
    const head = Buffer.alloc(Math.min(size, tailBytes));
    await handle.read(head, 0, head.length, 0);
    const end = head.indexOf('\n');
    return end < 0 && head.toString('latin1', 0, 16) === '{"kind":"header"'.slice(0, head.length)
      ? {}
      : { kind: 'another', ...readLine(head.toString('utf8', 0, Math.max(end, 0))) };
  } finally {
    await handle.close();
  }
}

const positionStart = '{"kind":"position",';

/** Returns the last place of the file where an export can continue, and the offset after its line. */
async function lastPlace(file: string): Promise<{ position?: Position; end: number; isComplete: boolean }> {
  const handle = await open(file, 'r');
  try {
    const { size } = await handle.stat();
    for (let to = size; to > 0; ) {
      const from = Math.max(0, to - tailBytes);
      const part = Buffer.alloc(to - from);
      await handle.read(part, 0, part.length, from);
      if (to === size && readLine(lastLineOf(part)).kind === 'end') return { end: size, isComplete: true };
      for (
        let at = part.lastIndexOf(positionStart);
        at >= 0;
        at = at === 0 ? -1 : part.lastIndexOf(positionStart, at - 1)
      ) {
        const end = part.indexOf('\n', at);
        const { kind, ...position } = end < 0 ? {} : readLine(part.toString('utf8', at, end));
        if (kind === 'position') return { position: position as Position, end: from + end + 1, isComplete: false };
      }
      if (from === 0) break;
      // With the beginning of this part, because a line may be in both.
      to = from + Math.min(65_536, part.length - 1);
    }
    return { end: 0, isComplete: false };
  } finally {
    await handle.close();
  }
}

const lastLineOf = (part: Buffer): string =>
  part.at(-1) === 10 ? part.toString('utf8', part.lastIndexOf(10, part.length - 2) + 1, part.length - 1) : '';

function readLine(text: string): { kind?: string } {
  try {
    return (JSON.parse(text) ?? {}) as { kind?: string };
  } catch {
    return {};
  }
}
