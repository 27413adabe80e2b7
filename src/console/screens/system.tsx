// The state of Redis, of the sweeper and of the workspace, and the times of requests, measured by this page.

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { useData } from '../api.ts';
import { ago, bytes, count, duration, percent } from '../format.ts';
import { Badge, Card, Head, Id, Lacks, Loaded, Snippet } from '../parts/basic.tsx';
import { Figure, fewMax, Spark } from '../parts/chart.tsx';
import { EndingRootKeys } from '../parts/ending.tsx';
import { Holders } from '../parts/holders.tsx';
import { Table } from '../parts/table.tsx';
import type { Status } from '../records.ts';
import { currentSignIn, may } from '../session.ts';

const everyMs = 2000;
const keptMax = 60;

interface Measured {
  isReady: boolean | undefined;
  /** Durations of the requests of this page, in milliseconds. */
  times: readonly number[];
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
  const [measured, set] = useState<Measured>({ isReady: undefined, times: [] });
  useEffect(() => {
    const measure = async () => {
      if (document.hidden) return;
      const ready = await timed('/health/ready');
      const { ms, isOk } = await timed('/v2/rootKeys.whoami', {
        method: 'POST',
        body: '{}',
        headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${currentSignIn()?.rootKey}` },
      });
      set(({ times }) => ({ isReady: ready.isOk, times: isOk ? [...times, ms].slice(-keptMax) : times }));
    };
    // The first ones follow each other, so that there is a median.
    (async () => {
      for (let number = 0; number < fewMax; number++) await measure();
    })();
    const timer = setInterval(measure, everyMs);
    return () => clearInterval(timer);
  }, []);
  return measured;
}

/** A percentile: this part of the values is below it. */
const quantile = (values: readonly number[], part: number) =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length * part)];
const inMs = (value: number | undefined, digits = 1) => (value === undefined ? '–' : `${value.toFixed(digits)} ms`);

export function System() {
  const { isReady, times } = useMeasured();
  const mayRead = may('system', 'read_status');
  const status = useData<Status>('system.getStatus', mayRead ? {} : undefined, everyMs);
  const redis = status.data?.redis;
  const sweptAt = status.data?.sweeper.sweptAt;
  return (
    <>
      <Head title="System">
        {isReady !== undefined && <Badge tone={isReady ? 'good' : 'bad'}>{isReady ? 'Ready' : 'Not ready'}</Badge>}
      </Head>
      <div class="figures-row">
        <Figure
          label="From this page to the server and back, median (p50)"
          value={inMs(times.length < fewMax ? undefined : quantile(times, 0.5))}
          note={
            <>
              {times.length < fewMax
                ? `of ${fewMax} requests or more`
                : `95 % within ${inMs(quantile(times, 0.95))} (p95)`}{' '}
              <Spark values={times} label="Times of the last two minutes" />
            </>
          }
        />
        <Figure
          label="From the server to Redis and back"
          value={inMs(redis?.roundTripMs, 2)}
          note="the shortest of five round trips"
        />
        <Figure
          label="Memory of Redis"
          value={redis?.usedBytes === undefined ? '–' : bytes(redis.usedBytes)}
          note={
            redis?.usedBytes !== undefined &&
            redis.maxBytes &&
            `${percent(redis.usedBytes, redis.maxBytes)} of ${bytes(redis.maxBytes)}`
          }
        />
        <Figure
          label="Last sweep"
          value={sweptAt === undefined ? '–' : ago(sweptAt, status.data!.time)}
          note="of refills, purges and usage"
        />
      </div>
      {mayRead ? (
        <Loaded of={status} lines={12}>
          {(data) => <Details data={data} />}
        </Loaded>
      ) : (
        <>
          <Lacks grant="system.*.read_status" />
          <Holders />
          <SignedIn />
        </>
      )}
    </>
  );
}

const tones = { ok: 'good', warning: 'warn', fault: 'bad', unknown: '' } as const;

const sweeps = [
  ['refills', 'Refills of keys that no request reads'],
  ['purges', 'Deleted keys whose records may be removed'],
  ['rollups', 'Lists of usage that may be packed'],
] as const;

/** Names of counts, in the order of the table. */
const counted = [
  ['keys', 'Keys, with deleted ones that can be restored'],
  ['deletedKeys', 'of these, deleted'],
  ['apis', 'APIs'],
  ['deletedApis', 'Deleted APIs whose keys are not removed yet'],
  ['identities', 'Customers'],
  ['deletedIdentities', 'Deleted customers that can be restored'],
  ['namespaces', 'Namespaces'],
  ['overrides', 'Overrides'],
  ['permissions', 'Permissions'],
  ['roles', 'Roles'],
  ['rootKeys', 'Root keys'],
  ['auditEvents', 'Events of the audit log'],
] as const;

const decisionsText = (of: Status['process']['decisions']) =>
  of && `${count(of.count)} in ${duration(of.periodMs - (of.periodMs % 1000))}`;

const dataText = (version: number, of: Status['migration']) =>
  of ? `${version}, migrating to ${of.to}: ${count(of.done)} of ${count(of.total)} records` : version;

function Details({ data }: { data: Status }) {
  const { checks, redis, sweeper, stored, versions, migration, process, leases } = data;
  return (
    <>
      <Card title="Checks">
        <Table
          label="Checks"
          rows={[...checks, ...redis.checks]}
          idOf={({ check, found }) => check + found}
          columns={[
            { name: 'Check', cell: ({ check }) => check },
            { name: 'Result', cell: ({ status }) => <Badge tone={tones[status]}>{status}</Badge> },
            { name: 'Found', cell: ({ found }) => found, isText: true },
            { name: 'What to change', cell: ({ change }) => change, isText: true },
          ]}
        />
        <p class="quiet">
          On the machine of the server, this command checks its disk and its limits, too. Metrics for Prometheus are at{' '}
          <a href="/metrics">/metrics</a>, if this port serves them.
        </p>
        <Snippet text="npx tollgate doctor" />
      </Card>
      <EndingRootKeys />
      <div class="columns">
        <Card title="Stored in this workspace">
          <Facts items={counted.map(([name, text]) => [text, count(stored[name] ?? 0)])} />
        </Card>
        <Card title="Server">
          <Facts
            items={[
              ['Tollgate', versions.tollgate],
              ['Node', versions.node],
              ['Redis', versions.redis ?? 'unknown'],
              ['Nodes of Redis', count(redis.nodes)],
              ['Version of the stored data', dataText(versions.data, migration)],
              ['This process runs for', duration(process.uptimeMs - (process.uptimeMs % 1000))],
              ['Memory of this process', bytes(process.memoryBytes)],
              ['Its decisions', decisionsText(process.decisions)],
              ['Processes that may hold leases', count(leases.sessions)],
              ['Processes that did not return leases', count(leases.silent)],
            ]}
          />
        </Card>
        <Card title="Overdue">
          <Table
            label="Overdue"
            rows={sweeps}
            idOf={([name]) => name}
            columns={[
              { name: 'Task of the sweeper', cell: ([, text]) => text, isText: true },
              { name: 'Due', cell: ([name]) => count(sweeper[name].overdue), isNumber: true },
              { name: 'Late', cell: ([name]) => duration(sweeper[name].lateMs), isNumber: true },
            ]}
          />
        </Card>
        <Holders />
        <SignedIn />
      </div>
    </>
  );
}

const Facts = ({ items }: { items: readonly (readonly [name: string, value: ComponentChildren])[] }) => (
  <dl class="counts">
    {items.map(([name, value]) => (
      <>
        <dt>{name}</dt>
        <dd class="number">{value}</dd>
      </>
    ))}
  </dl>
);

function SignedIn() {
  const { data } = useData<{ rootKeyId: string; workspaceId: string; permissions: string[] }>('rootKeys.whoami', {});
  return (
    <Card title="Signed in with">
      <dl>
        <dt>Root key</dt>
        <dd>{data && <Id id={data.rootKeyId} />}</dd>
        <dt>Workspace</dt>
        <dd>{data && <Id id={data.workspaceId} />}</dd>
        <dt>Grants</dt>
        <dd>{data?.permissions.join(', ')}</dd>
      </dl>
    </Card>
  );
}
