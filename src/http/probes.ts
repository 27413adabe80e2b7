// The endpoints for liveness, readiness and metrics: GET without a root key.

import { ApiError } from '../errors.ts';
import { metricsType } from '../metrics.ts';
import type { Store } from '../store.ts';
import { errorResponse } from './errorResponse.ts';
import { type Handler, isReading, type Request, type Response } from './message.ts';

export interface ProbesOptions {
  store: Pick<Store, 'ready' | 'dataVersion'>;
  /** The server is shutting down. It still handles requests, but should get no more. */
  isStopping: () => boolean;
  /** The state of the setting GATEWAY_ROOT_KEY; undefined if it is empty. */
  gatewayRootKey?: (() => Promise<string>) | undefined;
  /** The text for Prometheus; undefined if this port does not serve it. */
  scrape?: (() => Promise<string>) | undefined;
}

type Probe = (request: Request) => Promise<Response>;

const healthy = ({ requestId }: Request, data: object): Response => ({
  status: 200,
  contentType: 'application/json',
  headers: [],
  body: JSON.stringify({ meta: { requestId }, data }),
});

/** Returns the probes by path. A probe throws an ApiError if its check fails. */
export function createProbes({ store, isStopping, gatewayRootKey, scrape }: ProbesOptions): ReadonlyMap<string, Probe> {
  const probes = new Map<string, Probe>([
    ['/health/live', async (request) => healthy(request, { alive: true })],
    [
      '/health/ready',
      async (request) => {
        if (isStopping()) throw new ApiError('shutting_down', 'The server is shutting down.');
        await store.ready();
        const checked = { ready: true, redis: 'answers', scripts: 'loaded', writes: 'accepted' };
        // Servers serve while the data is migrated.
        const { current, migration } = store.dataVersion;
        const gateway = gatewayRootKey && { gatewayRootKey: await gatewayRootKey() };
        return healthy(request, { ...checked, ...gateway, dataVersion: current, ...(migration && { migration }) });
      },
    ],
  ]);
  if (scrape) probes.set(metricsPath, metricsProbe(scrape));
  return probes;
}

const metricsPath = '/metrics';

const metricsProbe =
  (scrape: () => Promise<string>): Probe =>
  async () => ({ status: 200, contentType: metricsType, headers: [], body: await scrape() });

/** Serves the metrics only, for METRICS_PORT. */
export function createMetricsHandler(scrape: () => Promise<string>): Handler {
  const probe = metricsProbe(scrape);
  return async (request) =>
    request.path === metricsPath && isReading(request)
      ? probe(request)
      : errorResponse(new ApiError('route_not_found', `This port serves GET ${metricsPath} only.`), request);
}
