// A server on a real socket in this process, for tests that set its clock.

import { pino } from 'pino';
import { loadConfig } from '../../src/config.ts';
import type { Server } from '../../src/http/server.ts';
import { Metrics } from '../../src/metrics.ts';
import { serve } from '../../src/serve.ts';
import type { Store } from '../../src/store.ts';

/** On a free port of 127.0.0.1, with the default settings but for those given, and without a log. */
export async function serveStore(
  store: Store,
  settings: Record<string, string> = {},
): Promise<Server & { url: string }> {
  const log = pino({ level: 'silent' });
  const metrics = new Metrics();
  const scrape = async () => '';
  const server = await serve({ store, config: loadConfig(settings), log, port: 0, sharePort: false, metrics, scrape });
  return { ...server, url: `${settings.TLS_CERT_FILE ? 'https' : 'http'}://127.0.0.1:${server.port}` };
}
