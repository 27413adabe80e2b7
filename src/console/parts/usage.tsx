// Verifications over a period, as figures and as a chart: of a workspace, an API, a key or a customer.

import type { ComponentChildren } from 'preact';
import { useData } from '../api.ts';
import { compact, count, percent } from '../format.ts';
import { byTime, countOf, inDays, type Period, sumOf } from '../period.ts';
import type { UsageRow } from '../records.ts';
import { Loaded, outcomes, wordOf } from './basic.tsx';
import { Chart, Figure } from './chart.tsx';

export interface UsageOf {
  apiId?: string;
  keyId?: string;
  externalId?: string;
}

export const useUsage = (of: UsageOf | undefined, { start, end, granularity }: Period, everyMs = 5000) =>
  useData<UsageRow[]>(
    'analytics.getVerifications',
    of && { ...of, start, end, granularity, groupBy: ['outcome'] },
    everyMs,
  );

/** The period of the same length before this one. */
export const before = (period: Period): Period => ({
  ...period,
  start: 2 * period.start - period.end,
  end: period.start,
  times: [],
});

const change = (now: number, then: number): string => {
  if (then === 0) return now === 0 ? 'as in the period before' : 'none in the period before';
  const part = (100 * (now - then)) / then;
  return `${part >= 0 ? '+' : '−'}${Math.abs(part).toFixed(Math.abs(part) < 10 ? 1 : 0)} % on the period before`;
};

const spentOf = (rows: readonly UsageRow[]) => sumOf(rows, ({ spentCredits }) => spentCredits);
const limitedOf = (rows: readonly UsageRow[]) => countOf(rows, 'RATE_LIMITED') + countOf(rows, 'USAGE_EXCEEDED');

/** `children` are further figures. */
export function UsageFigures({ of, period, children }: { of: UsageOf; period: Period; children?: ComponentChildren }) {
  const { data: now } = useUsage(of, period);
  const { data: then } = useUsage(of, before(period), 0);
  const figure = (label: string, amount: (rows: readonly UsageRow[]) => number) => (
    <Figure
      label={label}
      value={now ? compact(amount(now)) : '–'}
      note={now && then && change(amount(now), amount(then))}
    />
  );
  const [valid, all] = now ? [countOf(now, 'VALID'), countOf(now)] : [];
  return (
    <div class="figures-row">
      {figure('Verifications', countOf)}
      {valid === undefined || all === undefined ? (
        <Figure label="Valid" value="–" />
      ) : (
        <Figure label="Valid" value={percent(valid, all)} note={`${count(valid)} of ${count(all)}`} />
      )}
      {figure('Limited or used up', limitedOf)}
      {figure('Credits spent', spentOf)}
      {children}
    </div>
  );
}

export function UsageChart({ of, period, title }: { of: UsageOf; period: Period; title: string }) {
  const data = useUsage(of, period);
  return (
    <Loaded of={data} lines={7}>
      {(rows) => {
        // The hours of earlier days are kept as one sum.
        const isCoarse = period.granularity === 'hour' && rows.some(({ granularity }) => granularity === 'day');
        const shown = isCoarse ? inDays(period) : period;
        return (
          <>
            <Chart
              title={title}
              times={shown.times}
              stepMs={shown.stepMs}
              choose={period.choose}
              series={outcomes.map((outcome) => ({
                name: wordOf(outcome),
                color: `--${outcome}`,
                values: byTime(
                  shown,
                  rows.filter((row) => row.outcome === outcome),
                  ({ count }) => count,
                ),
              }))}
            />
            {isCoarse && <p class="quiet">By day: the hours of these days are kept as one sum (USAGE_HOURLY_DAYS).</p>}
          </>
        );
      }}
    </Loaded>
  );
}
