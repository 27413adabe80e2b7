// Which commit runs: in clones, archives and images, with git and without.

import { spawnSync } from 'node:child_process';
import { appendFileSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { version } from '../../src/version.ts';
import { endAll, temporaryDir } from '../support/processes.ts';

const who = { GIT_AUTHOR_NAME: 'a', GIT_AUTHOR_EMAIL: 'a@b', GIT_COMMITTER_NAME: 'a', GIT_COMMITTER_EMAIL: 'a@b' };
const files = ['.gitattributes', 'bin', 'lua', 'package.json', 'package-lock.json', 'src'];

function run(folder: string, script: string, env: Record<string, string> = {}): string {
  const options = { cwd: folder, env: { ...process.env, ...who, ...env }, encoding: 'utf8' as const };
  const { stdout, stderr } = spawnSync('/bin/sh', ['-ec', script], options);
  expect(stderr).toBe('');
  return stdout.trim();
}

/** What `npm start -- --version` prints after the version. */
function suffixOf(folder: string, env: Record<string, string> = {}): string {
  const printed = run(folder, `'${process.execPath}' bin/start.mjs --version`, env);
  expect(printed.slice(0, version.length)).toBe(version);
  return printed.slice(version.length);
}

const newDir = (from: string, script: string): string => {
  const folder = temporaryDir();
  run(from, script, { folder });
  return folder;
};

let clone: string;
const commitOf = (folder: string) => `+g${run(folder, 'git log -1 --format=%h')}`;
const tag = `git tag -a v${version} -m Release`;

beforeAll(() => {
  clone = temporaryDir();
  for (const file of files) cpSync(file, join(clone, file), { recursive: true });
  writeFileSync(join(clone, 'notes.md'), 'One.\n');
  run(clone, `git init -q -b main; git add .; git commit -qm One; git commit -qm Two --allow-empty`);
});
afterAll(endAll);

test('a commit states itself, and a release only its version', () => {
  expect(suffixOf(clone)).toBe(commitOf(clone));
  run(clone, 'git tag v0.9.0; git tag v1');
  expect(suffixOf(clone)).toBe(commitOf(clone));
  run(clone, tag);
  expect(suffixOf(clone)).toBe('');
});

test('a release whose program was changed is none; other files in its folder do not count', () => {
  writeFileSync(join(clone, 'tollgate.env'), 'PORT=8080\n');
  appendFileSync(join(clone, 'notes.md'), 'Two.\n');
  expect(suffixOf(clone)).toBe('');
  for (const changed of ['lua/decide.lua', 'src/new.ts']) {
    appendFileSync(join(clone, changed), '\n');
    expect(suffixOf(clone)).toBe(`${commitOf(clone)}.dirty`);
    run(clone, 'git stash -q --include-untracked; git stash drop -q');
  }
});

test('asking does not write to the repository, and any user may ask', () => {
  const index = () => readFileSync(join(clone, '.git', 'index'));
  run(clone, 'touch src/main.ts');
  const before = index();
  expect(suffixOf(clone)).toBe('');
  expect(index()).toEqual(before);
  // As git does for a folder that belongs to another user.
  expect(suffixOf(clone, { GIT_TEST_ASSUME_DIFFERENT_OWNER: '1' })).toBe('');
});

test('a shallow clone, a worktree, and a commit after the release', () => {
  const shallow = newDir(clone, `git clone -q --depth 1 --branch v${version} "file://$PWD" "$folder/x" 2> /dev/null`);
  expect(suffixOf(join(shallow, 'x'))).toBe('');
  const tree = newDir(clone, 'git worktree add -q --detach "$folder/x" HEAD~1');
  expect(suffixOf(join(tree, 'x'))).toBe(commitOf(join(tree, 'x')));
});

test('archives of git have the commit, also inside of another repository', () => {
  const outer = newDir(clone, 'git init -q "$folder"');
  const extracted = (commit: string) => {
    rmSync(join(outer, 'x'), { recursive: true, force: true });
    mkdirSync(join(outer, 'x'));
    run(clone, `git archive ${commit} | tar x -C "$folder"`, { folder: join(outer, 'x') });
    return join(outer, 'x');
  };
  expect(suffixOf(extracted('HEAD'))).toBe('');
  expect(suffixOf(extracted('HEAD~1'))).toBe(`+g${run(clone, 'git log -1 --format=%h HEAD~1')}`);
});

test('without git, a build keeps its commit until it is compiled again', () => {
  const copied = temporaryDir();
  for (const file of files) cpSync(file, join(copied, file), { recursive: true });
  expect(suffixOf(copied)).toBe('+unknown');
  mkdirSync(join(copied, 'dist'));
  writeFileSync(join(copied, 'dist', 'commit.txt'), '+g1234567');
  expect(suffixOf(copied)).toBe('+g1234567');
  // A clone on a machine without git.
  expect(suffixOf(clone, { PATH: '/nowhere' })).toBe('+unknown');
});

test('the image has what its argument says', () => {
  const [, words] = /^RUN (\["node", "-e", ".*commit\.txt.*\])$/m.exec(readFileSync('Dockerfile', 'utf8'))!;
  const [program, ...args] = JSON.parse(words!) as string[];
  for (const [env, written] of [
    [{}, '+unknown'],
    [{ VERSION_SUFFIX: '' }, ''],
    [{ VERSION_SUFFIX: '+g1234567' }, '+g1234567'],
  ] as const) {
    const app = temporaryDir();
    mkdirSync(join(app, 'dist'));
    expect(spawnSync(program!, args, { cwd: app, env: { PATH: process.env.PATH, ...env } }).status).toBe(0);
    expect(existsSync(join(app, 'dist', 'commit.txt')) && readFileSync(join(app, 'dist', 'commit.txt'), 'utf8')).toBe(
      written,
    );
  }
  expect(readFileSync('.github/workflows/release.yml', 'utf8')).toContain('build-args: VERSION_SUFFIX=\n');
});
