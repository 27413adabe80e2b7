// How the server answers, measured by this page: the operations that a console may call say nothing of the machine.

import { useEffect, useState } from 'preact/hooks';
import { useData } from '../api.ts';
import { Badge, Card, Head, Id, Snippet } from '../parts/basic.tsx';
import { Figure, Spark } from '../parts/chart.tsx';
import { currentSignIn } from '../session.ts';

const everyMs = 2000;
const keptMax = 60;

interface Measured {
  isReady: boolean | undefined;
  /** Milliseconds of a request that asks Redis, and of one that does not. */
  withRedis: readonly number[];
  without: readonly number[];
}

async function timed(path: string, init?: RequestInit): Promise<{ ms: number; isOk: boolean }> {
  const since = performance.now();
  const isOk = await fetch(path, { cache: 'no-store', ...init }).then(
    ({ ok }) => ok,
    () => false,
  );
  return { ms: performance.now() - since, isOk };
}

function useMeasured(): Measured {
  const [measured, set] = useState<Measured>({ isReady: undefined, withRedis: [], without: [] });
  useEffect(() => {
    const measure = async () => {
      if (document.hidden) return;
      const ready = await timed('/health/ready');
      const without = await timed('/v2/liveness');
      const withRedis = await timed('/v2/rootKeys.whoami', {
        method: 'POST',
        body: '{}',
        headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${currentSignIn()?.rootKey}` },
      });
      set((before) => ({
        isReady: ready.isOk,
        without: [...before.without, without.ms].slice(-keptMax),
        withRedis: withRedis.isOk ? [...before.withRedis, withRedis.ms].slice(-keptMax) : before.withRedis,
      }));
    };
    measure();
    const timer = setInterval(measure, everyMs);
    return () => clearInterval(timer);
  }, []);
  return measured;
}

const median = (values: readonly number[]) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
const inMs = (value: number | undefined) => (value === undefined ? '–' : `${value.toFixed(1)} ms`);

export function System() {
  const { isReady, withRedis, without } = useMeasured();
  const whoami = useData<{ rootKeyId: string; workspaceId: string; permissions: string[] }>('rootKeys.whoami', {});
  const [version, setVersion] = useState('');
  useEffect(() => {
    fetch('/openapi.json')
      .then((response) => response.json())
      .then(({ info }) => setVersion(info.version))
      .catch(() => {});
  }, []);
  return (
    <>
      <Head title="System">
        {isReady !== undefined && <Badge tone={isReady ? 'good' : 'bad'}>{isReady ? 'Ready' : 'Not ready'}</Badge>}
      </Head>
      <div class="figures-row">
        <Figure
          label="A request that asks Redis"
          value={inMs(median(withRedis))}
          note={<Spark values={withRedis} label="The last two minutes" />}
        />
        <Figure
          label="A request that does not"
          value={inMs(median(without))}
          note={<Spark values={without} label="The last two minutes" />}
        />
        <Figure label="Version" value={version || '–'} note="of Tollgate" />
      </div>
      <div class="columns">
        <Card title="You are signed in with">
          <dl>
            <dt>Root key</dt>
            <dd>{whoami.data && <Id id={whoami.data.rootKeyId} />}</dd>
            <dt>Workspace</dt>
            <dd>{whoami.data && <Id id={whoami.data.workspaceId} />}</dd>
            <dt>Grants</dt>
            <dd>{whoami.data?.permissions.join(', ')}</dd>
          </dl>
        </Card>
        <Card title="What doctor says">
          <p class="quiet">
            On the machine of the server: Redis, its memory and persistence, clocks, limits of the system, and what to
            change. Metrics for Prometheus are at <a href="/metrics">/metrics</a>, if this port serves them.
          </p>
          <Snippet text="npx tollgate doctor" />
        </Card>
      </div>
    </>
  );
}
