// Checks everything Tollgate depends on, and prints what to change. It changes no settings and no data, and prints no
// credentials: Redis is named by the address of its node or by its socket only.

import { accessSync, constants, mkdtempSync, readFileSync, rmSync, statfsSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Config, loadConfig, storeSettings } from '../config.ts';
import { embeddedUrlIfRunning, hasData, startEmbedded } from '../store/embedded.ts';
import { scriptNames } from '../store/luaSource.ts';
import { type RedisFacts, readRedisFacts } from '../store/redisFacts.ts';
import { openStore } from '../store/store.ts';
import type { CommandResult } from './result.ts';
import type { Terminal } from './terminal.ts';

/** `unknown`: the check was not possible, for example because a managed Redis rejects CONFIG. */
type Status = 'ok' | 'warning' | 'fault' | 'unknown';

interface Finding {
  check: string;
  status: Status;
  found: string;
  /** How to fix it. */
  change?: string;
}

const ok = (check: string, found: string): Finding => ({ check, status: 'ok', found });
const warning = (check: string, found: string, change: string): Finding => ({
  check,
  status: 'warning',
  found,
  change,
});
const fault = (check: string, found: string, change: string): Finding => ({ check, status: 'fault', found, change });
const unknown = (check: string, found: string, change: string): Finding => ({
  check,
  status: 'unknown',
  found,
  change,
});

const megabyte = 1024 * 1024;
const oldestRedisMajor = 7;
const clockSkewMs = { warning: 1_000, fault: 60_000 };
const memoryUsed = { warning: 0.75, fault: 0.9 };
const freeBytes = { warning: 1024 * megabyte, fault: 64 * megabyte };
const openFilesMin = 4096;
/** Time for the checks of Redis, in addition to the timeout of one command. */
const redisChecksMs = 4_000;

export async function doctor(env: Terminal['env']): Promise<CommandResult> {
  const findings = [nodeVersion(), await uwsBuild(), openFiles()];
  let config: Config | undefined;
  try {
    config = loadConfig(env);
  } catch (error) {
    findings.push(fault('settings', oneLine(error), 'Correct them and run the command again. Redis was not checked.'));
  }
  if (config) findings.push(...(await checkStore(config)));

  const width = Math.max(...findings.map(({ check }) => check.length));
  const lines = findings.flatMap(({ check, status, found, change }) => {
    const line = `${status.padEnd(7)}  ${check.padEnd(width)}  ${found}`;
    return change ? [line, `${' '.repeat(width + 11)}${change}`] : [line];
  });
  const isFaulty = findings.some(({ status }) => status === 'fault');
  return { lines, json: findings, failed: isFaulty };
}

async function checkStore(config: Config): Promise<Finding[]> {
  const findings: Finding[] = [];
  const settings = storeSettings(config);
  let embedded: Awaited<ReturnType<typeof startEmbedded>> | undefined;
  const isNew = !config.redisUrl && !hasData(config.dataDir);
  // Without data, the checks of Redis need none: a check must not create the data directory.
  const dataDir = isNew ? mkdtempSync(join(tmpdir(), 'tollgate-doctor-')) : config.dataDir;
  try {
    const runningUrl = config.redisUrl || (await embeddedUrlIfRunning(dataDir));
    if (!runningUrl) embedded = await startEmbedded({ dataDir });
    const url = runningUrl || embedded!.url;
    const nodes = await withTimeout(readRedisFacts(url, settings, Date.now), redisChecksMs + config.redisTimeoutMs);
    findings.push(roundTrip(nodes, config, embedded !== undefined, url));
    const isMany = nodes.length > 1;
    for (const facts of nodes) {
      const named = (finding: Finding) => (isMany ? { ...finding, found: `${facts.node}: ${finding.found}` } : finding);
      findings.push(...redisChecks.map((check) => named(check(facts))));
    }
    findings.push(await scriptsLoad({ ...settings, url }));
    if (isNew) findings.push(noDataDirectory(config.dataDir));
    else if (!config.redisUrl) findings.push(dataDirectory(dataDir), disk(dataDir, nodes[0]!));
  } catch (error) {
    const change = config.redisUrl
      ? 'Check that Redis runs, that REDIS_URL has its address and account, and that no firewall blocks the connection.'
      : 'Fix what the message names. The log is redis/redis.log in TOLLGATE_DATA_DIR.';
    findings.push(fault('redis', oneLine(error), change));
  } finally {
    await embedded?.stop();
    if (isNew) rmSync(dataDir, { recursive: true });
  }
  return findings;
}

/** The client of an incomplete Cluster waits without end for it to become complete. */
function withTimeout<Result>(result: Promise<Result>, timeoutMs: number): Promise<Result> {
  const message = `Redis does not reply within ${timeoutMs} ms. If it is a Cluster, check that cluster_state is ok.`;
  return Promise.race([result, delay(timeoutMs).then(() => Promise.reject(new Error(message)))]);
}

/** The first line of an error, shortened: an error of Redis may contain a whole script. */
const oneLine = (error: unknown) => {
  const [first, ...rest] = (error as Error).message.split('\n');
  const text = first!.endsWith(':') ? `${first} ${rest.map((line) => line.trim()).join('; ')}` : first!;
  return text.slice(0, 500);
};

function nodeVersion(): Finding {
  const { engines } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    engines: { node: string };
  };
  const oldest = /[\d.]+/.exec(engines.node)![0];
  const [major, minor] = process.versions.node.split('.').map(Number) as [number, number];
  const [oldestMajor, oldestMinor] = oldest.split('.').map(Number) as [number, number];
  if (major > oldestMajor || (major === oldestMajor && minor >= oldestMinor)) return ok('node', process.versions.node);
  return fault('node', process.versions.node, `Run Tollgate on Node ${oldest} or later: 20, 22, 24 or 26.`);
}

async function uwsBuild(): Promise<Finding> {
  try {
    const { uws } = await import('../http/uws.ts');
    uws();
    return ok('uWebSockets.js', `matches its pinned hash and loads on ${process.platform} ${process.arch}`);
  } catch (error) {
    const [first, ...change] = (error as Error).message.split('\n');
    return fault('uWebSockets.js', first!, change.join(' ').trim() || 'Use one of the versions named.');
  }
}

function openFiles(): Finding {
  const report = process.report.getReport() as { userLimits?: { open_files?: { soft: number | string } } };
  const soft = report.userLimits?.open_files?.soft;
  if (soft === undefined) return unknown('open files', 'The limit is not available.', 'See `ulimit -n`.');
  if (soft === 'unlimited' || Number(soft) >= openFilesMin) return ok('open files', `${soft}, one per connection`);
  return warning(
    'open files',
    `${soft}, which is also the maximum number of connections`,
    `Raise it to ${openFilesMin} or more for the service: \`ulimit -n\`, or LimitNOFILE= in systemd.`,
  );
}

function roundTrip(nodes: readonly RedisFacts[], config: Config, isStarted: boolean, url: string): Finding {
  const roundTripMs = Math.max(...nodes.map((facts) => facts.roundTripMs));
  const external = nodes.length > 1 ? `that of REDIS_URL (${nodes.length} nodes)` : 'that of REDIS_URL';
  const which = config.redisUrl ? external : `embedded (${url}, ${isStarted ? 'started for this check' : 'running'})`;
  const found = `${which}, replies within ${roundTripMs.toFixed(1)} ms`;
  if (roundTripMs < config.redisTimeoutMs / 4) return ok('redis', found);
  return warning(
    'redis',
    found,
    `REDIS_TIMEOUT_MS is ${config.redisTimeoutMs}. Move Redis closer, or set more than four times the round trip time.`,
  );
}

type RedisCheck = (facts: RedisFacts) => Finding;

const redisChecks: readonly RedisCheck[] = [version, role, persistence, eviction, memory, encodings, freeing, clock];

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
  return ok(check, found);
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

function memory({ info }: RedisFacts): Finding {
  const used = Number(info('used_memory'));
  const limit = Number(info('maxmemory')) || Number(info('total_system_memory'));
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
  const change = 'Give Redis more memory. When it is full, keys cannot be created and limits cannot be counted.';
  return part < memoryUsed.fault ? warning('memory', found, change) : fault('memory', found, change);
}

const inMegabytes = (bytes: number) => Math.round(bytes / megabyte).toLocaleString('en');

/** With these settings of the embedded Redis (store/embedded.ts), records and windows keep compact encodings. */
const recommended = {
  'hash-max-listpack-entries': 128,
  'hash-max-listpack-value': 16_384,
  'zset-max-listpack-value': 64,
};

function encodings({ config }: RedisFacts): Finding {
  const settings = Object.entries(recommended).map(([parameter, minimum]) => ({
    parameter,
    minimum,
    actual: config(parameter),
  }));
  const advice = settings.map(({ parameter, minimum }) => `${parameter} ${minimum}`).join(', ');
  if (settings.some(({ actual }) => actual === undefined))
    return unknown('encodings', 'CONFIG is rejected.', `Recommended: ${advice}.`);
  const low = settings.filter(({ actual, minimum }) => Number(actual) < minimum);
  if (low.length === 0) return ok('encodings', 'compact');
  return warning(
    'encodings',
    `${low.map(({ parameter, actual }) => `${parameter} ${actual}`).join(', ')}: keys use more memory than necessary`,
    `Set ${low.map(({ parameter, minimum }) => `${parameter} ${minimum}`).join(', ')}.`,
  );
}

/** Usage counts expire as hashes that may have millions of fields. */
const lazyFreeing = ['lazyfree-lazy-expire', 'lazyfree-lazy-server-del', 'lazyfree-lazy-user-del'];

function freeing({ config }: RedisFacts): Finding {
  const allOf = (parameters: readonly string[]) => parameters.map((parameter) => `${parameter} yes`).join(', ');
  if (lazyFreeing.some((parameter) => config(parameter) === undefined))
    return unknown('freeing', 'CONFIG is rejected.', `Recommended: ${allOf(lazyFreeing)}.`);
  const off = lazyFreeing.filter((parameter) => config(parameter) !== 'yes');
  if (off.length === 0) return ok('freeing', 'large records are freed in the background');
  return warning(
    'freeing',
    `${off.map((parameter) => `${parameter} no`).join(', ')}: Redis blocks for up to a second per million fields that expire`,
    `Set ${allOf(off)}.`,
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

async function scriptsLoad(settings: Parameters<typeof openStore>[0]): Promise<Finding> {
  try {
    const store = await openStore(settings);
    await store.close();
    return ok('scripts', `all ${scriptNames.length} load`);
  } catch (error) {
    return fault('scripts', oneLine(error), 'Allow this account to use EVALSHA, SCRIPT LOAD, FCALL and FUNCTION LOAD.');
  }
}

const noDataDirectory = (dataDir: string): Finding =>
  unknown(
    'data directory',
    `${dataDir} has no data yet`,
    'The first start of the server creates it. If a server runs, set TOLLGATE_DATA_DIR as for the server.',
  );

function dataDirectory(dataDir: string): Finding {
  const dir = join(dataDir, 'redis');
  const check = 'data directory';
  const { mode, uid } = statSync(dir);
  if (uid !== process.getuid?.())
    return fault(check, `${dir} belongs to user ${uid}`, 'It must belong to the user that runs Tollgate.');
  if (mode & 0o077) return warning(check, `${dir} is accessible to other users`, `chmod 700 ${dir}`);
  try {
    accessSync(dir, constants.R_OK | constants.W_OK | constants.X_OK);
    return ok(check, `${dir}, private`);
  } catch {
    return fault(
      check,
      `${dir} cannot be written`,
      'Check its permissions, and that the file system is not read-only.',
    );
  }
}

function disk(dataDir: string, { info }: RedisFacts): Finding {
  const { bavail, bsize } = statfsSync(dataDir);
  const free = bavail * bsize;
  const file = Number(info('aof_current_size') ?? 0);
  const found = `${inMegabytes(free)} MB free, the append-only file has ${inMegabytes(file)} MB`;
  const change = 'Free disk space: rewriting the file needs its size again, and a full disk stops all writes.';
  if (free < freeBytes.fault) return fault('disk', found, change);
  return free < Math.max(freeBytes.warning, file) ? warning('disk', found, change) : ok('disk', found);
}
