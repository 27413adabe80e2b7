// A serving process among several on one port, started and ended by src/workers.ts. It keeps nothing of its own but counts:
// killed, it loses the requests it had, and no other's.

import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { openChannel } from './channel.ts';
import { loadConfig, storeSettings } from './config.ts';
import { createLog } from './log.ts';
import { createMetrics, onceASecond, type Scrape } from './metrics.ts';
import { openSnapshots, serve, stopWaitMs } from './serve.ts';
import { openStore } from './store/store.ts';

const config = loadConfig();
const log = createLog(config);
/** The first process asks all workers before it answers. */
const scrapeWaitMs = 5_000;

/** Said in words, as the first process would. */
function fail(error: Error): never {
  console.error(`tollgate: ${error.message}`);
  process.exit(1);
}

const metrics = createMetrics();
const store = await openStore({
  ...storeSettings(config),
  url: config.redisUrl,
  onEvent: (message) => log.warn(message),
  observe: metrics.observe,
}).catch(fail);
const channel = openChannel(process, { counts: openSnapshots(metrics, store) });
const scrape = onceASecond(() => channel.ask<Scrape>('scrape', scrapeWaitMs));
const server = await serve({ store, config, log, port: config.port, sharePort: true, metrics, scrape }).catch(fail);

const disconnected = once(process, 'disconnect');
let isStopping = false;
async function stop() {
  if (isStopping) return;
  isStopping = true;
  server.drain();
  if (process.connected) await Promise.race([delay(config.drainMs), disconnected]);
  // The first process gives up then too, and says so; later nobody is left to end this one, and its Redis is gone.
  setTimeout(() => process.exit(1), stopWaitMs).unref();
  await server.close();
  await store.close();
  process.exit(0);
}

// Ctrl-C reaches every process of the terminal; when to stop is for the one that started this to say.
process.on('SIGINT', () => {});
process.on('SIGTERM', stop);
// The one that started this wants it to end now, or is gone, and its Redis may be.
process.on('disconnect', stop);

process.send!('listening');
