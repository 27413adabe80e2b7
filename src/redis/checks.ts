// Finds faults of a Redis, and how to fix them, for `tollgate doctor` and system.getStatus.

import { type Finding, fault, ok, unknown, warning } from '../domain/finding.ts';
import { isLost, isReached, type LostNode, type RedisFacts } from './facts.ts';
import { maxMemoryOf } from './gauges.ts';
import { channelPattern } from './names.ts';
import { foundOf } from './refusedWrites.ts';

export const megabyte = 1024 * 1024;
const oldestRedisMajor = 7;
const clockSkewMs = { warning: 1_000, fault: 60_000 };
const memoryUsed = { warning: 0.75, fault: 0.9 };

type RedisCheck = (facts: RedisFacts) => Finding;

const slots = 16_384;

/** The client of a Cluster forgets a master that was lost, and only its slots are missed. */
function clusterCheck({ slotsServed }: RedisFacts): Finding[] {
  if (slotsServed === undefined) return [];
  if (slotsServed === slots) return [ok('cluster', 'all slots have a master')];
  return [fault('cluster', `${slots - slotsServed} of ${slots} slots have no master that replies`, lostNode.change!)];
}

/** Of a master of a Cluster. */
const lostNode = fault(
  'redis',
  'does not reply.',
  'Start it again. Its workspaces get 503 until then. If every master has a replica, that takes over.',
);

/**
 * The findings about one Redis or the masters of a Cluster, of which one replies. With several, each begins with its
 * name.
 */
export function checksOf(
  nodes: readonly (RedisFacts | LostNode)[],
  nameOf: (node: RedisFacts | LostNode, index: number) => string,
): Finding[] {
  const findings = nodes.flatMap((node, index) => {
    const name = nodes.length > 1 ? `${nameOf(node, index)}: ` : '';
    const found = isLost(node) ? [lostNode] : redisChecks.map((check) => check(node));
    return found.map((finding) => ({ ...finding, found: name + finding.found }));
  });
  return [...clusterCheck(nodes.filter(isReached)[0]!), ...findings];
}

function version({ info }: RedisFacts): Finding {
  const valkey = info('valkey_version');
  const reported = valkey ?? info('redis_version');
  if (reported === undefined) return unknown('version', 'INFO is rejected.', 'Requires Redis 7.0+ or Valkey 7.2+.');
  const name = `${valkey ? 'Valkey' : 'Redis'} ${reported}`;
  if (Number(reported.split('.')[0]) >= oldestRedisMajor) return ok('version', name);
  return fault('version', name, 'Run Redis 7.0 or later, or Valkey 7.2 or later.');
}

function role({ info, config }: RedisFacts): Finding {
  const reported = info('role');
  if (reported === undefined) return unknown('role', 'INFO is rejected.', 'Check that it is a master.');
  if (reported !== 'master') return fault('role', 'a replica, which rejects writes', 'Set REDIS_URL to the master.');
  const replicas = Number(info('connected_slaves') ?? 0);
  const required = config('min-replicas-to-write');
  if (Number(required ?? 0) > replicas) {
    return fault(
      'role',
      `a master with ${replicas} replicas that rejects writes with fewer than ${required}`,
      'Restore the replicas, or lower min-replicas-to-write.',
    );
  }
  if (replicas === 0) return ok('role', 'a master without replicas');
  const found = `a master with ${replicas} replica${replicas === 1 ? '' : 's'}`;
  if (required === undefined) {
    return unknown('role', `${found}; CONFIG is rejected`, 'min-replicas-to-write 1 bounds the loss of a failover.');
  }
  if (Number(required) > 0) return ok('role', `${found}, min-replicas-to-write ${required}`);
  return warning(
    'role',
    `${found}, min-replicas-to-write 0: a master that loses its replicas accepts writes that a failover discards`,
    'Set min-replicas-to-write 1 and min-replicas-max-lag 10.',
  );
}

function writes({ refusal }: RedisFacts): Finding {
  if (!refusal) return ok('writes', 'accepted');
  const { found, change } = foundOf(refusal);
  return fault('writes', `refused by Redis: ${found}`, change);
}

function persistence({ info, config }: RedisFacts): Finding {
  const check = 'persistence';
  const aof = info('aof_enabled');
  const fsync = config('appendfsync');
  const save = config('save');
  if (aof === undefined) return unknown(check, 'INFO is rejected.', 'Should be appendonly yes.');
  if (aof === '0') {
    const change = 'Set appendonly yes.';
    if (save === '' && info('connected_slaves') === '0')
      return fault(check, 'none: a restart of Redis loses every key', change);
    if (save === '') return warning(check, 'none: only the replicas hold the data', change);
    if (info('rdb_last_bgsave_status') === 'err')
      return fault(
        check,
        'the last snapshot could not be written',
        'Check the log of Redis, the free space of its disk, and its free memory.',
      );
    return warning(check, 'snapshots only: a crash loses all changes since the last one', change);
  }
  if (info('aof_last_write_status') === 'err')
    return fault(
      check,
      'the append-only file cannot be written',
      'Check the log of Redis and the free space of its disk.',
    );
  if (info('aof_last_bgrewrite_status') === 'err')
    return warning(
      check,
      'the append-only file could not be rewritten, and grows',
      'Check the log of Redis and its free memory.',
    );
  const found = `append-only file, appendfsync ${fsync ?? 'unknown'}`;
  if (fsync === undefined) return unknown(check, `${found}: CONFIG is rejected`, 'Should be everysec or always.');
  if (fsync === 'no')
    return warning(
      check,
      `${found}: a power loss may lose half a minute of changes`,
      'Set appendfsync everysec or always.',
    );
  const hasTimes = config('aof-timestamp-enabled') === 'yes';
  return ok(check, hasTimes ? `${found}, with times` : `${found}, without times (aof-timestamp-enabled)`);
}

function eviction({ info }: RedisFacts): Finding {
  const policy = info('maxmemory_policy');
  if (policy === undefined) return unknown('eviction', 'INFO is rejected.', 'maxmemory-policy must be noeviction.');
  if (policy === 'noeviction') return ok('eviction', policy);
  return fault(
    'eviction',
    `${policy}: when memory is full, Redis deletes keys and counters`,
    'Set maxmemory-policy noeviction.',
  );
}

function memory(facts: RedisFacts): Finding {
  const { info } = facts;
  const used = Number(info('used_memory'));
  const limit = maxMemoryOf(facts);
  if (!(used >= 0) || !(limit > 0))
    return unknown(
      'memory',
      'INFO does not report it.',
      'Check that Redis has free memory; when full, it rejects writes.',
    );
  const part = used / limit;
  const source = Number(info('maxmemory')) > 0 ? 'maxmemory' : 'total memory, as maxmemory is not set';
  const found = `${inMegabytes(used)} of ${inMegabytes(limit)} MB (${source}): ${Math.round(part * 100)} %`;
  if (part < memoryUsed.warning) return ok('memory', found);
  const change =
    'Give Redis more memory. When it is full, keys are neither verified nor created, and limits are not counted.';
  return part < memoryUsed.fault ? warning('memory', found, change) : fault('memory', found, change);
}

export const inMegabytes = (bytes: number) => Math.round(bytes / megabyte).toLocaleString('en');

/** Settings that the embedded Redis has, too (redis/embedded.ts): a number is the least one. */
const settingsCheck =
  (check: string, wanted: Record<string, number | 'yes'>, fine: string, otherwise: string): RedisCheck =>
  ({ config }) => {
    const all = Object.entries(wanted);
    const textOf = (settings: [string, unknown][]) => settings.map((setting) => setting.join(' ')).join(', ');
    if (all.some(([parameter]) => config(parameter) === undefined))
      return unknown(check, 'CONFIG is rejected.', `Recommended: ${textOf(all)}.`);
    const others = all.filter(([parameter, value]) =>
      value === 'yes' ? config(parameter) !== value : Number(config(parameter)) < value,
    );
    if (others.length === 0) return ok(check, fine);
    const found = textOf(others.map(([parameter]) => [parameter, config(parameter)]));
    return warning(check, `${found}: ${otherwise}`, `Set ${textOf(others)}.`);
  };

/** With these, records and windows keep compact encodings. */
const encodings = settingsCheck(
  'encodings',
  { 'hash-max-listpack-entries': 128, 'hash-max-listpack-value': 16_384, 'zset-max-listpack-value': 64 },
  'compact',
  'keys use more memory than necessary',
);

/** Usage counts expire as hashes that may have millions of fields. */
const freeing = settingsCheck(
  'freeing',
  { 'lazyfree-lazy-expire': 'yes', 'lazyfree-lazy-server-del': 'yes', 'lazyfree-lazy-user-del': 'yes' },
  'large records are freed in the background',
  'Redis blocks for up to a second per million fields that expire',
);

function channels({ hasChannels }: RedisFacts): Finding {
  if (hasChannels) return ok('channels', 'servers can send each other messages');
  return warning(
    'channels',
    'refused to this account: Redis decides every request, and analytics.tail has the decisions of one server only',
    `ACL SETUSER <account> +publish +subscribe +unsubscribe &${channelPattern}`,
  );
}

function clock({ skewMs }: RedisFacts): Finding {
  const size = Math.abs(skewMs);
  const duration = size < 10_000 ? `${Math.round(size)} ms` : `${Math.round(size / 1000)} s`;
  const found = `that of Redis is ${duration} ${skewMs < 0 ? 'behind' : 'ahead of'} that of this machine`;
  if (size < clockSkewMs.warning) return ok('clock', found);
  const change = 'The clock of Redis determines expiry and limits. Synchronise both clocks with NTP.';
  return size < clockSkewMs.fault ? warning('clock', found, change) : fault('clock', found, change);
}

export const redisChecks: readonly RedisCheck[] = [
  version,
  role,
  writes,
  persistence,
  eviction,
  memory,
  encodings,
  freeing,
  channels,
  clock,
];
