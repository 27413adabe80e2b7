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
  const settings = await env(rootKey, callsTo(await addressOf(first), rootKey));
  await first.stop();
  const server = serve(settings);
  const url = await addressOf(server);

  return {
    url,
    rootKey,
    server,
    redis,

    ok: callsTo(url, rootKey),

    async stop() {
      await server.stop();
      await redis.stop();
      rmSync(dir, { recursive: true });
    },
  };
}

/** The data of a call that must succeed. */
type Ok = <Name extends OperationName>(name: Name, input: InputOf<Name>) => Promise<OutputOf<Name>>;

function callsTo(url: string, rootKey: string): Ok {
  return async <Name extends OperationName>(name: Name, input: InputOf<Name>): Promise<OutputOf<Name>> => {
    const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
    const response = await fetch(`${url}/v2/${name}`, { method: 'POST', headers, body: JSON.stringify(input) });
    const { data, error } = (await response.json()) as { data: OutputOf<Name>; error?: { detail: string } };
    if (error) throw new Error(`${name}: ${error.detail}`);
    return data;
  };
}

export type Tollgate = Awaited<ReturnType<typeof startTollgate>>;
