// A serving process that shares its port with others; src/workers.ts starts and ends it. It has no state except counts:
// if it is killed, only its own requests in flight are lost.

import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { openChannel } from './channel.ts';
import { loadConfig, storeSettings } from './config.ts';
import type { Server } from './http/server.ts';
import { createLog } from './log.ts';
import { Metrics } from './metrics.ts';
import { atMostOnceIn } from './redis/atMostOnce.ts';
import { exitCodeOf } from './scripts/dataVersion.ts';
import { openReports, reloadCertificates, serve, stopWaitMs } from './serve.ts';
import { openStore } from './store.ts';
import { forwardWarnings } from './warnings.ts';

const config = loadConfig();
const log = createLog(config);
forwardWarnings((message) => log.warn(message));
/** The first process collects the metrics of all workers before it replies. */
const scrapeWaitMs = 5_000;
/** How long its text is used again. */
const scrapeMs = 100;

/** Prints the message only, as the first process does. */
function fail(error: Error): never {
  console.error(`tollgate: ${error.message}`);
  process.exit(exitCodeOf(error));
}

const metrics = new Metrics();
const store = await openStore({
  ...storeSettings(config),
  url: config.redisUrl,
  onEvent: (message) => log.warn(message),
  // The first process finds the same, reports it and ends all workers.
  observe: metrics.observe,
}).catch(fail);
let server: Server | undefined;
const channel = openChannel(process, { counts: openReports({ metrics, store, server: () => server }) });
const scrape = atMostOnceIn(scrapeMs, () => channel.request<string>('scrape', scrapeWaitMs));
const serving = await serve({ store, config, log, port: config.port, sharePort: true, metrics, scrape }).catch(fail);
server = serving;

const disconnected = once(process, 'disconnect');
let isStopping = false;
async function stop() {
  if (isStopping) return;
  isStopping = true;
  serving.drain();
  if (process.connected) await Promise.race([delay(config.drainMs), disconnected]);
  // The first process gives up after the same time and reports it. This one must not outlive it.
  setTimeout(() => process.exit(1), stopWaitMs).unref();
  await serving.close();
  await store.close();
  process.exit(0);
}

// Ctrl-C reaches every process of the terminal, but the parent process decides when to stop.
process.on('SIGINT', () => {});
process.on('SIGTERM', stop);
process.on('SIGHUP', () => reloadCertificates([serving, store], log));
// The parent process wants this one to end now, or has died, perhaps with the embedded Redis.
process.on('disconnect', stop);

process.send!('listening');
