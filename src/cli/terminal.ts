import type { Readable, Writable } from 'node:stream';

/** What a command uses of its process. Tests have one of their own, so that a command needs no process. */
export interface Terminal {
  env: Readonly<Record<string, string | undefined>>;
  stdin: Readable;
  stdout: Writable;
  stderr: Writable & { isTTY?: boolean };
  /** Ends the process, even if work is pending. */
  exit(): void;
}
