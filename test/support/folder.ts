// A folder with the program files of the repository and without its data, in which tests run commands of the documents.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect } from 'vitest';
import { addressOf, build, firstRootKeyOf, type Program, run } from './processes.ts';

const linked = 'bin dist lua node_modules package-lock.json package.json src tsconfig.json tsconfig.build.json'.split(
  ' ',
);

/** The code blocks of a language on a page; shell commands by default. */
export const blocksOf = (page: string, language = 'sh'): string[] =>
  [...readFileSync(page, 'utf8').matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].flatMap(([, of, text]) =>
    of === language ? text! : [],
  );

/** Open it before all tests of a file, and close it after them. */
export function openFolder() {
  const path = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  build();
  for (const name of linked) symlinkSync(resolve(name), join(path, name));
  const servers: Program[] = [];
  const env = (more: Record<string, string>) => ({ PATH: process.env.PATH, HOME: path, PORT: '0', ...more });

  return {
    path,

    /** Runs commands until the first that fails. */
    run(commands: string, more: Record<string, string> = {}): string {
      const { status, stdout, stderr } = spawnSync('sh', ['-ec', commands], {
        cwd: path,
        env: env(more),
        encoding: 'utf8',
      });
      expect([status, status === 0 ? '' : `${stdout}${stderr}`]).toEqual([0, '']);
      return stdout;
    },

    /** Starts a server by a command of a page; resolves when it listens. */
    async serve(command: string) {
      const words = ['-c', `exec ${command.trim().replace(/^((?:\w+=\S+ )+)/, 'env $1')}`];
      const server = run('sh', words, { cwd: path, env: env({}), detached: true });
      servers.push(server);
      return Object.assign(server, { url: await addressOf(server), firstRootKey: () => firstRootKeyOf(server) });
    },

    async close() {
      await Promise.all(servers.map((server) => server.stop('SIGINT')));
      rmSync(path, { recursive: true, force: true });
    },
  };
}
