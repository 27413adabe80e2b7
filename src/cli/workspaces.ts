import { cliActor } from '../records/rootKeys.ts';
import type { Workspace } from '../records/workspaces.ts';
import type { Store } from '../store.ts';
import type { CommandResult } from './result.ts';

/** Workspaces that an error lists. */
const namedMax = 20;

export async function createWorkspace(store: Store, name: string): Promise<CommandResult> {
  if (name.trim() === '' || name.length > 255) throw new Error('A workspace name must have 1 to 255 characters.');
  const workspace = await store.workspaces.create(name);
  return { lines: [`Created workspace ${workspace.workspaceId}.`], json: workspace };
}

export async function listWorkspaces(store: Store): Promise<CommandResult> {
  const workspaces: (Workspace & { records: number; importing?: true })[] = [];
  for (const { isImporting, ...workspace } of await store.workspaces.list()) {
    const records = await store.sweep.count(workspace.workspaceId);
    workspaces.push({ ...workspace, records, ...(isImporting && { importing: true }) });
  }
  const lines = workspaces.map(
    ({ workspaceId, name, createdAt, records, importing }) =>
      `${workspaceId}  ${day(createdAt)}  ${name}  ${records.toLocaleString('en')} records` +
      `${importing ? '  import not finished' : ''}`,
  );
  return { lines: lines.length > 0 ? lines : ['There are no workspaces.'], json: workspaces };
}

/** Ends an import that was interrupted: keeps what it created, or removes the workspace. */
export async function endImport(
  store: Store,
  workspaceId: string,
  { discard }: { discard?: true },
): Promise<CommandResult> {
  const { workspaces } = store;
  if (!(await workspaces.isImporting(workspaceId))) {
    await requireWorkspace(store, workspaceId);
    throw new Error(`No import of ${workspaceId} was interrupted: it is complete, or was ended.`);
  }
  if (discard) await workspaces.discardImport(workspaceId);
  else await workspaces.endImport(workspaceId, [], { ...cliActor, operation: 'cli.import' });
  const done = discard ? `Removed ${workspaceId}` : `Kept what the import has created in ${workspaceId}`;
  return { lines: [`${done}.`], json: { workspaceId, discarded: discard === true } };
}

const day = (ms: number) => new Date(ms).toISOString().slice(0, 10);

/** The workspace of a command: the one that its option names, or the only one. */
export async function workspaceOf(store: Store, given: string | undefined): Promise<string> {
  if (given !== undefined) return given;
  const all = await store.workspaces.list();
  const [first, second] = all;
  if (!first) throw new Error('There is no workspace. `tollgate workspace create <name>` creates one.');
  if (!second) return first.workspaceId;
  const named = all.slice(0, namedMax).map(({ workspaceId, name }) => `\n  ${workspaceId}  ${name}`);
  const more = all.length > namedMax ? '\n  … `tollgate workspace list` prints all of them.' : '';
  throw new Error(`There are ${all.length} workspaces. Name one with --workspace:${named.join('')}${more}`);
}

/** Rejects a mistyped id, which would otherwise create a root key of a workspace that does not exist. */
export async function requireWorkspace(store: Store, workspaceId: string) {
  if (await store.workspaces.exists(workspaceId)) return;
  const error = new Error(`There is no workspace ${workspaceId}. \`tollgate workspace list\` prints all of them.`);
  throw Object.assign(error, { status: 404 });
}
