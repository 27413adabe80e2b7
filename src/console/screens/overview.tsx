import { useRef } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { useAddress } from '../address.ts';
import { useData } from '../api.ts';
import { milliseconds } from '../format.ts';
import { type Paged, usePages } from '../pages.ts';
import { ApiSelect } from '../parts/apiSelect.tsx';
import { Card, Empty, Head, LacksScreen, PeriodChoice } from '../parts/basic.tsx';
import { Figure, fewMax } from '../parts/chart.tsx';
import { List } from '../parts/table.tsx';
import { Top } from '../parts/top.tsx';
import { UsageChart, UsageFigures } from '../parts/usage.tsx';
import { usePeriod } from '../period.ts';
import type { Api, Status } from '../records.ts';
import { may } from '../session.ts';
import { columns } from './apis.tsx';
import { Welcome } from './welcome.tsx';

export function Overview() {
  const listed = may('api', 'read_api', '*') ? { limit: 10, order: 'desc' } : undefined;
  const apis = usePages<Api>('apis.listApis', listed, 10_000);
  // The first steps stay until the user leaves the screen: they have the only copy of a key string.
  const isFirst = useRef(false);
  isFirst.current ||= apis.rows?.length === 0 && may('api', 'create_api');
  if (isFirst.current) return <Welcome />;
  return <Summary apis={apis} />;
}

function Summary({ apis }: { apis: Paged<Api> }) {
  const period = usePeriod();
  const [{ api: apiId }, set] = useAddress({ api: '' });
  const of = apiId ? { apiId } : {};
  if (!may('api', 'read_analytics')) {
    return <LacksScreen title="Overview" grant="api.*.read_analytics" />;
  }
  return (
    <>
      <Head title="Overview">
        <ApiSelect isBare value={apiId} set={(api) => set({ api })} none="All APIs" />
        <PeriodChoice period={period} />
      </Head>
      <UsageFigures of={of} period={period}>
        {may('system', 'read_status') && <Latency />}
      </UsageFigures>
      <Card title={`Verifications by ${period.granularity}, UTC`}>
        <UsageChart of={of} period={period} />
      </Card>
      <div class="columns">
        <Top title="Largest customers" of="identities" period={period} within={of} />
        <Top title="Largest keys" of="keys" period={period} within={of} />
      </div>
      {may('api', 'read_api', '*') && !apiId && (
        <Card title="Newest APIs" actions={<Link href="/apis">All APIs</Link>}>
          <List
            label="Newest APIs"
            columns={columns}
            of={apis}
            idOf={({ id }) => id}
            empty={<Empty title="There is no API yet" />}
            lines={3}
          />
        </Card>
      )}
    </>
  );
}

/** Latency of the server that responds, from the complete request to its response. */
function Latency() {
  const { data } = useData<Status>('system.getStatus', {}, 10_000);
  const { p50Ms, p99Ms, count = 0 } = data?.process.decisions ?? {};
  const isKnown = count >= fewMax && p50Ms !== undefined && p99Ms !== undefined;
  return (
    <Figure
      label="Median latency"
      hint="Of the server that responded, in the last minutes"
      value={isKnown ? milliseconds(p50Ms) : '–'}
      note={isKnown ? `p99 ${milliseconds(p99Ms)}` : data && `fewer than ${fewMax} decisions lately`}
    />
  );
}
