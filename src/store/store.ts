// Everything about Redis. Operations see only these functions.

import { AcceptedRootKeys } from './accepted.ts';
import { openAnalytics } from './analytics.ts';
import { openApis } from './apis.ts';
import { openAudit } from './audit.ts';
import { Breaker } from './breaker.ts';
import type { StoreContext } from './context.ts';
import { checkDataVersion } from './dataVersion.ts';
import { Decider } from './decide.ts';
import { openDurable } from './durable.ts';
import { openIdentities } from './identities.ts';
import { openKeys } from './keys.ts';
import { workspaceKey } from './keyspace.ts';
import type { StoreObserver } from './observer.ts';
import { openOverrides } from './overrides.ts';
import { openRbac } from './rbac.ts';
import { connect, notReady, orStoreError } from './redis.ts';
import { cliActor, openRootKeys } from './rootKeys.ts';
import { loadScripts } from './scripts.ts';
import { slugsOf } from './slugs.ts';
import { openSweep } from './sweep.ts';
import { openWorkspaces } from './workspaces.ts';

/** How long an answer about readiness stands. */
const readyHoldMs = 100;

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
  /** Bytes that the counts by tag of an API take in a day at most. */
  tagBytesMax: number;
  /** Identifiers that a namespace counts in a day at most. */
  identifiersMax: number;
  /** Records a workspace has at most, see lua/include/records.lua; 0 is no bound. */
  recordsMax: number;
  /** Verifications and limit checks that may wait for Redis at once. */
  inFlightMax: number;
  /** Answers a change when it is on Redis's disk. */
  durable: boolean;
  /** For tests that hold the clock; otherwise Redis's own decides. */
  nowMs?: (() => number | undefined) | undefined;
  onEvent?: ((message: string) => void) | undefined;
  observe?: StoreObserver | undefined;
}

export async function openStore(options: StoreOptions) {
  const redis = await connect(options.url, options);
  const { keyRetentionMs, usageRetentionMs, auditEventsMax, recordsMax, inFlightMax, commandTimeoutMs, observe } =
    options;
  const breaker = new Breaker({
    // In a Cluster any command on the workspace's key finds the node that has it now.
    probe: (target) => (redis.isCluster ? redis.exists(target) : redis.ping()),
    confirmMs: Math.min(commandTimeoutMs / 2, 500),
    isClosed: () => redis.status === 'end',
    onEvent: options.onEvent,
  });
  const scripts = await checkDataVersion(redis)
    .then(() => loadScripts(redis, workspaceKey, observe, breaker))
    .catch((error) => {
      // Nobody else can close it, and while it is open the process does not end.
      redis.disconnect();
      throw error;
    });
  const durable = options.durable
    ? await openDurable(options.url, options, scripts).catch((error) => {
        redis.disconnect();
        throw error;
      })
    : undefined;
  const now = () => options.nowMs?.() ?? '';
  async function currentMs(): Promise<number> {
    const held = now();
    if (held !== '') return held;
    const [seconds, micros] = await orStoreError(redis.time());
    return Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
  }
  const context: StoreContext = {
    redis,
    currentMs,
    scripts: durable?.scripts ?? scripts,
    change: durable?.change ?? ((command) => orStoreError(command(redis))),
    now,
    // The operator can always make a root key from the command line.
    actorText: (actor) => JSON.stringify({ ...actor, auditEventsMax, recordsMax: actor === cliActor ? 0 : recordsMax }),
    keyRetentionMs,
    usageRetentionMs,
    observe,
  };

  let readiness: Promise<void> | undefined;
  const accepted = new AcceptedRootKeys();
  const rootKeys = openRootKeys(context, accepted);
  const { permissions, roles } = openRbac(context);
  return {
    decide: new Decider({
      scripts,
      accepted,
      slugsOf: (workspaceId, lists) => slugsOf(redis, workspaceId, lists),
      usageRetentionMs,
      tagsMax: options.tagsMax,
      tagBytesMax: options.tagBytesMax,
      identifiersMax: options.identifiersMax,
      recordsMax,
      inFlightMax,
      commandTimeoutMs,
      now,
      observe,
    }),
    permissions,
    roles,
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

    /**
     * Resolves when Redis answers and has all scripts; rejects with an ApiError that says why when it does not. However
     * often it is asked, Redis is asked seldom: an answer is given again for a moment.
     */
    ready(): Promise<void> {
      readiness ??= scripts
        .load()
        .catch((cause) => Promise.reject(notReady(cause, commandTimeoutMs)))
        .finally(() => setTimeout(() => (readiness = undefined), readyHoldMs).unref());
      return readiness;
    },

    async close(): Promise<void> {
      // What was sent is answered first; a connection that is away has nothing to answer.
      await redis.quit().catch(() => redis.disconnect());
      await durable?.close();
    },
  };
}

export type Store = Awaited<ReturnType<typeof openStore>>;
