import { createInterface } from 'node:readline/promises';
import type { Readable, Writable } from 'node:stream';

/** What a command uses of its process. Tests have one of their own, so that a command needs no process. */
export interface Terminal {
  env: Readonly<Record<string, string | undefined>>;
  stdin: Readable & { isTTY?: boolean };
  stdout: Writable;
  stderr: Writable & { isTTY?: boolean };
  /** Ends the process, even if work is pending. */
  exit(): void;
}

/** Writes a question, and returns the line that follows. */
export async function askOn({ stdin, stderr }: Pick<Terminal, 'stdin' | 'stderr'>, question: string): Promise<string> {
  const lines = createInterface({ input: stdin, output: stderr });
  try {
    return await lines.question(question);
  } finally {
    lines.close();
  }
}
