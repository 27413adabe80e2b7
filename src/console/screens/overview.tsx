import { useRef } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { useData } from '../api.ts';
import { milliseconds } from '../format.ts';
import { Card, Count, Empty, Head, LacksScreen, Loaded, PeriodChoice, Time } from '../parts/basic.tsx';
import { Figure } from '../parts/chart.tsx';
import { Table } from '../parts/table.tsx';
import { Top } from '../parts/top.tsx';
import { UsageChart, UsageFigures } from '../parts/usage.tsx';
import { usePeriod } from '../period.ts';
import type { Api, Status } from '../records.ts';
import { may } from '../session.ts';
import { Welcome } from './welcome.tsx';

export function Overview() {
  const apis = useData<Api[]>(
    'apis.listApis',
    may('api', 'read_api') ? { limit: 100, order: 'desc' } : undefined,
    10_000,
  );
  // The first steps stay until the user leaves the screen: they have the only copy of a key string.
  const isFirst = useRef(false);
  isFirst.current ||= apis.data?.length === 0 && may('api', 'create_api');
  if (isFirst.current) return <Welcome />;
  return <Summary apis={apis} />;
}

function Summary({ apis }: { apis: ReturnType<typeof useData<Api[]>> }) {
  const period = usePeriod();
  if (!may('api', 'read_analytics')) {
    return <LacksScreen title="Overview" grant="api.*.read_analytics" />;
  }
  return (
    <>
      <Head title="Overview">
        <PeriodChoice period={period} />
      </Head>
      <UsageFigures of={{}} period={period}>
        {may('system', 'read_status') && <Latency />}
      </UsageFigures>
      <Card title={`Verifications by ${period.granularity}, UTC`}>
        <UsageChart of={{}} period={period} title="Verifications by outcome" />
      </Card>
      <div class="columns">
        <Top title="Largest customers" of="identities" period={period} />
        <Top title="Largest keys" of="keys" period={period} />
      </div>
      {may('api', 'read_api') && (
        <Card title="APIs">
          <Loaded of={apis}>
            {(rows) =>
              rows.length === 0 ? (
                <Empty title="There is no API yet" />
              ) : (
                <Table label="APIs" rows={rows} idOf={({ id }) => id} columns={apiColumns} />
              )
            }
          </Loaded>
        </Card>
      )}
    </>
  );
}

/** Of the server that responds, from the complete request to its response. */
function Latency() {
  const { data } = useData<Status>('system.getStatus', {}, 10_000);
  const { p50Ms, p99Ms } = data?.process.decisions ?? {};
  return (
    <Figure
      label="Latency, median"
      value={p50Ms === undefined ? '–' : milliseconds(p50Ms)}
      note={
        p99Ms === undefined ? data && 'nothing was decided lately' : `99 % within ${milliseconds(p99Ms)}, this server`
      }
    />
  );
}

const apiColumns = [
  { name: 'Name', cell: ({ id, name }: Api) => <Link href={`/keys?api=${id}`}>{name}</Link> },
  { name: 'Id', cell: ({ id }: Api) => <code>{id}</code>, isWide: true },
  { name: 'Keys', cell: ({ keyCount }: Api) => <Count value={keyCount} />, isNumber: true },
  { name: 'Created', cell: ({ createdAt }: Api) => <Time ms={createdAt} />, isWide: true },
];
