// Programs as they are run: a built Tollgate on a Redis of its own that can be taken away, and whatever is put before it.

import { type ChildProcess, type SpawnOptions, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { OperationName } from '../../src/operations/index.ts';
import type { InputOf, OutputOf } from './harness.ts';

/** What a hook that starts a Tollgate may take: it builds first, which other tests may be doing as well. */
export const startMsMax = 180_000;

export interface Program {
  child: ChildProcess;
  /** What it has printed, on both streams. */
  printed(): string;
  /** Resolves with what a pattern found in that; rejects with all of it when the program ends before. */
  prints(pattern: RegExp): Promise<RegExpExecArray>;
  stop(): Promise<void>;
}

export function run(command: string, args: readonly string[], options: SpawnOptions = {}): Program {
  const child = spawn(command, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '';
  for (const stream of [child.stdout!, child.stderr!]) stream.on('data', (bytes) => (text += bytes));
  const ended = () => child.exitCode !== null || child.signalCode !== null;
  return {
    child,
    printed: () => text,
    async prints(pattern) {
      for (;;) {
        const found = pattern.exec(text);
        if (found) return found;
        if (ended()) throw new Error(`${command} ended:\n${text}`);
        await delay(10);
      }
    },
    async stop() {
      if (ended()) return;
      child.kill('SIGTERM');
      await once(child, 'exit');
    },
  };
}

/** Where a program that listens on a port the system chose says it does. */
export async function addressOf(program: Program): Promise<string> {
  return (await program.prints(/listens on (http:\S+)\n/))[1]!;
}

/** A built server with a workspace and a root key, on a redis-server of its own. */
export async function startTollgate(env: (rootKey: string) => Record<string, string> = () => ({})) {
  spawnSync(process.execPath, ['bin/tollgate.mjs', '--help']); // Builds what has changed.
  const dir = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  const socket = join(dir, 'redis.sock');
  const redis = run('redis-server', `--port 0 --unixsocket ${socket} --dir ${dir} --save`.split(' ').concat(''));
  while (!existsSync(socket)) await delay(10);

  const base = { PATH: process.env.PATH, REDIS_URL: `unix:${socket}`, REDIS_TIMEOUT_MS: '500', PORT: '0' };
  const serve = (more: Record<string, string>) =>
    run(process.execPath, ['dist/main.js'], { env: { ...base, ...more } });
  // Once to be told the first root key, which may be a setting then.
  const first = serve({});
  const rootKey = (await first.prints(/shown once: (root_\w+)\n/))[1]!;
  await first.stop();
  const server = serve(env(rootKey));
  const url = await addressOf(server);

  return {
    url,
    rootKey,
    server,
    redis,

    /** The data of a call that must succeed. */
    async ok<Name extends OperationName>(name: Name, input: InputOf<Name>): Promise<OutputOf<Name>> {
      const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
      const response = await fetch(`${url}/v2/${name}`, { method: 'POST', headers, body: JSON.stringify(input) });
      const { data, error } = (await response.json()) as { data: OutputOf<Name>; error?: { detail: string } };
      if (error) throw new Error(`${name}: ${error.detail}`);
      return data;
    },

    async stop() {
      await server.stop();
      await redis.stop();
      rmSync(dir, { recursive: true });
    },
  };
}

export type Tollgate = Awaited<ReturnType<typeof startTollgate>>;
