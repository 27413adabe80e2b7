// Commands that reach the operations in two ways, with the same results: on the store, in the process, and over HTTP.

import { afterAll, beforeAll, beforeEach, describe, expect } from 'vitest';
import { runCli } from './cli.ts';
import type { harness } from './harness.ts';
import { serveStore } from './serving.ts';

type App = ReturnType<typeof harness>;

/**
 * Serves the store of a test file, whose clock is set to the time at the start of each test: commands on the store use
 * Redis's clock. Returns the function that returns the URL.
 */
export function served(app: App): () => string {
  let server: Awaited<ReturnType<typeof serveStore>>;
  beforeAll(async () => {
    server = await serveStore(app.store);
  });
  afterAll(() => server.close());
  beforeEach(() => {
    app.clock.now = Date.now();
  });
  return () => server.url;
}

interface Commands {
  run(args: readonly string[], input?: string): ReturnType<typeof runCli>;
  /** Returns the lines that a command prints. It must succeed. */
  lines(...args: string[]): Promise<string[]>;
  /** Returns what it prints with --json. */
  json(...args: string[]): Promise<ReturnType<typeof JSON.parse>>;
}

/** The cells of a printed row. */
export const cellsOf = (row: string) => row.split(/ {2,}/);

/** Describes commands in both ways; `url` is TOLLGATE_URL. */
export function describeWays(app: App, url: () => string, tests: (commands: Commands, way: string) => void) {
  describe.each(['the store', 'HTTP'])('on %s', (way) => {
    const run: Commands['run'] = (args, input = '') =>
      way === 'HTTP'
        ? runCli(args, { TOLLGATE_URL: url(), TOLLGATE_ROOT_KEY: app.rootKey }, input)
        : runCli([...args, '--workspace', app.workspaceId], { REDIS_URL: app.redisUrl() }, input);
    const lines: Commands['lines'] = async (...args) => {
      const { code, out, err } = await run(args);
      expect({ code, err }, args.join(' ')).toEqual({ code: 0, err: '' });
      return out.trimEnd().split('\n');
    };
    const json: Commands['json'] = async (...args) => JSON.parse((await lines(...args, '--json')).join('\n'));
    tests({ run, lines, json }, way);
  });
}
