// Servers of an earlier release, built from a commit of this repository: for stored data as that release writes it.

import { type ChildProcess, fork, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, renameSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { atEnd } from './processes.ts';

/** By data version: the last commit whose servers do not read the next one. */
export const lastCommits: Readonly<Record<number, string>> = {
  4: '28bf63b',
  5: 'ec3e59b',
  6: 'b0347cf7',
  7: 'a933c47',
};

const root = fileURLToPath(new URL('../..', import.meta.url));
const program = fileURLToPath(new URL('./earlierServer.mjs', import.meta.url));
/** Built releases are kept between runs. */
const builtIn = join(tmpdir(), 'tollgate-test-releases');

/**
 * The folder of a built release; undefined where the history lacks the commit, as in an archive or a shallow clone, or
 * the packages cannot be installed.
 */
export function earlierRelease(commit: string): string | undefined {
  const folder = join(builtIn, commit);
  if (existsSync(join(folder, 'dist', '.built'))) return folder;
  const found = spawnSync('git', ['cat-file', '-e', `${commit}^{commit}`], { cwd: root });
  if (found.status !== 0) return undefined;
  mkdirSync(builtIn, { recursive: true });
  const building = mkdtempSync(join(builtIn, 'building-'));
  const script = `git archive ${commit} | tar x -C ${building} && cd ${building} && node bin/tollgate.mjs --version`;
  const built = spawnSync('sh', ['-ec', script], { cwd: root, encoding: 'utf8' });
  if (built.status !== 0) return undefined;
  // Another process may have been first.
  if (!existsSync(folder)) renameSync(building, folder);
  return folder;
}

interface Reply {
  id: number;
  reply?: unknown;
  error?: string;
}

/** Opens the store of an earlier release in a process of its own, with a clock that the caller sets. */
export async function openEarlier(folder: string, settings: object) {
  const child: ChildProcess = fork(program, [folder, JSON.stringify(settings)], { stdio: ['ignore', 2, 2, 'ipc'] });
  atEnd(() => child.kill('SIGKILL'));
  await once(child, 'message');
  const waiting = new Map<number, (reply: Reply) => void>();
  child.on('message', (reply: Reply) => waiting.get(reply.id)?.(reply));
  let last = 0;
  async function ask(what: string, ...args: unknown[]): Promise<unknown> {
    const id = ++last;
    const replied = new Promise<Reply>((resolve) => waiting.set(id, resolve));
    child.send({ id, what, args });
    const { reply, error } = await replied;
    waiting.delete(id);
    if (error !== undefined) throw new Error(`${what}: ${error}`);
    return reply;
  }
  return {
    pid: child.pid!,
    setClock: (nowMs: number) => ask('setClock', nowMs),
    createWorkspace: (name: string) =>
      ask('createWorkspace', name) as Promise<{ workspaceId: string; rootKey: string }>,
    /** A request to the pipeline: the status and the parsed body. */
    send: (path: string, rootKey: string, body: object) =>
      ask('send', path, rootKey, body) as Promise<{ status: number; json: Record<string, never> }>,
    /** Runs all steps of the sweeper to their end. */
    sweep: () => ask('sweep'),
    /** Without settling leases, as a killed server. */
    async kill() {
      child.kill('SIGKILL');
      await once(child, 'exit');
    },
    async close() {
      await ask('close');
      await once(child, 'exit');
    },
  };
}
