import type { Store } from '../store/store.ts';
import type { Workspace } from '../store/workspaces.ts';
import type { Said } from './index.ts';

export async function createWorkspace(store: Store, name: string): Promise<Said> {
  if (name.trim() === '' || name.length > 255) throw new Error('A workspace name has 1 to 255 characters.');
  const workspace = await store.workspaces.create(name);
  return { words: [`Created workspace ${workspace.workspaceId}.`], json: workspace };
}

export async function listWorkspaces(store: Store): Promise<Said> {
  const workspaces: (Workspace & { records: number })[] = [];
  for (const workspace of await store.workspaces.list()) {
    workspaces.push({ ...workspace, records: await store.sweep.count(workspace.workspaceId) });
  }
  const lines = workspaces.map(
    ({ workspaceId, name, createdAt, records }) =>
      `${workspaceId}  ${day(createdAt)}  ${name}  ${records.toLocaleString('en')} records`,
  );
  return { words: lines.length > 0 ? lines : ['There is no workspace.'], json: workspaces };
}

const day = (ms: number) => new Date(ms).toISOString().slice(0, 10);

/** A mistyped id must not make a root key that belongs to nothing. */
export async function requireWorkspace(store: Store, workspaceId: string) {
  if (await store.workspaces.exists(workspaceId)) return;
  throw new Error(`There is no workspace ${workspaceId}. \`tollgate workspace list\` shows them.`);
}
