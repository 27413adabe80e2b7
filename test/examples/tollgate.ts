// What the examples are put before: a built Tollgate on a Redis of its own that can be taken away.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { OperationName } from '../../src/operations/index.ts';
import type { InputOf, OutputOf } from '../support/harness.ts';
import { addressOf, build, firstRootKeyOf, runRedis, runServer } from '../support/processes.ts';

/** What a hook that starts a Tollgate may take: it builds first, which other tests may be doing as well. */
export const startMsMax = 180_000;

/** A built server with a workspace and a root key, on a redis-server of its own. */
export async function startTollgate(env: (rootKey: string) => Record<string, string> = () => ({})) {
  build();
  const dir = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  const redis = await runRedis(dir);

  const serve = (more: Record<string, string>) => runServer({ REDIS_URL: redis.url, REDIS_TIMEOUT_MS: '500', ...more });
  // Once to be told the first root key, which may be a setting then.
  const first = serve({});
  const rootKey = await firstRootKeyOf(first);
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
