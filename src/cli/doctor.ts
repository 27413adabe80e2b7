// Looks at everything Tollgate stands on and says what to change. It changes no settings and no data, and prints no
// credentials: where Redis is, is told by its node's address or its socket only.

import { accessSync, constants, readFileSync, statfsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Config, loadConfig, storeSettings } from '../config.ts';
import { embeddedUrlIfRunning, startEmbedded } from '../store/embedded.ts';
import { scriptNames } from '../store/luaSource.ts';
import { type RedisFacts, readRedisFacts } from '../store/redisFacts.ts';
import { openStore } from '../store/store.ts';
import type { Said } from './index.ts';

/** `unknown`: it could not be found out, as where a managed Redis refuses CONFIG. */
type Status = 'ok' | 'warning' | 'fault' | 'unknown';

interface Finding {
  check: string;
  status: Status;
  found: string;
  /** What to do about it. */
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
const skewMs = { warning: 1_000, fault: 60_000 };
const memoryPart = { warning: 0.75, fault: 0.9 };
const freeBytes = { warning: 1024 * megabyte, fault: 64 * megabyte };
const openFilesMin = 4096;
/** What the examination of Redis may take, beside the one command it may wait for. */
const examineMs = 4_000;

export async function doctor(): Promise<Said> {
  const findings = [nodeVersion(), await uwsBuild(), openFiles()];
  let config: Config | undefined;
  try {
    config = loadConfig();
  } catch (error) {
    findings.push(fault('settings', oneLine(error), 'Correct them, then look again: Redis was not looked for.'));
  }
  if (config) findings.push(...(await examineStore(config)));

  const width = Math.max(...findings.map(({ check }) => check.length));
  const words = findings.flatMap(({ check, status, found, change }) => {
    const line = `${status.padEnd(7)}  ${check.padEnd(width)}  ${found}`;
    return change ? [line, `${' '.repeat(width + 11)}${change}`] : [line];
  });
  const isFaulty = findings.some(({ status }) => status === 'fault');
  return { words, json: findings, failed: isFaulty };
}

async function examineStore(config: Config): Promise<Finding[]> {
  const findings: Finding[] = [];
  const settings = storeSettings(config);
  let embedded: Awaited<ReturnType<typeof startEmbedded>> | undefined;
  try {
    const runningUrl = config.redisUrl || (await embeddedUrlIfRunning(config.dataDir));
    if (!runningUrl) embedded = await startEmbedded({ dataDir: config.dataDir });
    const url = runningUrl || embedded!.url;
    const nodes = await inTime(readRedisFacts(url, settings, Date.now), examineMs + config.redisTimeoutMs);
    findings.push(reached(nodes, config, embedded !== undefined, url));
    const isMany = nodes.length > 1;
    for (const facts of nodes) {
      const named = (finding: Finding) => (isMany ? { ...finding, found: `${facts.node}: ${finding.found}` } : finding);
      findings.push(...redisChecks.map((check) => named(check(facts))));
    }
    findings.push(await scriptsLoad({ ...settings, url }));
    if (!config.redisUrl) findings.push(dataDirectory(config.dataDir), disk(config.dataDir, nodes[0]!));
  } catch (error) {
    const change = config.redisUrl
      ? 'See that it runs, that REDIS_URL names it with the right account, and that nothing between refuses the connection.'
      : 'The message says what stands in the way; the log is redis/redis.log below TOLLGATE_DATA_DIR.';
    findings.push(fault('redis', oneLine(error), change));
  } finally {
    await embedded?.stop();
  }
  return findings;
}

/** A client of a Cluster that is not whole waits for it to become so, without end. */
function inTime<Answer>(answer: Promise<Answer>, mostMs: number): Promise<Answer> {
  const words = `Redis does not answer within ${mostMs} ms. Of a Cluster, see that cluster_state is ok.`;
  return Promise.race([answer, delay(mostMs).then(() => Promise.reject(new Error(words)))]);
}

/** The first line of an error, bounded: what Redis answers may carry whole scripts. */
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
    return ok('uWebSockets.js', `is as pinned, and loads on ${process.platform} ${process.arch}`);
  } catch (error) {
    const [first, ...change] = (error as Error).message.split('\n');
    return fault('uWebSockets.js', first!, change.join(' ').trim() || 'Use one of these.');
  }
}

function openFiles(): Finding {
  const report = process.report.getReport() as { userLimits?: { open_files?: { soft: number | string } } };
  const soft = report.userLimits?.open_files?.soft;
  if (soft === undefined) return unknown('open files', 'The limit is not told here.', 'See `ulimit -n`.');
  if (soft === 'unlimited' || Number(soft) >= openFilesMin) return ok('open files', `${soft}, one a connection`);
  return warning(
    'open files',
    `${soft}: no more connections than that`,
    `Raise it for the service to ${openFilesMin} or more: \`ulimit -n\`, or LimitNOFILE= in systemd.`,
  );
}

function reached(nodes: readonly RedisFacts[], config: Config, isOurs: boolean, url: string): Finding {
  const roundTripMs = Math.max(...nodes.map((facts) => facts.roundTripMs));
  const kind = nodes.length > 1 ? `that of REDIS_URL, ${nodes.length} nodes,` : 'that of REDIS_URL';
  const which = config.redisUrl ? kind : `its own (${url}), ${isOurs ? 'started for the moment,' : 'running,'}`;
  const found = `${which} answers within ${roundTripMs.toFixed(1)} ms`;
  if (roundTripMs < config.redisTimeoutMs / 4) return ok('redis', found);
  return warning(
    'redis',
    found,
    `REDIS_TIMEOUT_MS is ${config.redisTimeoutMs}: bring Redis nearer, or allow more than four times what it takes.`,
  );
}

type RedisCheck = (facts: RedisFacts) => Finding;

const redisChecks: readonly RedisCheck[] = [version, role, persistence, eviction, memory, encodings, freeing, clock];

function version({ info }: RedisFacts): Finding {
  const valkey = info('valkey_version');
  const told = valkey ?? info('redis_version');
  if (told === undefined) return unknown('version', 'INFO is refused.', 'Redis 7.0 or Valkey 7.2 is the least.');
  const name = `${valkey ? 'Valkey' : 'Redis'} ${told}`;
  if (Number(told.split('.')[0]) >= oldestRedisMajor) return ok('version', name);
  return fault('version', name, 'Run Redis 7.0 or later, or Valkey 7.2 or later.');
}

function role({ info, config }: RedisFacts): Finding {
  const told = info('role');
  if (told === undefined) return unknown('role', 'INFO is refused.', 'See that it is a master.');
  if (told !== 'master') return fault('role', 'a replica, which refuses writes', 'Let REDIS_URL name the master.');
  const replicas = Number(info('connected_slaves') ?? 0);
  const wanted = config('min-replicas-to-write');
  if (Number(wanted ?? 0) > replicas) {
    return fault(
      'role',
      `a master with ${replicas} replicas that takes no writes without ${wanted}`,
      'Bring the replicas back, or lower min-replicas-to-write.',
    );
  }
  if (replicas === 0) return ok('role', 'a master without replicas');
  const found = `a master with ${replicas} replica${replicas === 1 ? '' : 's'}`;
  if (wanted === undefined) {
    return unknown('role', `${found}; CONFIG is refused`, 'min-replicas-to-write 1 bounds what a failover loses.');
  }
  if (Number(wanted) > 0) return ok('role', `${found}, min-replicas-to-write ${wanted}`);
  return warning(
    'role',
    `${found}, min-replicas-to-write 0: a master cut off from them goes on, and what it answers is lost`,
    'Set min-replicas-to-write 1 and min-replicas-max-lag 10.',
  );
}

function persistence({ info, config }: RedisFacts): Finding {
  const check = 'persistence';
  const aof = info('aof_enabled');
  const fsync = config('appendfsync');
  const save = config('save');
  if (aof === undefined) return unknown(check, 'INFO is refused.', 'It should be appendonly yes.');
  if (aof === '0') {
    const change = 'Set appendonly yes.';
    if (save === '' && info('connected_slaves') === '0')
      return fault(check, 'none: a restart of Redis loses every key', change);
    if (save === '') return warning(check, 'none: the replicas alone hold what there is', change);
    return warning(check, 'snapshots only: a crash loses what came after the last one', change);
  }
  if (info('aof_last_write_status') === 'err')
    return fault(check, 'the append-only file cannot be written', "See Redis's log, and the free space of its disk.");
  if (info('aof_last_bgrewrite_status') === 'err')
    return warning(check, 'the append-only file could not be rewritten', "It grows. See Redis's log and free memory.");
  const found = `append-only file, appendfsync ${fsync ?? 'untold'}`;
  if (fsync === undefined) return unknown(check, `${found}: CONFIG is refused`, 'It should be everysec or always.');
  if (fsync === 'no')
    return warning(check, `${found}: a power loss may take half a minute`, 'Set appendfsync everysec, or always.');
  return ok(check, found);
}

function eviction({ info }: RedisFacts): Finding {
  const policy = info('maxmemory_policy');
  if (policy === undefined) return unknown('eviction', 'INFO is refused.', 'maxmemory-policy must be noeviction.');
  if (policy === 'noeviction') return ok('eviction', policy);
  return fault(
    'eviction',
    `${policy}: when memory is full, keys vanish and limits forget`,
    'Set maxmemory-policy noeviction.',
  );
}

function memory({ info }: RedisFacts): Finding {
  const used = Number(info('used_memory'));
  const most = Number(info('maxmemory')) || Number(info('total_system_memory'));
  if (!(used >= 0) || !(most > 0))
    return unknown('memory', 'INFO does not tell.', 'See that Redis has room: without it writes are refused.');
  const part = used / most;
  const limit = Number(info('maxmemory')) > 0 ? 'maxmemory' : "the machine's, without maxmemory";
  const found = `${inMegabytes(used)} of ${inMegabytes(most)} MB (${limit}): ${Math.round(part * 100)} %`;
  if (part < memoryPart.warning) return ok('memory', found);
  const change = 'Give Redis more memory. When it is full, keys cannot be made and limits cannot be counted.';
  return part < memoryPart.fault ? warning('memory', found, change) : fault('memory', found, change);
}

const inMegabytes = (bytes: number) => Math.round(bytes / megabyte).toLocaleString('en');

/** What the embedded Redis sets, see store/embedded: records and windows stay in the compact encodings. */
const recommended = {
  'hash-max-listpack-entries': 128,
  'hash-max-listpack-value': 16_384,
  'zset-max-listpack-value': 64,
};

function encodings({ config }: RedisFacts): Finding {
  const words = Object.entries(recommended).map(([parameter, least]) => ({ parameter, least, is: config(parameter) }));
  const advice = words.map(({ parameter, least }) => `${parameter} ${least}`).join(', ');
  if (words.some(({ is }) => is === undefined))
    return unknown('encodings', 'CONFIG is refused.', `Recommended: ${advice}.`);
  const low = words.filter(({ is, least }) => Number(is) < least);
  if (low.length === 0) return ok('encodings', 'compact');
  return warning(
    'encodings',
    `${low.map(({ parameter, is }) => `${parameter} ${is}`).join(', ')}: keys take more memory than they need`,
    `Set ${low.map(({ parameter, least }) => `${parameter} ${least}`).join(', ')}.`,
  );
}

/** Usage counts expire as whole hashes, which may have millions of fields. */
const lazyFreeing = ['lazyfree-lazy-expire', 'lazyfree-lazy-server-del', 'lazyfree-lazy-user-del'];

function freeing({ config }: RedisFacts): Finding {
  const allOf = (parameters: readonly string[]) => parameters.map((parameter) => `${parameter} yes`).join(', ');
  if (lazyFreeing.some((parameter) => config(parameter) === undefined))
    return unknown('freeing', 'CONFIG is refused.', `Recommended: ${allOf(lazyFreeing)}.`);
  const off = lazyFreeing.filter((parameter) => config(parameter) !== 'yes');
  if (off.length === 0) return ok('freeing', 'large records are freed in the background');
  return warning(
    'freeing',
    `${off.map((parameter) => `${parameter} no`).join(', ')}: Redis stops for up to a second for each million fields that expire`,
    `Set ${allOf(off)}.`,
  );
}

function clock({ skewMs: skew }: RedisFacts): Finding {
  const by = Math.abs(skew);
  const length = by < 10_000 ? `${Math.round(by)} ms` : `${Math.round(by / 1000)} s`;
  const found = `Redis's is ${length} ${skew < 0 ? 'behind' : 'ahead of'} this machine's`;
  if (by < skewMs.warning) return ok('clock', found);
  const change = "Redis's clock decides when keys expire and limits end. Keep both by NTP.";
  return by < skewMs.fault ? warning('clock', found, change) : fault('clock', found, change);
}

async function scriptsLoad(settings: Parameters<typeof openStore>[0]): Promise<Finding> {
  try {
    const store = await openStore(settings);
    await store.close();
    return ok('scripts', `all ${scriptNames.length} load`);
  } catch (error) {
    return fault('scripts', oneLine(error), 'Redis must allow EVALSHA and SCRIPT LOAD to this account.');
  }
}

function dataDirectory(dataDir: string): Finding {
  const dir = join(dataDir, 'redis');
  const check = 'data directory';
  const { mode, uid } = statSync(dir);
  if (uid !== process.getuid?.())
    return fault(check, `${dir} belongs to user ${uid}`, 'It must belong to the user who runs Tollgate.');
  if (mode & 0o077) return warning(check, `${dir} is open to others`, `chmod 700 ${dir}`);
  try {
    accessSync(dir, constants.R_OK | constants.W_OK | constants.X_OK);
    return ok(check, `${dir}, private`);
  } catch {
    return fault(check, `${dir} cannot be written`, 'See its rights, and that the file system is not read-only.');
  }
}

function disk(dataDir: string, { info }: RedisFacts): Finding {
  const { bavail, bsize } = statfsSync(dataDir);
  const free = bavail * bsize;
  const file = Number(info('aof_current_size') ?? 0);
  const found = `${inMegabytes(free)} MB free, the append-only file has ${inMegabytes(file)} MB`;
  const change = 'Make room: a rewrite of the file needs as much again, and without room writes are refused.';
  if (free < freeBytes.fault) return fault('disk', found, change);
  return free < Math.max(freeBytes.warning, file) ? warning('disk', found, change) : ok('disk', found);
}
