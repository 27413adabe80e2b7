// An SDK of another language: a program that reads calls from its standard input, and prints a JSON line for each.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { type ResponseBody, type Sdk, SdkError } from './suite.ts';

interface Answer {
  bodies: ResponseBody[];
  methods: string[];
  error?: { type: string; body: unknown; status?: number };
}

export interface Driver extends Sdk {
  /** All methods of the SDK, such as `keys.createKey`. */
  methods(): Promise<string[]>;
}

/** Starts the program. It responds to the lines in order. */
export function startDriver(command: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Driver {
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'], env: { PATH: process.env.PATH, ...env } });
  const waiting: { resolve(answer: Answer): void; reject(reason: Error): void }[] = [];
  let printed = '';
  child.stderr.setEncoding('utf8').on('data', (text) => (printed += text));
  // What is written after the end is reported by `close`.
  child.stdin.on('error', () => {});
  createInterface(child.stdout).on('line', (line) => waiting.shift()?.resolve(JSON.parse(line)));
  const closed = once(child, 'close').finally(() => {
    for (const { reject } of waiting) reject(new Error(`${command} ended: ${printed}`));
  });
  closed.catch(() => {});

  const ask = (question: object) =>
    new Promise<Answer>((resolve, reject) => {
      if (child.exitCode !== null) return reject(new Error(`${command} has ended: ${printed}`));
      waiting.push({ resolve, reject });
      child.stdin.write(`${JSON.stringify(question)}\n`);
    });

  return {
    async call(rootKey, method, input, all = false) {
      const { bodies, error } = await ask({ rootKey, method, input, all });
      if (error) throw new SdkError(error.type, error.body, error.status);
      return bodies;
    },
    async methods() {
      return (await ask({ list: true })).methods;
    },
    async close() {
      child.stdin.end();
      await closed;
    },
  };
}
