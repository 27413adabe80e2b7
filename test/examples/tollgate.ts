// A built Tollgate for the tests of examples, on a Redis that a test can stop.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Client, openClient } from '../support/client.ts';
import { addressOf, build, firstRootKeyOf, runRedis, runServer } from '../support/processes.ts';

/** The timeout of a hook that starts a Tollgate. It builds first, at the same time as other tests. */
export const startMsMax = 180_000;

/** A built server with a workspace and a root key, on its own redis-server. */
export async function startTollgate(
  env: (rootKey: string, ok: Ok) => Promise<Record<string, string>> | Record<string, string> = () => ({}),
) {
  build();
  const dir = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  const redis = await runRedis(dir);

  const serve = (more: Record<string, string>) => runServer({ REDIS_URL: redis.url, REDIS_TIMEOUT_MS: '500', ...more });
  // The first run prints the first root key, which the settings of the second run use.
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
