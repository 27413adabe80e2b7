// Checks everything Tollgate depends on, and prints what to change. It changes no settings and no data, and prints no
// credentials: Redis is named by the address of its node or by its socket only.

import {
  accessSync,
  constants,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  statSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Config, loadConfig, storeSettings } from '../config.ts';
import { certificateEndMs } from '../domain/certificate.ts';
import { type Finding, fault, ok, unknown, warning } from '../domain/finding.ts';
import { certificateFinding, checkRootKeys } from '../endings.ts';
import { checksOf, inMegabytes, megabyte } from '../redis/checks.ts';
import { embeddedUrlIfRunning, hasData, startEmbedded } from '../redis/embedded.ts';
import { isReached, type RedisFacts, readRedisFacts } from '../redis/facts.ts';
import { refusalOf } from '../redis/refusedWrites.ts';
import { isUnsupported } from '../scripts/dataVersion.ts';
import { library } from '../scripts/loader.ts';
import { openStore } from '../store.ts';
import type { CommandResult } from './result.ts';
import type { Terminal } from './terminal.ts';

const freeBytes = { warning: 1024 * megabyte, fault: 64 * megabyte };
const openFilesMin = 4096;
/** Time for the checks of Redis, in addition to the timeout of one command. */
const redisChecksMs = 4_000;

export async function doctor(env: Terminal['env']): Promise<CommandResult> {
  let config: Config | undefined;
  const wrong: Finding[] = [];
  try {
    config = loadConfig(env);
  } catch (error) {
    wrong.push(fault('settings', oneLine(error), 'Correct them and run the command again. Redis was not checked.'));
  }
  const findings = [nodeVersion(), await uwsBuild(config?.dataDir), openFiles(), ...wrong];
  if (config) findings.push(...certificate(config), ...(await checkStore(config)));

  const width = Math.max(...findings.map(({ check }) => check.length));
  const lines = findings.flatMap(({ check, status, found, change }) => {
    const line = `${status.padEnd(7)}  ${check.padEnd(width)}  ${found}`;
    return change ? [line, `${' '.repeat(width + 11)}${change}`] : [line];
  });
  const isFaulty = findings.some(({ status }) => status === 'fault');
  return { lines, json: findings, failed: isFaulty };
}

async function checkStore(config: Config): Promise<Finding[]> {
  const settings = storeSettings(config);
  let embedded: Awaited<ReturnType<typeof startEmbedded>> | undefined;
  const isNew = !config.redisUrl && !hasData(config.dataDir);
  // Without data, the checks of Redis need none: a check must not create the data directory.
  const dataDir = isNew ? mkdtempSync(join(tmpdir(), 'tollgate-doctor-')) : config.dataDir;
  // First, and without Redis, because a full disk causes later failures.
  const findings = placeOf(config, isNew);
  try {
    const runningUrl = config.redisUrl || (await embeddedUrlIfRunning(dataDir));
    if (!runningUrl) embedded = await startEmbedded({ dataDir });
    const url = runningUrl || embedded!.url;
    const all = await withTimeout(readRedisFacts(url, settings, Date.now), redisChecksMs + config.redisTimeoutMs);
    const nodes = all.filter(isReached);
    findings.push(roundTrip(nodes, config, embedded !== undefined, url));
    findings.push(...checksOf(all, ({ node }) => `${node}`));
    findings.push(...(await scriptsAndRootKeys({ ...settings, url }, config.gatewayRootKey)));
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

async function uwsBuild(dataDir: string | undefined): Promise<Finding> {
  try {
    const { usePinsOf, uws } = await import('../http/uws.ts');
    if (dataDir !== undefined) usePinsOf(dataDir);
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

/** The certificate in the file, which a running server may not have read yet. */
function certificate({ tlsCertFile }: Config): Finding[] {
  if (tlsCertFile === '') return [];
  try {
    return [certificateFinding(certificateEndMs(readFileSync(tlsCertFile, 'utf8')), Date.now())];
  } catch (error) {
    return [fault('certificate', oneLine(error), 'Correct TLS_CERT_FILE, or its file.')];
  }
}

async function scriptsAndRootKeys(settings: Parameters<typeof openStore>[0], rootKey: string): Promise<Finding[]> {
  try {
    const store = await openStore(settings);
    const found = await checkRootKeys(store, rootKey).catch((error) => [
      unknown('root keys', oneLine(error), 'Correct the faults above first.'),
    ]);
    await store.close();
    return [ok('scripts', `all ${library().scripts.size} load`), ...found];
  } catch (error) {
    const isRefused = refusalOf(((error as Error).cause as Error | undefined)?.message ?? '') !== undefined;
    const allow = 'Allow this account to use FCALL, FUNCTION LIST, FUNCTION LOAD and FUNCTION DELETE.';
    const other = isUnsupported(error) ? 'Nothing was changed.' : allow;
    const change = isRefused ? 'Correct `writes` first.' : other;
    return [fault('scripts', oneLine(error), change)];
  }
}

/** The data directory and its disk. */
function placeOf({ redisUrl, dataDir }: Config, isNew: boolean): Finding[] {
  if (redisUrl) return [];
  if (isNew) {
    const change =
      'The first start of the server creates it. If a server runs, set TOLLGATE_DATA_DIR as for the server.';
    return [unknown('data directory', `${dataDir} has no data yet`, change)];
  }
  try {
    return [dataDirectory(dataDir), disk(dataDir)];
  } catch (error) {
    return [fault('data directory', oneLine(error), 'It must belong to the user that runs Tollgate.')];
  }
}

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
    const change = 'Check its permissions, and that the file system is not read-only.';
    return fault(check, `${dir} cannot be written`, change);
  }
}

function disk(dataDir: string): Finding {
  const { bavail, bsize } = statfsSync(dataDir);
  const free = bavail * bsize;
  const file = bytesIn(join(dataDir, 'redis', 'appendonlydir'));
  const found = `${inMegabytes(free)} MB free, the append-only file has ${inMegabytes(file)} MB`;
  const change = 'Free disk space: rewriting the file needs its size again, and a full disk stops all writes.';
  if (free < freeBytes.fault) return fault('disk', found, change);
  return free < Math.max(freeBytes.warning, file) ? warning('disk', found, change) : ok('disk', found);
}

/** Redis may remove a file of an earlier rewrite meanwhile. */
function bytesIn(dir: string): number {
  if (!existsSync(dir)) return 0;
  const sizes = readdirSync(dir).map((name) => statSync(join(dir, name), { throwIfNoEntry: false })?.size ?? 0);
  return sizes.reduce((sum, size) => sum + size, 0);
}
