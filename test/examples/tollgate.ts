// A built Tollgate for the tests of examples, on a Redis that a test can stop.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openStore, type Store } from '../../src/store.ts';
import { openClient } from '../support/client.ts';
import { testSettings } from '../support/harness.ts';
import { addressOf, build, runRedis, runServer } from '../support/processes.ts';

/** The timeout of a hook that starts a Tollgate. It builds first, at the same time as other tests. */
export const startMsMax = 180_000;

interface First {
  workspaceId: string;
  rootKey: string;
  store: Store;
}

/** A built server with a workspace and a root key, on its own redis-server. */
export async function startTollgate(
  env: (first: First) => Promise<Record<string, string>> | Record<string, string> = () => ({}),
) {
  build();
  const dir = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  const redis = await runRedis(dir);

  // Made without a server, as its settings may have the root key.
  const store = await openStore({ ...testSettings, url: redis.url });
  const { workspaceId, rootKey } = (await store.workspaces.createFirst('default'))!;
  const settings = await env({ workspaceId, rootKey, store });
  await store.close();
  const server = runServer({ REDIS_URL: redis.url, REDIS_TIMEOUT_MS: '500', ...settings });
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

export type Tollgate = Awaited<ReturnType<typeof startTollgate>>;
