// A folder with the program files of the repository and without its data, in which tests run commands of the documents.

import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { expect } from 'vitest';
import { installedOrPacked } from './packed.ts';
import { addressOf, build, firstRootKeyOf, type Program, run } from './processes.ts';

const linked = 'lua package-lock.json package.json src tsconfig.json tsconfig.build.json'.split(' ');
/** Node takes a module for the file that a link names, and Tollgate finds its folder by its modules. */
const copied = ['bin', 'dist'];

/**
 * Stand-ins for npm and npx, which take a second of processor time for each command. test/docs.test.ts runs one command
 * with each real program.
 */
const shims = {
  npm: '[ "$*" = start ] && exec node bin/start.mjs',
  npx: '[ "$1" = tollgate ] && shift && exec node bin/tollgate.mjs "$@"',
};

/** For `run` and `serve`: the commands find the real npm and npx. */
export const withNpm = { PATH: process.env.PATH! };

/** The code blocks of a language on a page; shell commands by default. */
export const blocksOf = (page: string, language = 'sh'): string[] =>
  [...readFileSync(page, 'utf8').matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].flatMap(([, of, text]) =>
    of === language ? text! : [],
  );

/**
 * Open it before all tests of a file, and close it after them. Its programs load the dependencies as bundles, which
 * takes half of the time, or as they are installed.
 */
export function openFolder({ dependencies }: { dependencies: 'bundled' | 'installed' }) {
  const path = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  build();
  for (const name of copied)
    cpSync(resolve(name), join(path, name), {
      recursive: true,
      preserveTimestamps: true,
      filter: (from) => !from.endsWith('dist/packed'),
    });
  for (const name of linked) symlinkSync(resolve(name), join(path, name));
  const modules = join(path, 'node_modules');
  if (dependencies === 'installed') symlinkSync(resolve('node_modules'), modules);
  else {
    mkdirSync(modules);
    for (const name of readdirSync('node_modules')) symlinkSync(installedOrPacked(name), join(modules, name));
  }
  const programs = join(path, 'programs');
  mkdirSync(programs);
  for (const [name, line] of Object.entries(shims))
    writeFileSync(join(programs, name), `#!/bin/sh\n${line}\necho "$0 $*: use withNpm" >&2\nexit 1\n`, { mode: 0o755 });
  const PATH = `${programs}${delimiter}${process.env.PATH}`;
  const servers: Program[] = [];
  const env = (more: Record<string, string>) => ({ PATH, HOME: path, PORT: '0', ...more });

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
    async serve(command: string, more: Record<string, string> = {}) {
      const words = ['-c', `exec ${command.trim().replace(/^((?:\w+=\S+ )+)/, 'env $1')}`];
      const server = run('sh', words, { cwd: path, env: env(more), detached: true });
      servers.push(server);
      return Object.assign(server, { url: await addressOf(server), firstRootKey: () => firstRootKeyOf(server) });
    },

    async close() {
      await Promise.all(servers.map((server) => server.stop('SIGINT')));
      rmSync(path, { recursive: true, force: true });
    },
  };
}
