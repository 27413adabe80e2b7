// One serving process: a socket, the pipeline, the store and their metrics.

import { statfs } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { allowHeaders, type Config, sharesMetrics, tlsSettings } from './config.ts';
import { watchDescriptors } from './descriptors.ts';
import type { Finding } from './domain/finding.ts';
import { createId } from './domain/keyString.ts';
import { dayMs } from './domain/time.ts';
import { certificateFinding, logFinding, openGatewayRootKey, type RootKeyWatch } from './endings.ts';
import { CallLog } from './http/callLog.ts';
import { createGateway, gatewayPaths } from './http/gateway.ts';
import { createIntrospection, introspectPath } from './http/introspect.ts';
import { createMe, mePath } from './http/me.ts';
import { createPipeline } from './http/pipeline.ts';
import { createMetricsHandler } from './http/probes.ts';
import { RootKeyReader } from './http/rootKey.ts';
import { listen, type Server } from './http/server.ts';
import { usePinsOf } from './http/uws.ts';
import { type Metrics, type Report, type SharedState, watchProcess } from './metrics.ts';
import type { AnyOperation } from './operation.ts';
import { operations } from './operations/index.ts';
import type { Store } from './store.ts';

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
  scrape: () => Promise<string>;
}

/** A process ends within this time after a signal, regardless of requests in flight. */
export const stopWaitMs = 10_000;

// The only use of this machine's clock: a request id need not be accurate.
const newRequestId = () => createId('req', Date.now());

/** The paths of operations that accept longer bodies than others. */
const longBodies = new Map(
  (operations as readonly AnyOperation[]).flatMap((operation) =>
    operation.kind === 'manages' && operation.bodyBytesMax ? [[`/v2/${operation.name}`, operation.bodyBytesMax]] : [],
  ),
);

export async function serve(options: ServeOptions): Promise<Server> {
  const { store, config, log, port, sharePort, metrics, scrape } = options;
  const tls = tlsSettings(config);
  usePinsOf(config.dataDir);
  allowHeaders(config);
  let stopping = false;
  store.tail.watch();
  const callLog = new CallLog(log);
  const gatewayRootKey = openGatewayRootKey(store, config.gatewayRootKey);
  const pipeline = createPipeline(operations, {
    ...config,
    store,
    log,
    callLog,
    unkeyTypes: config.errorTypes === 'unkey',
    hstsMaxAge: tls && config.hstsMaxAge,
    metrics,
    isStopping: () => stopping,
    gatewayRootKey: gatewayRootKey?.state,
    checks: async (workspaceId) => [
      ...certificateFindings(server),
      ...(gatewayRootKey?.workspaceId === workspaceId ? [await gatewayRootKey.finding()] : []),
    ],
    scrape: sharesMetrics(config) ? scrape : undefined,
  });
  const introspect = createIntrospection(store, callLog, metrics, config.inFlightMax);
  const ofHeaders = { store, log, callLog, metrics, ipHeader: config.gatewayIpHeader };
  const gateway = createGateway({
    ...ofHeaders,
    keyHeader: config.gatewayKeyHeader,
    rootKey: config.gatewayRootKey,
    meta: config.gatewayMeta,
  });
  const byHeaders = [
    ...gatewayPaths.map((path) => ({ path, handler: gateway })),
    { path: mePath, handler: createMe(ofHeaders) },
  ];
  const rootKeys = new RootKeyReader();
  const workspaceOf = (authorization: string) => {
    const rootKey = rootKeys.readHeader(authorization);
    return rootKey && store.rootKeys.wasAccepted(rootKey) ? rootKey.workspaceId : undefined;
  };
  const server = await listen({
    ...config,
    port,
    sharePort,
    tls,
    handler: (request) => (request.path === introspectPath ? introspect : pipeline)(request),
    byHeaders,
    bodyBytesMaxOf: (path) => Math.max(config.bodyBytesMax, longBodies.get(path) ?? 0),
    newRequestId,
    addressHeader: config.clientAddressHeader.toLowerCase(),
    workspaceOf,
  });
  // Logs now, after each renewal, and once a day, that the certificate in use has ended or ends soon.
  const warn = () => {
    for (const finding of certificateFindings(server)) logFinding(log, finding);
  };
  warn();
  const timer = setInterval(warn, dayMs).unref();
  const unwatch = watchDescriptors(log);
  return {
    ...server,
    drain() {
      stopping = true;
      server.drain();
    },
    reloadCertificates() {
      server.reloadCertificates();
      warn();
    },
    close() {
      clearInterval(timer);
      unwatch();
      return server.close();
    },
  };
}

/** None without TLS. */
function certificateFindings(server: Server): Finding[] {
  const endMs = server.certificateEndMs();
  return endMs === undefined ? [] : [certificateFinding(endMs, Date.now())];
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
  scrape: () => Promise<string>,
): Promise<Server | undefined> {
  if (port === '') return undefined;
  return listen({ host, port, handler: createMetricsHandler(scrape), bodyBytesMax, newRequestId }).catch((cause) => {
    throw new Error(`METRICS_PORT: ${cause.message}`, { cause });
  });
}

/** Prometheus waits ten seconds. A scrape must respond even if Redis does not. */
const redisWaitMs = 2_000;

/** A result, or undefined if there is none in time. */
const inTime = <Result>(result: Promise<Result>): Promise<Result | undefined> =>
  Promise.race([result.catch(() => undefined), delay(redisWaitMs, undefined, { ref: false })]);

interface ReportsOptions {
  metrics: Metrics;
  store: Store;
  /** The server of this process, which may not be open yet. */
  server: () => Server | undefined;
  /** In the first process, which reports what all processes share. */
  first?: { config: Config; rootKeys: RootKeyWatch } | undefined;
}

/** Starts to observe this process, and returns a function that returns its metrics. To be called once per process. */
export function openReports({ metrics, store, server, first }: ReportsOptions): () => Promise<Report> {
  const processMetrics = watchProcess();
  return async () => {
    const [isUp, shared] = await Promise.all([
      inTime(store.replies().then(() => true)),
      first && sharedState(store, first),
    ]);
    const state = {
      redisUp: isUp === true,
      waiting: store.decide.waiting,
      certificateEndMs: server()?.certificateEndMs(),
      shared,
    };
    return [...metrics.report(state), ...(await processMetrics())];
  };
}

async function sharedState(
  store: Store,
  { config: { redisUrl, dataDir, recordsMax }, rootKeys }: NonNullable<ReportsOptions['first']>,
): Promise<SharedState> {
  const [redis, disk] = await Promise.all([
    inTime(store.status.gauges()),
    redisUrl ? undefined : statfs(dataDir).catch(() => undefined),
  ]);
  return {
    redis,
    disk: disk && { freeBytes: disk.bavail * disk.bsize, sizeBytes: disk.blocks * disk.bsize },
    recordsMax,
    rootKeyEndMs: rootKeys.first(),
    isMigrationDue: store.migrations.isDue,
  };
}
