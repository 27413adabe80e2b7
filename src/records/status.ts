// The state of Redis, of the sweeper, and of a workspace, for system.getStatus.

import { atMostOnceIn } from '../redis/atMostOnce.ts';
import { checksOf } from '../redis/checks.ts';
import { orStoreError } from '../redis/connection.ts';
import { factsOfAll, isReached, type LostNode, type RedisFacts } from '../redis/facts.ts';
import { gaugesOf, maxMemoryOf, type RedisGauges } from '../redis/gauges.ts';
import { sweptKey } from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';
import { fromNamed } from './records.ts';

/** How long facts about Redis are used again, by the requests of all workspaces. */
const factsMs = 1000;
/** How often this process stores the time of its sweep. */
const sweptEveryMs = 10_000;

type Overdue = [count: number, lateMs: string];

interface WorkspaceReply {
  now: string;
  refills: Overdue;
  purges: Overdue;
  rollups: Overdue;
  sessions: [active: number, silent: number];
  keys: number;
  deletedKeys: number;
  apis: number;
  deletedApis: number;
  identities: number;
  deletedIdentities: number;
  namespaces: number;
  allOverrides: number;
  permissions: number;
  roles: number;
  rootKeys: number;
  auditEvents: number;
}

export function openStatus({ redis, run, change, currentMs, probe, dataVersion }: StoreContext) {
  // The clock of this machine, without Date.now: tests replace that of Redis only.
  const machineMs = () => performance.timeOrigin + performance.now();
  const facts = atMostOnceIn(factsMs, () => orStoreError(factsOfAll(redis, machineMs, probe)));
  const readSwept = () => {
    const swept = orStoreError(redis.get(sweptKey));
    // In a Cluster it may be on another node than the workspace, which may be lost.
    return redis.isCluster ? swept.catch(() => null) : swept;
  };
  let sweptAt = Number.NEGATIVE_INFINITY;

  return {
    /** Version of the stored data. */
    get dataVersion() {
      return dataVersion.current;
    },

    /** The migration of the stored data, while one runs. */
    get migration() {
      return dataVersion.migration;
    },

    /** Figures of Redis for metrics. In a Cluster those of its worst master. */
    gauges: async (): Promise<RedisGauges> => gaugesOf((await facts()).filter(isReached)),

    /** The cost does not grow with the number of records. */
    async read(workspaceId: string) {
      const [status, reply, swept] = await Promise.all([
        facts().then(statusOf),
        run('workspaces/status', workspaceId, {}),
        readSwept(),
      ]);
      const {
        now: time,
        refills,
        purges,
        rollups,
        sessions,
        allOverrides,
        ...stored
      } = fromNamed<WorkspaceReply>(reply);
      return {
        time: Number(time),
        redis: status,
        sweeper: {
          sweptAt: swept === null ? undefined : Number(swept),
          refills: overdueOf(refills),
          purges: overdueOf(purges),
          rollups: overdueOf(rollups),
        },
        stored: { ...stored, overrides: allOverrides },
        leases: { sessions: sessions[0], silent: sessions[1] },
      };
    },

    /** Stores the time at which all workspaces were swept, if some time has passed since this process did. */
    async swept(): Promise<void> {
      if (performance.now() - sweptAt < sweptEveryMs) return;
      sweptAt = performance.now();
      const time = await currentMs();
      await change((client) => client.set(sweptKey, `${time}`));
    },
  };
}

const overdueOf = ([count, lateMs]: Overdue) => ({ overdue: count, lateMs: Number(lateMs) });

/**
 * In a Cluster the sum of its masters, and the findings of each by its number: addresses are for the command line only.
 */
function statusOf(all: readonly (RedisFacts | LostNode)[]) {
  const checks = checksOf(all, (_, index) => `node ${index + 1} of ${all.length}`);
  const nodes = all.filter(isReached);
  const [first] = nodes;
  const valkey = first!.info('valkey_version');
  const version = valkey === undefined ? first!.info('redis_version') : valkey;
  return {
    version: version && `${valkey === undefined ? 'Redis' : 'Valkey'} ${version}`,
    nodes: all.length,
    roundTripMs: Math.round(1000 * Math.max(...nodes.map(({ roundTripMs }) => roundTripMs))) / 1000,
    usedBytes: sumOf(nodes, ({ info }) => Number(info('used_memory'))),
    maxBytes: sumOf(nodes, maxMemoryOf),
    checks,
  };
}

/** Undefined if a node does not report it. */
function sumOf(nodes: readonly RedisFacts[], bytes: (facts: RedisFacts) => number): number | undefined {
  const sum = nodes.reduce((sum, facts) => sum + bytes(facts), 0);
  return Number.isFinite(sum) ? sum : undefined;
}
