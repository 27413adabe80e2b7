// The server: wires configuration, Redis and the processes that serve, and stops them in the opposite order when told to.

import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { loadConfig, sharesMetrics, storeSettings, tlsSettings } from './config.ts';
import { ApiError } from './errors.ts';
import { createLog } from './log.ts';
import { createMetrics, onceASecond, textOf } from './metrics.ts';
import { openSnapshots, serve, serveMetrics, stopWaitMs } from './serve.ts';
import { startEmbedded } from './store/embedded.ts';
import { openStore, type Store } from './store/store.ts';
import { startSweeper } from './sweeper.ts';
import { startWorkers } from './workers.ts';

/** One Ctrl-C comes twice below npm, from the terminal and from npm: only a later signal is a second one. */
const urgentAfterMs = 1_000;

/** What is open, the last first: each is closed before what it stands on. */
const open: (() => Promise<unknown>)[] = [];
/** Has load balancers turn away, and waits as long as they are given for it. */
let drain = async () => {};

async function start() {
  const config = loadConfig();
  const log = createLog(config);

  const embedded = config.redisUrl
    ? undefined
    : await startEmbedded({
        dataDir: config.dataDir,
        durable: config.durable,
        onEvent: (message) => log.warn(message),
      });
  if (embedded) open.unshift(() => embedded.stop());

  const url = embedded?.url ?? config.redisUrl;
  const metrics = createMetrics();
  const { observe } = metrics;
  const store = await openStore({ ...storeSettings(config), url, onEvent: (message) => log.warn(message), observe });
  open.unshift(() => store.close());

  const sweeper = startSweeper(store, { intervalMs: config.sweepIntervalMs, log, onSwept: metrics.swept });
  metrics.sweeps();
  open.unshift(() => sweeper.stop());

  const { host, port, workers: count } = config;
  const ownSnapshot = openSnapshots(metrics, store);
  let workers: Awaited<ReturnType<typeof startWorkers>> | undefined;
  const scrape = onceASecond(async () => {
    const [own, others = []] = await Promise.all([ownSnapshot(), workers?.snapshots()]);
    return { text: await textOf([own, ...others]), ageMs: 0 };
  });
  if (count > 1) {
    workers = await startWorkers({ count, redisUrl: url, host, port, log, onRestart: metrics.restarted, scrape });
  }
  const server = workers ?? (await serve({ store, config, log, port, sharePort: false, metrics, scrape }));
  open.unshift(() => server.close());
  drain = () => {
    server.drain();
    return delay(config.drainMs);
  };

  const metricsServer = await serveMetrics(config, scrape);
  if (metricsServer) open.unshift(() => metricsServer.close());

  console.log(`Tollgate listens on ${urlOf(host, server.port, tlsSettings(config) && 'https')}`);
  if (metricsServer) console.log(`Its metrics are at ${urlOf(config.metricsHost, metricsServer.port)}/metrics`);
  else if (!sharesMetrics(config))
    log.info(`${host} may be reached by others, so /metrics is not on its port. METRICS_PORT gives it one.`);
  if (config.firstRootKey === 'print') await createFirstRootKey(store, log);
}

const urlOf = (host: string, port: number, scheme = 'http') =>
  `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`;

/** After everything else has gone well, as it is printed only once. A server that serves does not end for want of it. */
async function createFirstRootKey(store: Store, log: Logger) {
  try {
    const first = await store.workspaces.createFirst('default');
    if (first) console.log(`This is the first root key. It is shown once: ${first.rootKey}`);
  } catch (err) {
    if (!(err instanceof ApiError)) throw err;
    const remedy = '`tollgate workspace create` and `tollgate root-key create` make one';
    log.error({ err }, `Redis could not be asked whether this store needs a first root key. If it does, ${remedy}.`);
  }
}

/** What an operator can act on says it in its message; anything else is a bug, and shows where. */
const inWords = (error: Error) => (error.constructor === Error ? error.message : error.stack);

/** SIGTERM comes from what sends requests here or knows who does; Ctrl-C from somebody who waits. */
async function stop(signal: NodeJS.Signals) {
  await started;
  if (signal === 'SIGTERM') {
    clearTimeout(deadline);
    await drain();
    startDeadline();
  }
  for (const close of open) await close();
}

let isStopping = false;
let isUrgent = false;
let deadline: NodeJS.Timeout;

function startDeadline() {
  deadline = setTimeout(() => {
    console.error(`tollgate: could not stop within ${stopWaitMs} ms`);
    process.exit(1);
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
      console.error(`tollgate: ${inWords(error)}`);
      process.exit(1);
    },
  );
}

process.on('SIGINT', onSignal).on('SIGTERM', onSignal);

const started = start().catch((error) => {
  console.error(`tollgate: ${inWords(error)}`);
  process.exitCode = 1;
  onSignal('SIGINT');
});
