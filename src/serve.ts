// One serving process: a socket, the pipeline, the store and their metrics.

import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { type Config, sharesMetrics, tlsSettings } from './config.ts';
import { createId } from './domain/keyString.ts';
import { CallLog } from './http/callLog.ts';
import { createGateway, gatewayPath } from './http/gateway.ts';
import { createPipeline } from './http/pipeline.ts';
import { createMetricsHandler } from './http/probes.ts';
import { RootKeyReader } from './http/rootKey.ts';
import { listen, type Server } from './http/server.ts';
import { type Metrics, type Report, type Scrape, watchProcess } from './metrics.ts';
import { operations } from './operations/index.ts';
import type { Store } from './store/store.ts';

interface ServeOptions {
  store: Store;
  config: Config;
  log: Logger;
  /** 0 chooses a free one. */
  port: number;
  /** Other processes listen on the same port. */
  sharePort: boolean;
  metrics: Metrics;
  /** The text for Prometheus, served on this port if the settings say so. */
  scrape: () => Promise<Scrape>;
}

/** A process ends within this time after a signal, regardless of requests in flight. */
export const stopWaitMs = 10_000;

// The only use of this machine's clock: a request id need not be accurate.
const newRequestId = () => createId('req', Date.now());

export async function serve(options: ServeOptions): Promise<Server> {
  const { store, config, log, port, sharePort, metrics, scrape } = options;
  const { host, bodyBytesMax, metaBytesMax, manageAtOnce, inFlightMax, redisTimeoutMs: turnWaitMs } = config;
  const tls = tlsSettings(config);
  let stopping = false;
  store.tail.watch();
  const callLog = new CallLog(log);
  const handler = createPipeline(operations, {
    store,
    log,
    callLog,
    metaBytesMax,
    console: config.console,
    hstsMaxAge: tls && config.hstsMaxAge,
    manageAtOnce,
    inFlightMax,
    turnWaitMs,
    metrics,
    isStopping: () => stopping,
    scrape: sharesMetrics(config) ? scrape : undefined,
  });
  const gateway = createGateway({
    store,
    log,
    callLog,
    metrics,
    keyHeader: config.gatewayKeyHeader,
    rootKey: config.gatewayRootKey,
    meta: config.gatewayMeta,
  });
  const byHeaders = { path: gatewayPath, handler: gateway };
  const rootKeys = new RootKeyReader();
  const workspaceOf = (authorization: string) => {
    const rootKey = rootKeys.readHeader(authorization);
    return rootKey && store.rootKeys.wasAccepted(rootKey) ? rootKey.workspaceId : undefined;
  };
  const server = await listen({
    host,
    port,
    sharePort,
    tls,
    handler,
    byHeaders,
    bodyBytesMax,
    newRequestId,
    addressHeader: config.clientAddressHeader.toLowerCase(),
    workspaceOf,
  });
  return {
    ...server,
    drain() {
      stopping = true;
      server.drain();
    },
  };
}

interface CertificateUser {
  reloadCertificates(): void;
}

/** For SIGHUP. Where a file cannot be used, what was read before stays in use. */
export function reloadCertificates(users: readonly CertificateUser[], log: Logger) {
  let areRead = true;
  for (const user of users) {
    try {
      user.reloadCertificates();
    } catch (err) {
      areRead = false;
      log.error({ err }, 'A certificate could not be read again. The one in use stays.');
    }
  }
  if (areRead) log.info('Certificates were read again.');
}

/** Serves the metrics on METRICS_PORT; undefined if that is empty. */
export async function serveMetrics(
  { metricsHost: host, metricsPort: port, bodyBytesMax }: Config,
  scrape: () => Promise<Scrape>,
): Promise<Server | undefined> {
  if (port === '') return undefined;
  return listen({ host, port, handler: createMetricsHandler(scrape), bodyBytesMax, newRequestId }).catch((cause) => {
    throw new Error(`METRICS_PORT: ${cause.message}`, { cause });
  });
}

/** Prometheus waits ten seconds. A scrape must respond even if Redis does not. */
const redisWaitMs = 2_000;

/** Starts to observe this process, and returns a function that returns its metrics. To be called once per process. */
export function openReports(metrics: Metrics, store: Store): () => Promise<Report> {
  const processMetrics = watchProcess();
  return async () => {
    const redisUp = await Promise.race([
      store.ready().then(
        () => true,
        () => false,
      ),
      delay(redisWaitMs, false, { ref: false }),
    ]);
    return [...metrics.report({ redisUp, waiting: store.decide.waiting }), ...(await processMetrics())];
  };
}
