import { createInterface } from 'node:readline/promises';
import type { Readable, Writable } from 'node:stream';
import { valueIn } from '../domain/text.ts';

/** The interface of a command to its process. Tests have one of their own, so that a command needs no process. */
export interface Terminal {
  env: Readonly<Record<string, string | undefined>>;
  stdin: Readable & { isTTY?: boolean };
  stdout: Writable;
  stderr: Writable & { isTTY?: boolean };
  /** Ends the process, even if work is pending. */
  exit(): void;
}

const keyLengthMax = 512;

/** Standard input; of a longer one some more than `max` characters. */
export async function readInput({ stdin }: Pick<Terminal, 'stdin'>, max: number): Promise<string> {
  let input = '';
  for await (const chunk of stdin.setEncoding('utf8')) {
    input += chunk as string;
    if (input.length > max) break;
  }
  return input;
}

/** A key or its id from standard input. */
export async function readKey(terminal: Pick<Terminal, 'stdin'>): Promise<string> {
  const key = valueIn(await readInput(terminal, 2 * keyLengthMax));
  if (/[\r\n]/.test(key) || key.length > keyLengthMax)
    throw new Error(`Standard input must have one line: a key id, or a key of at most ${keyLengthMax} characters.`);
  return key;
}

/** The value of a variable, '' if it is not set. */
export const variable = ({ env }: Pick<Terminal, 'env'>, name: string): string => valueIn(env[name] ?? '');

/** Writes a question, and returns the line that follows. */
export async function askOn({ stdin, stderr }: Pick<Terminal, 'stdin' | 'stderr'>, question: string): Promise<string> {
  const lines = createInterface({ input: stdin, output: stderr });
  try {
    return valueIn(await lines.question(question));
  } finally {
    lines.close();
  }
}
