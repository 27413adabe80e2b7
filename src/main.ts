// The server: wires configuration, Redis and the processes that serve, and stops them in the opposite order when told to.

import { loadConfig, storeSettings, tlsSettings } from './config.ts';
import { createLog, serve } from './serve.ts';
import { startEmbedded } from './store/embedded.ts';
import { openStore, type Store } from './store/store.ts';
import { startSweeper } from './sweeper.ts';
import { startWorkers } from './workers.ts';

const stopWaitMs = 10_000;
/** One Ctrl-C comes twice below npm, from the terminal and from npm: only a later signal is a second one. */
const urgentAfterMs = 1_000;

/** What is open, the last first: each is closed before what it stands on. */
const open: (() => Promise<unknown>)[] = [];

async function start() {
  const config = loadConfig();
  const log = createLog(config);

  const embedded = config.redisUrl
    ? undefined
    : await startEmbedded({ dataDir: config.dataDir, onEvent: (message) => log.warn(message) });
  if (embedded) open.unshift(() => embedded.stop());

  const url = embedded?.url ?? config.redisUrl;
  const store = await openStore({ ...storeSettings(config), url, onEvent: (message) => log.warn(message) });
  open.unshift(() => store.close());

  const sweeper = startSweeper(store, { intervalMs: config.sweepIntervalMs, log });
  open.unshift(() => sweeper.stop());

  const { host, port, workers } = config;
  const server =
    workers > 1
      ? await startWorkers({ count: workers, redisUrl: url, host, port, log })
      : await serve({ store, config, log, port, sharePort: false });
  open.unshift(() => server.close());

  const scheme = tlsSettings(config) ? 'https' : 'http';
  console.log(`Tollgate listens on ${scheme}://${host.includes(':') ? `[${host}]` : host}:${server.port}`);
  await createFirstRootKey(store);
}

/** After everything else has gone well, as it is shown only once. */
async function createFirstRootKey(store: Store) {
  const first = await store.workspaces.createFirst('default');
  if (first) console.log(`This is the first root key. It is shown once: ${first.rootKey}`);
}

/** What an operator can act on says it in its message; anything else is a bug, and shows where. */
const inWords = (error: Error) => (error.constructor === Error ? error.message : error.stack);

async function stop() {
  await started;
  for (const close of open) await close();
}

let isStopping = false;
let isUrgent = false;

function onSignal() {
  if (isUrgent) process.exit(1);
  if (isStopping) return;
  isStopping = true;
  setTimeout(() => {
    isUrgent = true;
  }, urgentAfterMs).unref();
  setTimeout(() => {
    console.error(`tollgate: could not stop within ${stopWaitMs} ms`);
    process.exit(1);
  }, stopWaitMs).unref();
  stop().then(
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
  onSignal();
});
