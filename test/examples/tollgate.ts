// What the examples are put before: a built Tollgate on a Redis of its own that can be taken away.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Client, openClient } from '../support/client.ts';
import { addressOf, build, firstRootKeyOf, runRedis, runServer } from '../support/processes.ts';

/** What a hook that starts a Tollgate may take: it builds first, which other tests may be doing as well. */
export const startMsMax = 180_000;

/** A built server with a workspace and a root key, on a redis-server of its own. */
export async function startTollgate(
  env: (rootKey: string, ok: Ok) => Promise<Record<string, string>> | Record<string, string> = () => ({}),
) {
  build();
  const dir = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  const redis = await runRedis(dir);

  const serve = (more: Record<string, string>) => runServer({ REDIS_URL: redis.url, REDIS_TIMEOUT_MS: '500', ...more });
  // Once for the first root key, with which settings of the second run are made.
  const first = serve({});
  const rootKey = await firstRootKeyOf(first);
  const client = openClient(await addressOf(first), rootKey);
  const settings = await env(rootKey, client.ok);
  client.close();
  await first.stop();
  const server = serve(settings);
  const url = await addressOf(server);

  return {
    url,
    rootKey,
    server,
    redis,

    ok: openClient(url, rootKey).ok,

    async stop() {
      await server.stop();
      await redis.stop();
      rmSync(dir, { recursive: true });
    },
  };
}

type Ok = Client['ok'];

export type Tollgate = Awaited<ReturnType<typeof startTollgate>>;
