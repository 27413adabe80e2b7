// A folder that is Tollgate's but for what it holds as data, in which commands of the documents run as they are written.

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, vi } from 'vitest';
import { buildCli } from './cli.ts';

const linked = 'bin dist lua node_modules package.json src tsconfig.json tsconfig.build.json'.split(' ');

/** The blocks of shell commands of a page. */
export const blocksOf = (page: string): string[] =>
  [...readFileSync(page, 'utf8').matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map((match) => match[1]!);

/** `make` and `remove` it around all tests of a file. */
export function openFolder() {
  const path = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  buildCli();
  for (const name of linked) symlinkSync(resolve(name), join(path, name));
  const children: ChildProcess[] = [];
  const env = (more: Record<string, string>) => ({ PATH: process.env.PATH, HOME: path, PORT: '0', ...more });

  /** To the whole group, as Ctrl-C in a terminal comes to npm and to the server below it. */
  async function stop(child: ChildProcess) {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    process.kill(-child.pid!, 'SIGINT');
    await ended;
  }

  return {
    path,
    stop,

    /** Runs commands as a reader does who stops at the first that fails. */
    run(commands: string, more: Record<string, string> = {}): string {
      const { status, stdout, stderr } = spawnSync('sh', ['-ec', commands], {
        cwd: path,
        env: env(more),
        encoding: 'utf8',
      });
      expect([status, status === 0 ? '' : `${stdout}${stderr}`]).toEqual([0, '']);
      return stdout;
    },

    /** Starts a server as a page says, and answers when it listens. */
    async serve(command: string) {
      const child = spawn('sh', ['-c', `exec ${command.trim().replace(/^((?:\w+=\S+ )+)/, 'env $1')}`], {
        cwd: path,
        env: env({}),
        detached: true,
      });
      children.push(child);
      let out = '';
      child.stdout.on('data', (text) => (out += text));
      child.stderr.on('data', (text) => (out += text));
      await vi.waitFor(() => expect(out).toMatch(/listens on .*\n/), { timeout: 30_000, interval: 20 });
      const url = /listens on (\S+)/.exec(out)![1]!;
      return { child, url, out: () => out };
    },

    async close() {
      await Promise.all(children.map(stop));
      rmSync(path, { recursive: true, force: true });
    },
  };
}
