// Opens the store: everything about Redis. Operations see only these functions.

import { AcceptedRootKeys } from './decide/accepted.ts';
import { openDecide } from './decide/decide.ts';
import { Leasing, type LeasingSettings } from './decide/leases/leasing.ts';
import { slugsOf } from './decide/slugs.ts';
import { Tail } from './decide/tail/tail.ts';
import type { Actor } from './domain/caller.ts';
import { Heartbeat } from './migrations/heartbeat.ts';
import { Migrations } from './migrations/migration.ts';
import { openApis } from './records/apis.ts';
import { openAudit } from './records/audit.ts';
import { openExplain } from './records/explain.ts';
import { openHolds } from './records/holds.ts';
import { openIdentities } from './records/identities.ts';
import { openKeySearch } from './records/keySearch.ts';
import { digestOf, openKeys } from './records/keys.ts';
import { openNamespaces } from './records/namespaces.ts';
import { openOverrides } from './records/overrides.ts';
import { openPlans } from './records/plans.ts';
import { openRbac } from './records/rbac.ts';
import { cliActor, openRootKeys } from './records/rootKeys.ts';
import { openStatus } from './records/status.ts';
import { openSweep } from './records/sweep.ts';
import { openTemporary } from './records/temporary.ts';
import { openWindows } from './records/windows.ts';
import { openWorkspaces } from './records/workspaces.ts';
import { atMostOnceIn } from './redis/atMostOnce.ts';
import { Breaker } from './redis/breaker.ts';
import {
  type ConnectOptions,
  connect,
  notReady,
  orStoreError,
  type RedisClient,
  trustFor,
} from './redis/connection.ts';
import { scriptKey } from './redis/names.ts';
import { foundOf, refusalOf } from './redis/refusedWrites.ts';
import type { TrustOptions } from './redis/trust.ts';
import { probeError, probeWrites } from './redis/writeProbe.ts';
import { openCalls, type Run } from './scripts/calls.ts';
import type { ContextSettings, StoreContext, UsageBounds } from './scripts/context.ts';
import { type DataVersion, readData, type StoredData, supportedBy } from './scripts/dataVersion.ts';
import { type Durable, openDurable } from './scripts/durable.ts';
import { refuseMoves } from './scripts/moves.ts';
import { type Changed, loadScripts, type Scripts } from './scripts/scripts.ts';
import { openAnalytics } from './usage/analytics.ts';
import { openUsageExport } from './usage/exported.ts';
import { openUsageImport } from './usage/imported.ts';
import { openRefusals } from './usage/refusals.ts';
import { version } from './version.ts';

const supported = supportedBy(version);

/** How long the results of checks are used again, so that frequent health checks cost Redis little. */
const checkedMs = { replies: 100, writes: 1000 };

export interface StoreOptions extends LeasingSettings, TrustOptions, ContextSettings {
  url: string;
  commandTimeoutMs: number;
  /** Limit of the tags that an API counts. */
  tagsMax: number;
  /** Limit of the bytes of an API's counts by tag in a day. */
  tagBytesMax: number;
  /** Limit of the identifiers that a namespace counts in a day. */
  identifiersMax: number;
  /** Limit of the bytes of a workspace's refusals in an hour. */
  refusalBytesMax: number;
  /** Limit of the records of a workspace, see lua/include/records.lua; 0 is no limit. */
  recordsMax: number;
  /** Limit of the verifications and limit checks that wait for Redis. */
  inFlightMax: number;
  /** A change returns after Redis wrote it to its disk. */
  durable: boolean;
  /** In a test. */
  usageBounds?: UsageBounds | undefined;
  /** The version of the data in a test. */
  dataVersion?: DataVersion | undefined;
  /** The time of a test; without it Redis's clock decides. */
  nowMs?: (() => number | undefined) | undefined;
  /** Whether Redis began with every write of the one before it: of the embedded one (redis/complete.ts). */
  isComplete?: (() => boolean) | undefined;
  onEvent?: ((message: string) => void) | undefined;
  /** Called when the data has a version that this release does not support: the process cannot serve any more. */
  onUnsupported?: ((error: Error) => void) | undefined;
}

export async function openStore(storeOptions: StoreOptions) {
  const trust = trustFor(storeOptions.url, storeOptions);
  // A connection that is ready before `leasing` is set is no later one: no lease was granted before it.
  let reconnected = () => {};
  const options = { ...storeOptions, trust, onReady: () => reconnected() };
  const redis = await connect(options.url, options);
  // Changes run after `leasing` is set.
  const changed: Changed = (workspaceId, holders) => leasing.changes.changed(workspaceId, holders);
  const closeAll = (error: Error) => {
    // The caller has no connection to close, and an open one would keep the process alive.
    redis.disconnect();
    throw loadError(error);
  };
  // Nothing but the heartbeat itself runs a script before it is set.
  const fresh = () => heartbeat.fresh();
  const loaded = await loadAll(redis, options, { changed, fresh }).catch(closeAll);
  const { scripts, durable } = loaded;
  const run = runOf(durable?.scripts ?? scripts, options);
  const { isComplete, onUnsupported } = options;
  // By Redis's clock, even in tests: the processes of one Redis must agree.
  const runByClock = runOf(scripts, { ...options, nowMs: undefined });
  const heartbeat = new Heartbeat(loaded.data, { redis, run: runByClock, supported, isComplete, onUnsupported });
  await heartbeat.start().catch(async (error) => {
    await durable?.close();
    closeAll(error);
  });
  const context = contextOf({ redis, run, durable, dataVersion: options.dataVersion ?? heartbeat }, options);
  const accepted = new AcceptedRootKeys();
  const tail = new Tail(redis);
  const rootKeys = openRootKeys(context, accepted, (workspaceId) => tail.rootKeysChanged(workspaceId));
  const rbac = openRbac(context);
  const usageExport = openUsageExport(context);
  const usageImport = openUsageImport(context);
  const deactivate = (workspaceId: string, holders: readonly string[]) =>
    context.run('leases/deactivate', workspaceId, { holders: holders.join(',') });
  const mayLengthen = () => context.dataVersion.current >= 6;
  const redisAgeMs = () => heartbeat.redisAgeMs();
  const analytics = openAnalytics(context);
  const decide = openDecide({
    ...options,
    tail,
    scripts,
    accepted,
    dataVersion: context.dataVersion,
    slugsOf: (workspaceId, lists) => slugsOf(redis, workspaceId, lists),
    digestOf: (workspaceId, id24) => digestOf(redis, workspaceId, id24),
    now: () => options.nowMs?.() ?? '',
    openLeasing: (settle) => new Leasing({ ...options, redis, settle, deactivate, mayLengthen, redisAgeMs }),
  });
  const { leasing } = decide;
  reconnected = () => leasing.reconnected();
  const creating = (workspaceId: string) => leasing.changes.creating(workspaceId);
  const workspaces = openWorkspaces(context, () => rootKeys, creating);
  const { ids: workspaceIds } = workspaces;
  /** Resolves when Redis replies and has all scripts. Rejects with an ApiError that states why it is not ready. */
  const replies = atMostOnceIn(checkedMs.replies, () =>
    scripts.load().catch((cause) => Promise.reject(notReady(cause, options.commandTimeoutMs))),
  );
  return {
    decide,
    ...rbac,
    plans: openPlans(context),
    analytics,
    apis: openApis(context),
    audit: openAudit(context),
    explain: openExplain(context),
    holds: openHolds(context),
    identities: openIdentities(context),
    namespaces: openNamespaces(context),
    overrides: openOverrides(context),
    keys: openKeys(context),
    keySearch: openKeySearch(context),
    rootKeys,
    workspaces,
    refusals: openRefusals(context, analytics),
    status: openStatus(context),
    sweep: openSweep(context),
    temporary: openTemporary(context),
    tail,
    windows: openWindows(context),
    usageExport,
    usageImport,
    migrations: new Migrations({ redis, run: runByClock, heartbeat, workspaceIds, supported }),
    /** The version of the stored data, and its migration while one runs. */
    dataVersion: context.dataVersion,

    currentMs: context.currentMs,
    usageRetentionMs: context.usageRetentionMs,
    replies,

    /** As `replies`, and that Redis accepts writes. In a Cluster one master has to. */
    async ready(): Promise<void> {
      await replies();
      const error = probeError(await context.probe());
      if (error) throw notReady(error, options.commandTimeoutMs);
    },

    /**
     * Reads the trusted certificates again, for later connections. Throws if a file cannot be used; nothing changes
     * then.
     */
    reloadCertificates: () => trust?.reload(),

    async close(): Promise<void> {
      await leasing.close();
      await tail.close();
      await heartbeat.close();
      // QUIT waits for the replies to earlier commands; on a lost connection there are none to wait for.
      await redis.quit().catch(() => redis.disconnect());
      await durable?.close();
    },
  };
}

export type Store = Awaited<ReturnType<typeof openStore>>;

/** The command line has no limit of root keys, so that an operator can always create one. */
const isUnlimited = ({ rootKeyId, operation }: Actor) =>
  rootKeyId === cliActor.rootKeyId && operation === cliActor.operation;

/** A Redis that has the scripts of this version is used also while it refuses writes. */
function loadError(error: Error): Error {
  const refusal = refusalOf(error.message);
  if (!refusal) return error;
  const { found, change } = foundOf(refusal);
  return new Error(`Redis refuses writes, and the scripts of this version are not loaded yet: ${found}. ${change}`, {
    cause: error,
  });
}

/** Loads the scripts, after the version of the data was checked. */
async function loadAll(
  redis: RedisClient,
  options: StoreOptions & Pick<ConnectOptions, 'trust' | 'onReady'>,
  on: { changed: Changed; fresh: () => Promise<void> | undefined },
): Promise<{ data: StoredData; scripts: Scripts; durable?: Durable }> {
  const { url, commandTimeoutMs, observe } = options;
  const breaker = new Breaker({
    // In a Cluster any command on a workspace's key finds the node that has it.
    probe: (target) => (redis.isCluster ? redis.exists(target) : redis.ping()),
    confirmMs: Math.min(commandTimeoutMs / 2, 500),
    isClosed: () => redis.status === 'end',
    onEvent: options.onEvent,
  });
  const data = await readData(redis, supported);
  await refuseMoves(redis);
  const scripts = await loadScripts(redis, scriptKey, { changed: on.changed, fresh: on.fresh, observe, breaker });
  return options.durable ? { data, scripts, durable: await openDurable(url, options, scripts, on) } : { data, scripts };
}

const nowOf =
  ({ nowMs }: StoreOptions) =>
  (): number | '' =>
    nowMs?.() ?? '';

const runOf = (scripts: Scripts, options: StoreOptions): Run =>
  openCalls(scripts, {
    now: nowOf(options),
    actorText: (actor) =>
      JSON.stringify({
        ...actor,
        auditEventsMax: options.auditEventsMax,
        recordsMax: isUnlimited(actor) ? 0 : options.recordsMax,
      }),
  });

function contextOf(
  { durable, ...given }: Pick<StoreContext, 'redis' | 'run' | 'dataVersion'> & { durable?: Durable | undefined },
  options: StoreOptions,
): StoreContext {
  const { redis } = given;
  const now = nowOf(options);
  return {
    ...options,
    ...given,
    usageBounds: options.usageBounds ?? { keys: 250_000, customers: 400_000 },
    async currentMs(): Promise<number> {
      const fixed = now();
      if (fixed !== '') return fixed;
      const [seconds, micros] = await orStoreError(redis.time());
      return Number(seconds) * 1000 + Math.floor(Number(micros) / 1000);
    },
    change: durable?.change ?? ((command) => orStoreError(command(redis))),
    probe: atMostOnceIn(checkedMs.writes, () => probeWrites(redis)),
  };
}
