// The server: starts the store and the serving processes, and stops them in reverse order on a signal.

import { setTimeout as delay } from 'node:timers/promises';
import { isatty } from 'node:tty';
import type { Logger } from 'pino';
import {
  type Config,
  isLocal,
  loadConfig,
  sharesMetrics,
  storeSettings,
  tlsSettings,
  withoutCredentials,
} from './config.ts';
import { openGatewayRootKey, watchRootKeys } from './endings.ts';
import { ApiError } from './errors.ts';
import type { Server } from './http/server.ts';
import { createLog } from './log.ts';
import { Metrics, textOf } from './metrics.ts';
import { startMigrator } from './migrator.ts';
import { atMostOnceIn } from './redis/atMostOnce.ts';
import { startEmbedded } from './redis/embedded.ts';
import { paceRewrites } from './redis/rewrites.ts';
import { exitCodeOf } from './scripts/dataVersion.ts';
import { openReports, reloadCertificates, serve, serveMetrics, stopWaitMs } from './serve.ts';
import { openStore, type Store } from './store.ts';
import { startSweeper } from './sweeper.ts';
import { buildVersion } from './version.ts';
import { forwardWarnings } from './warnings.ts';
import { startWorkers } from './workers.ts';

/** Under npm one Ctrl-C arrives twice, from the terminal and from npm. Only a later signal counts as a second one. */
const urgentAfterMs = 1_000;

const logWaitMs = 500;
/** How long the text for Prometheus is used again: computing it takes milliseconds of the event loop. */
const scrapeMs = 1_000;

/** Closes what is open. The last opened comes first, as it depends on the others. */
const closers: (() => Promise<unknown>)[] = [];
/** Makes load balancers stop sending requests, and waits DRAIN_MS. */
let drain = async () => {};
let reload = () => {};
/** Logs the steps of stopping. A server that did not start prints its error only. */
let logStep: (fields: object, step: string) => void = () => {};
/** Waits until the log is written, unless its reader has stopped. */
let flushLog = async () => {};

async function start() {
  const startedAt = performance.now();
  const config = loadConfig();
  const log = createLog(config);
  forwardWarnings((message) => log.warn(message));

  const embedded = config.redisUrl
    ? undefined
    : await startEmbedded({
        dataDir: config.dataDir,
        durable: config.durable,
        onEvent: (message) => log.warn(message),
      });
  if (embedded) {
    const stopPacing = paceRewrites(embedded.url, config.dataDir);
    closers.unshift(() => {
      stopPacing();
      return embedded.stop();
    });
  }

  const url = embedded?.url ?? config.redisUrl;
  const metrics = new Metrics();
  const { observe } = metrics;
  const onEvent = (message: string) => log.warn(message);
  const { isComplete } = embedded ?? {};
  const store = await openStore({ ...storeSettings(config), url, isComplete, onEvent, onUnsupported, observe });
  closers.unshift(() => store.close());

  const onSwept = () => {
    metrics.swept();
    return store.status.swept();
  };
  const sweeper = startSweeper(store, { intervalMs: config.sweepIntervalMs, log, onSwept });
  metrics.sweeps();
  closers.unshift(() => sweeper.stop());
  if (config.migrate === 'auto') {
    const migrator = startMigrator(store, { log });
    closers.unshift(() => migrator.stop());
  } else if (store.migrations.isDue) {
    log.warn('MIGRATE is manual: the stored data stays as it is until `tollgate migrate` runs.');
  }

  const rootKeys = watchRootKeys({ store, gateway: openGatewayRootKey(store, config.gatewayRootKey), log });
  closers.unshift(() => rootKeys.stop());

  const { host, port, workers: count } = config;
  let served: Server | undefined;
  const ownReport = openReports({ metrics, store, server: () => served, first: { config, rootKeys } });
  let workers: Awaited<ReturnType<typeof startWorkers>> | undefined;
  const scrape = atMostOnceIn(scrapeMs, async () => {
    const [own, others = []] = await Promise.all([ownReport(), workers?.reports()]);
    return textOf([own, ...others]);
  });
  if (count > 1) {
    const onRestart = () => metrics.workerRestarted();
    workers = await startWorkers({ count, redisUrl: url, host, port, log, onRestart, scrape });
  }
  if (!workers) served = await serve({ store, config, log, port, sharePort: false, metrics, scrape });
  const server = workers ?? served!;
  closers.unshift(() => server.close());
  drain = () => {
    server.drain();
    return delay(config.drainMs);
  };

  const metricsServer = await serveMetrics(config, scrape);
  if (metricsServer) closers.unshift(() => metricsServer.close());

  printPlaces(config, server.port, metricsServer?.port);
  if (config.firstRootKey === 'print') await createFirstRootKey(store, log);
  log.info({ version: buildVersion, durationMs: msSince(startedAt) }, 'Ready.');
  // Not waited for: there may be thousands of workspaces.
  warnOfImports(store, log).catch((err) => log.warn({ err }, 'Cannot check whether all imports are finished.'));
  reload = () => reloadCertificates([server, store], log);
  logStep = (fields, step) => log.info(fields, step);
  flushLog = () => Promise.race([new Promise<void>((resolve) => log.flush(() => resolve())), delay(logWaitMs)]);
}

/** Prints where the server, its documents, metrics and data are. */
function printPlaces(config: Config, port: number, metricsPort: number | undefined) {
  const { host, metricsHost, redisUrl, dataDir } = config;
  const url = urlOf(host, port, tlsSettings(config) && 'https');
  const metricsUrl = metricsPort === undefined ? url : urlOf(metricsHost, metricsPort);
  const areServed = metricsPort !== undefined || sharesMetrics(config);
  const off = `off, as other machines may reach ${host}. Set METRICS_PORT to serve them.`;
  console.log(`Tollgate listens on ${url}`);
  if (config.console)
    console.log(`Console: ${url}/console${isLocal(config) ? '' : ', to every machine that reaches this port'}`);
  console.log(`API reference: ${url}/docs`);
  console.log(`Metrics: ${areServed ? `${metricsUrl}/metrics` : off}`);
  console.log(`Data: ${redisUrl ? `Redis at ${withoutCredentials(redisUrl)}` : dataDir}`);
}

const msSince = (startedAt: number) => Math.round(performance.now() - startedAt);

const urlOf = (host: string, port: number, scheme = 'http') =>
  `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`;

/** Runs last, because the root key is printed only once. A failure does not stop the server. */
async function createFirstRootKey(store: Store, log: Logger) {
  try {
    const first = await store.workspaces.createFirst('default');
    if (first) console.log(`This is the first root key. It is printed only once: ${first.rootKey}`);
  } catch (err) {
    if (!(err instanceof ApiError)) throw err;
    const remedy = 'create one with `tollgate workspace create` and `tollgate root-key create`';
    log.error({ err }, `Cannot check whether this store needs a first root key. If it does, ${remedy}.`);
  }
}

/** Limit of the workspaces that the warning names. */
const importsNamed = 10;

/** An import that was interrupted leaves a workspace that is incomplete, usually without root keys. */
async function warnOfImports(store: Store, log: Logger) {
  const unfinished = (await store.workspaces.list()).filter(({ isImporting }) => isImporting);
  if (unfinished.length === 0) return;
  const workspaceIds = unfinished.slice(0, importsNamed).map(({ workspaceId }) => workspaceId);
  const remedy = 'Repeat `tollgate import` with the same file, or use `tollgate workspace end-import`';
  log.warn(
    { workspaceIds, count: unfinished.length },
    `Workspaces are incomplete, as their import runs or was interrupted. ${remedy}: docs/moving.md#an-import-that-did-not-finish.`,
  );
}

/** Errors for the operator are plain Errors. Any other class is a bug, and is printed with its stack. */
const messageOf = (error: Error) => (error.constructor === Error ? error.message : error.stack);

/** SIGTERM comes from a service manager and drains; after Ctrl-C a person waits. */
async function stop(signal: NodeJS.Signals) {
  await started;
  const startedAt = performance.now();
  logStep({ signal }, 'Draining.');
  if (signal === 'SIGTERM') {
    clearTimeout(deadline);
    await drain();
    startDeadline();
  }
  for (const close of closers) await close();
  logStep({ durationMs: msSince(startedAt) }, 'Stopped.');
  await flushLog();
}

let isStopping = false;
let isUrgent = false;
let deadline: NodeJS.Timeout;

function startDeadline() {
  deadline = setTimeout(() => {
    console.error(`tollgate: could not stop within ${stopWaitMs} ms`);
    process.exit(process.exitCode || 1);
  }, stopWaitMs).unref();
}

function onSignal(signal: NodeJS.Signals) {
  if (isUrgent) process.exit(1);
  if (isStopping) return;
  isStopping = true;
  setTimeout(() => {
    isUrgent = true;
  }, urgentAfterMs).unref();
  startDeadline();
  stop(signal).then(
    () => process.exit(process.exitCode ?? 0),
    (error) => {
      console.error(`tollgate: ${messageOf(error)}`);
      process.exit(1);
    },
  );
}

const standardFiles = [0, 1, 2];
const terminals = standardFiles.filter(isatty);

/** SIGHUP asks a service to read its files again. A program in a terminal also gets it when the terminal is closed. */
function onHangUp() {
  const isClosed = terminals.length > 0 && !terminals.some(isatty);
  if (isClosed) onSignal('SIGINT');
  else if (!isStopping) started.then(() => reload());
}

process.on('SIGINT', onSignal).on('SIGTERM', onSignal).on('SIGHUP', onHangUp);

/** Ends the program, without draining: it cannot serve. */
function fail(error: Error) {
  console.error(`tollgate: ${messageOf(error)}`);
  process.exitCode = exitCodeOf(error);
  onSignal('SIGINT');
}

/** Another release migrated the data while this server was paused, or an operator restored a newer backup. */
function onUnsupported(error: Error) {
  if (!isStopping) fail(error);
}

const started = start().catch(fail);
