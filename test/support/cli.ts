// The command line as a process, as an operator runs it.

import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';

export interface Outcome {
  /** Null when a signal ended it. */
  code: number | null;
  out: string;
  err: string;
}

/** Compiles what has changed: before a test file's first command. */
export const buildCli = () => spawnSync(process.execPath, ['bin/tollgate.mjs', '--help'], { stdio: 'ignore' });

/** Nothing of this process's environment goes in but the PATH. */
export const spawnCli = (args: readonly string[], env: Record<string, string>): ChildProcessWithoutNullStreams =>
  spawn(process.execPath, ['dist/cli/index.js', ...args], { env: { PATH: process.env.PATH, ...env } });

/** Runs a command to its end; `input` is its standard input. */
export async function runCli(
  args: readonly string[],
  env: Record<string, string>,
  input: string | Buffer = '',
): Promise<Outcome> {
  const child = spawnCli(args, env);
  const outcome: Outcome = { code: null, out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (text) => (outcome.out += text));
  child.stderr.setEncoding('utf8').on('data', (text) => (outcome.err += text));
  // A command that reads no input closes it.
  child.stdin.on('error', () => {}).end(input);
  [outcome.code] = (await once(child, 'close')) as [number | null];
  return outcome;
}
