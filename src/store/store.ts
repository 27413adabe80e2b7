// Everything about Redis. Operations see only these functions.

import type { Actor } from '../domain/caller.ts';
import { openAnalytics } from './analytics.ts';
import { openApis } from './apis.ts';
import { openAudit } from './audit.ts';
import { openDecide } from './decide.ts';
import { openDurable } from './durable.ts';
import { openIdentities } from './identities.ts';
import { openKeys } from './keys.ts';
import { workspaceKey } from './keyspace.ts';
import { openOverrides } from './overrides.ts';
import { openRbac } from './rbac.ts';
import { answered, connect, type RedisClient } from './redis.ts';
import { openRootKeys } from './rootKeys.ts';
import { loadScripts, type Scripts } from './scripts.ts';
import { openSweep } from './sweep.ts';
import { openWorkspaces } from './workspaces.ts';

export interface StoreOptions {
  url: string;
  commandTimeoutMs: number;
  /** A file of certificates to trust, for `rediss://`. */
  caFile?: string | undefined;
  /** How long the record of a deleted key stays. */
  keyRetentionMs: number;
  usageRetentionMs: number;
  auditEventsMax: number;
  /** Tags an API counts at most. */
  tagsMax: number;
  /** Verifications and limit checks that may wait for Redis at once. */
  inFlightMax: number;
  /** Answers a change when it is on Redis's disk. */
  durable: boolean;
  /** For tests that hold the clock; otherwise Redis's own decides. */
  nowMs?: (() => number | undefined) | undefined;
  onEvent?: ((message: string) => void) | undefined;
}

/** What the parts of the store share. */
export interface StoreContext {
  redis: RedisClient;
  scripts: Scripts;
  /** A change that is not a script, see durable.ts. */
  change<Reply>(command: (redis: RedisClient) => Promise<Reply>): Promise<Reply>;
  /** The scripts' clock argument: '' is Redis's own. */
  now: () => number | '';
  /** Redis's time in milliseconds, or that of the test. */
  currentMs(): Promise<number>;
  /** An actor as lua/include/audit.lua reads it. */
  actorText(actor: Actor): string;
  keyRetentionMs: number;
  usageRetentionMs: number;
}

export async function openStore(options: StoreOptions) {
  const redis = await connect(options.url, options);
  const scripts = await loadScripts(redis, workspaceKey);
  const durable = options.durable
    ? await openDurable(options.url, options, scripts).catch((error) => {
        redis.disconnect();
        throw error;
      })
    : undefined;
  const { keyRetentionMs, usageRetentionMs, auditEventsMax, tagsMax, inFlightMax } = options;
  const now = () => options.nowMs?.() ?? '';
  async function currentMs(): Promise<number> {
    const held = now();
    if (held !== '') return held;
    const [seconds, micros] = await answered(redis.time());
    return Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
  }
  const context: StoreContext = {
    redis,
    currentMs,
    scripts: durable?.scripts ?? scripts,
    change: durable?.change ?? ((command) => answered(command(redis))),
    now,
    actorText: (actor) => JSON.stringify({ ...actor, auditEventsMax }),
    keyRetentionMs,
    usageRetentionMs,
  };

  const rootKeys = openRootKeys(context);
  return {
    ...openDecide({ scripts, usageRetentionMs, tagsMax, inFlightMax, now }),
    ...openRbac(context),
    analytics: openAnalytics(context),
    apis: openApis(context),
    audit: openAudit(context),
    identities: openIdentities(context),
    overrides: openOverrides(context),
    keys: openKeys(context),
    rootKeys,
    workspaces: openWorkspaces(context, () => rootKeys),
    sweep: openSweep(context),

    currentMs,

    /** Rejects when Redis does not answer. */
    async ping(): Promise<void> {
      await answered(redis.ping());
    },

    async close(): Promise<void> {
      // What was sent is answered first; a connection that is away has nothing to answer.
      await redis.quit().catch(() => redis.disconnect());
      await durable?.close();
    },
  };
}

export type Store = Awaited<ReturnType<typeof openStore>>;
