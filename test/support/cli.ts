// The command line: as a process, as an operator runs it, and in the process of the test, which costs a tenth.

import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { Readable, Writable } from 'node:stream';
import { expect } from 'vitest';
import { runCommandLine } from '../../src/cli/commandLine.ts';
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

/** Runs a command as a process to its end; `input` is its standard input. */
export async function runCliProcess(
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

/** Runs a command to its end in this process: for tests of what it prints and changes, not of the process. */
export async function runCli(
  args: readonly string[],
  env: Record<string, string>,
  input: string | Buffer = '',
): Promise<Outcome> {
  const [stdout, stderr] = [new Collector(), new Collector()];
  const stdin = Readable.from([Buffer.from(input)], { objectMode: false });
  const terminal = { env: { PATH: process.env.PATH, ...env }, stdin, stdout, stderr, exit() {} };
  const code = await runCommandLine(args, terminal);
  return { code, out: stdout.text, err: stderr.text };
}

/**
 * The command must print this error and nothing else, and end with one of the exit codes of errors. A text that ends
 * its line is the whole error, any other a part of it.
 */
export async function refused(outcome: Promise<Outcome>, message: string | RegExp, about?: string): Promise<void> {
  const { code, out, err } = await outcome;
  expect({ code: [1, 2, 3, 4].includes(code!), out }, about).toEqual({ code: true, out: '' });
  if (typeof message === 'string' && message.endsWith('\n')) expect(err, about).toBe(message);
  else expect(err, about).toMatch(message);
}

class Collector extends Writable {
  readonly #chunks: Buffer[] = [];

  override _write(chunk: Buffer, _encoding: string, done: () => void) {
    this.#chunks.push(chunk);
    done();
  }

  get text() {
    return Buffer.concat(this.#chunks).toString();
  }
}
