// The command line as a process, as an operator runs it.

import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { cliFile, run } from './processes.ts';

export interface Outcome {
  /** Null when a signal ended it. */
  code: number | null;
  out: string;
  err: string;
}

const words = (args: readonly string[]) => [cliFile, ...args];
/** Of this process's environment it gets only the PATH. */
const options = (env: Record<string, string>) => ({ env: { PATH: process.env.PATH, ...env } });

export const spawnCli = (args: readonly string[], env: Record<string, string>): ChildProcessWithoutNullStreams =>
  spawn(process.execPath, words(args), options(env));

/** Runs a command to its end; `input` is its standard input. */
export async function runCli(
  args: readonly string[],
  env: Record<string, string>,
  input: string | Buffer = '',
): Promise<Outcome> {
  const command = run(process.execPath, words(args), { ...options(env), stdio: 'pipe' });
  // A command that reads no input closes it.
  command.child.stdin!.on('error', () => {}).end(input);
  const code = await command.ended;
  return { code, out: command.out, err: command.err };
}
