// The built server as a process of its own, on an embedded Redis in a directory of its own, as operators run it.

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { vi } from 'vitest';

export interface ServerProcess {
  child: ChildProcess;
  port: number;
  /** The first root key, of workspace `default`, with the grant of everything. */
  rootKey: string;
  dataDir: string;
  /** All it has written so far, to standard output and to standard error. */
  out: string;
  err: string;
  /** Resident memory, in bytes. */
  memory(): number;
  /** The command line beside the server: what it prints. */
  cli(...args: string[]): string;
  /** Ends it, and removes its directory unless that is to be looked at first. */
  stop(options?: { keepData?: boolean }): Promise<void>;
}

const waiting = { timeout: 20_000, interval: 20 };

/** Call it once a file: the build is not for a test that waits. */
export const buildServer = (): void => void spawnSync(process.execPath, ['bin/tollgate.mjs', '--help']);

export async function startServer(
  settings: Record<string, string> = {},
  { umask }: { umask?: string } = {},
): Promise<ServerProcess> {
  const dataDir = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  const env = { PATH: process.env.PATH, TOLLGATE_DATA_DIR: join(dataDir, 'data'), PORT: '0', ...settings };
  const child = umask
    ? spawn('sh', ['-c', `umask ${umask}; exec "$0" dist/main.js`, process.execPath], { env })
    : spawn(process.execPath, ['dist/main.js'], { env });
  const server = {
    child,
    port: 0,
    rootKey: '',
    dataDir: env.TOLLGATE_DATA_DIR,
    out: '',
    err: '',
    memory: () => 1024 * Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))![1]),
    cli(...args: string[]) {
      const { stdout, stderr, status } = spawnSync(process.execPath, ['dist/cli/index.js', ...args], {
        env,
        encoding: 'utf8',
      });
      if (status !== 0) throw new Error(`tollgate ${args.join(' ')}: ${stderr}`);
      return stdout;
    },
    async stop({ keepData = false } = {}) {
      const ended = child.exitCode !== null || child.signalCode !== null ? undefined : once(child, 'exit');
      child.kill('SIGTERM');
      await ended;
      if (!keepData) rmSync(dataDir, { recursive: true, force: true });
    },
  } satisfies ServerProcess;
  child.stdout.on('data', (bytes) => (server.out += bytes));
  child.stderr.on('data', (bytes) => (server.err += bytes));
  await vi.waitFor(() => {
    server.port = Number(/listens on http:\/\/127\.0\.0\.1:(\d+)\n/.exec(server.out)?.[1]);
    server.rootKey = /shown once: (root_\w+)\n/.exec(server.out)?.[1] ?? '';
    if (!server.port || !server.rootKey) throw new Error(`the server does not come up: ${server.err}`);
  }, waiting);
  return server;
}
