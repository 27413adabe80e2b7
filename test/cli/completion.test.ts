// The scripts that complete commands in shells. Bash runs its own; zsh and fish only where they are installed.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { runCli } from '../support/cli.ts';
import { testIf } from '../support/testIf.ts';

const isInstalled = (shell: string) => spawnSync(shell, ['--version'], { stdio: 'ignore' }).status === 0;

async function scriptFor(shell: string): Promise<string> {
  const { code, out, err } = await runCli(['completion', shell], {});
  expect({ code, err }).toEqual({ code: 0, err: '' });
  const file = join(mkdtempSync(join(tmpdir(), 'tollgate-completion-')), `tollgate.${shell}`);
  writeFileSync(file, out);
  return file;
}

/** What bash offers after these words; the last one is begun. */
function offered(file: string, words: string[]): string[] {
  const script = `source "$1"; shift; COMP_WORDS=(tollgate "$@"); COMP_CWORD=$#; _tollgate; printf '%s\\n' "\${COMPREPLY[@]}"`;
  const { status, stdout, stderr } = spawnSync('bash', ['-c', script, 'bash', file, ...words], { encoding: 'utf8' });
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  return stdout.split('\n').filter((line) => line !== '');
}

testIf(isInstalled('bash'))('bash offers groups, their commands and the options of a command', async () => {
  const file = await scriptFor('bash');
  expect(offered(file, ['ke'])).toEqual(['key']);
  expect(offered(file, [''])).toEqual(expect.arrayContaining(['key', 'api', 'find', 'completion', 'doctor', '--help']));
  expect(offered(file, ['key', 'e'])).toEqual(expect.arrayContaining(['explain', 'enable', 'expire']));
  expect(offered(file, ['key', 'list', '--exp'])).toEqual(expect.arrayContaining(['--expiring', '--expired']));
  // After an option and an argument.
  expect(offered(file, ['key', 'delete', 'key_1', '--js'])).toEqual(['--json']);
  expect(offered(file, ['nothing', 'list', 'x'])).toEqual([]);
});

test.each(['zsh', 'fish'])('%s has a script with all commands', async (shell) => {
  const { out } = await runCli(['completion', shell], {});
  for (const word of ['root-key', 'disable', 'find', '--expiring']) expect(out).toContain(word.replace(/^--/, ''));
});

for (const shell of ['zsh', 'fish'])
  testIf(isInstalled(shell))(`${shell} reads its script`, async () => {
    const { status, stderr } = spawnSync(shell, ['-n', await scriptFor(shell)], { encoding: 'utf8' });
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  });
