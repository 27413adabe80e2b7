// A serving process among several on one port, started and ended by src/workers.ts. It keeps nothing of its own: killed,
// it loses the requests it had, and no other's.

import { loadConfig, storeSettings } from './config.ts';
import { createLog, serve } from './serve.ts';
import { openStore } from './store/store.ts';
import type { ToWorker } from './workers.ts';

const config = loadConfig();
const log = createLog(config);
const { redisUrl, port } = JSON.parse(process.argv[2]!) as ToWorker;

/** Said in words, as the first process would. */
function fail(error: Error): never {
  console.error(`tollgate: ${error.message}`);
  process.exit(1);
}

const store = await openStore({
  ...storeSettings(config),
  url: redisUrl,
  onEvent: (message) => log.warn(message),
}).catch(fail);
const server = await serve({ store, config, log, port, sharePort: true }).catch(fail);

let isStopping = false;
async function stop() {
  if (isStopping) return;
  isStopping = true;
  await server.close();
  await store.close();
  process.exit(0);
}

// Ctrl-C reaches every process of the terminal; when to stop is for the one that started this to say.
process.on('SIGINT', () => {});
process.on('SIGTERM', stop);
// The one that started this is gone, and its Redis may be.
process.on('disconnect', stop);

process.send!('listening');
