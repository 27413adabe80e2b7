// Everything about Redis. Operations see only these functions.

import type { Actor } from '../domain/caller.ts';
import { openAnalytics } from './analytics.ts';
import { openApis } from './apis.ts';
import { openAudit } from './audit.ts';
import { openDecide } from './decide.ts';
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
  /** For tests that hold the clock; otherwise Redis's own decides. */
  nowMs?: (() => number | undefined) | undefined;
  onEvent?: ((message: string) => void) | undefined;
}

/** What the parts of the store share. */
export interface StoreContext {
  redis: RedisClient;
  scripts: Scripts;
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
  const scripts = await loadScripts(redis, workspaceKey).catch((error) => {
    // Nobody else can close it, and while it is open the process does not end.
    redis.disconnect();
    throw error;
  });
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
    scripts,
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
    },
  };
}

export type Store = Awaited<ReturnType<typeof openStore>>;
