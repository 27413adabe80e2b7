// What the machines of an operator ask, with GET and without a root key: does it live, is it ready, what has it counted.

import { ApiError } from '../errors.ts';
import { metricsType, type Scrape } from '../metrics.ts';
import type { Store } from '../store/store.ts';
import { errorResponse } from './errorResponse.ts';
import { type Answer, isReading, type Request, type Response } from './message.ts';

export interface ProbesOptions {
  store: Pick<Store, 'ready'>;
  /** The server has been told to stop: what is asked is still answered, but nothing more should be sent. */
  isStopping: () => boolean;
  /** The text for Prometheus; undefined where this port does not tell it. */
  scrape?: (() => Promise<Scrape>) | undefined;
}

type Probe = (request: Request) => Promise<Response>;

const healthy = ({ requestId }: Request, data: object): Response => ({
  status: 200,
  contentType: 'application/json',
  headers: [],
  body: JSON.stringify({ meta: { requestId }, data }),
});

/** By path. A probe throws an ApiError that says what is not well. */
export function createProbes({ store, isStopping, scrape }: ProbesOptions): ReadonlyMap<string, Probe> {
  const probes = new Map<string, Probe>([
    ['/health/live', async (request) => healthy(request, { alive: true })],
    [
      '/health/ready',
      async (request) => {
        if (isStopping()) throw new ApiError('shutting_down', 'The server has been told to stop.');
        await store.ready();
        return healthy(request, { ready: true, redis: 'answers', scripts: 'loaded' });
      },
    ],
  ]);
  if (scrape) probes.set(metricsPath, metricsProbe(scrape));
  return probes;
}

const metricsPath = '/metrics';

const metricsProbe =
  (scrape: () => Promise<Scrape>): Probe =>
  async () => ({ status: 200, contentType: metricsType, headers: [], body: (await scrape()).text });

/** For a port of their own: the metrics, and nothing else. */
export function createMetricsAnswer(scrape: () => Promise<Scrape>): Answer {
  const probe = metricsProbe(scrape);
  return async (request) =>
    request.path === metricsPath && isReading(request)
      ? probe(request)
      : errorResponse(new ApiError('route_not_found', `This port answers GET ${metricsPath} only.`), request);
}
