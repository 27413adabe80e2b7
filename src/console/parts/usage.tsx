// Verifications over a period, as figures and as a chart: of a workspace, an API, a key or a customer.

import type { ComponentChildren } from 'preact';
import { outcomes, refusals } from '../../domain/columns.ts';
import { useData } from '../api.ts';
import { compact, count, percent } from '../format.ts';
import { byTime, countOf, inDays, type Period, sumOf, type usePeriod } from '../period.ts';
import type { Api, Key, UsageRow } from '../records.ts';
import { may } from '../session.ts';
import { Card, Loaded, PeriodChoice, wordOf } from './basic.tsx';
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

/** "+12 %", or "217 ×" from ten times on. Empty without a period before to compare with. */
function change(now: number, then: number): string {
  if (then === 0) return now === 0 ? '' : 'none in the period before';
  if (now >= 10 * then) return `${count(Math.round(now / then))} × the period before`;
  const part = (100 * (now - then)) / then;
  return `${part >= 0 ? '+' : '−'}${Math.abs(part).toFixed(Math.abs(part) < 10 ? 1 : 0)} % on the period before`;
}

/** When the first key existed; undefined if that is not known. For a customer, when the first API existed. */
function useSince({ apiId, keyId }: UsageOf): number | undefined {
  const mayKeys = may('api', 'read_key');
  const mayApis = may('api', 'read_api', apiId ?? '*') && !keyId;
  const key = useData<Key>('keys.getKey', keyId !== undefined && mayKeys ? { keyId } : undefined);
  const api = useData<Api>('apis.getApi', mayApis && apiId !== undefined ? { apiId } : undefined);
  const oldest = mayApis && apiId === undefined ? { limit: 1, order: 'asc' } : undefined;
  const first = useData<Api[]>('apis.listApis', oldest);
  return (key.data ?? api.data ?? first.data?.[0])?.createdAt;
}

const spentOf = (rows: readonly UsageRow[]) => sumOf(rows, ({ spentCredits }) => spentCredits);
const refusedOf = (rows: readonly UsageRow[]) => countOf(rows) - countOf(rows, 'VALID');

/** The most frequent reason of refusals; empty without any. */
function reasonOf(rows: readonly UsageRow[]): string {
  const [most] = refusals
    .map((outcome) => ({ outcome, sum: countOf(rows, outcome) }))
    .sort((one, other) => other.sum - one.sum);
  return most && most.sum > 0 ? `${wordOf(most.outcome)}: ${percent(most.sum, refusedOf(rows))}` : '';
}

/** A larger figure has no room for all digits. */
const longMin = 100_000_000;
const shortly = (value: number) => (value < longMin ? count(value) : compact(value));

/** `children` are further figures. */
export function UsageFigures({ of, period, children }: { of: UsageOf; period: Period; children?: ComponentChildren }) {
  const earlier = before(period);
  const since = useSince(of);
  const { data: now } = useUsage(of, period);
  const { data: then } = useUsage(of, earlier, 0);
  // No comparison with a time before the first key, or without counts.
  const isNew = since !== undefined && since >= earlier.start + period.stepMs;
  const figure = (label: string, amount: (rows: readonly UsageRow[]) => number) => {
    const value = now && amount(now);
    const isFirst = amount === countOf;
    return (
      <Figure
        label={label}
        value={value === undefined ? '–' : shortly(value)}
        note={isNew ? isFirst && 'no full period before' : now && then?.length && change(amount(now), amount(then))}
      />
    );
  };
  const [valid, all] = now ? [countOf(now, 'VALID'), countOf(now)] : [];
  return (
    <div class="figures-row">
      {figure('Verifications', countOf)}
      {valid === undefined || all === undefined ? (
        <Figure label="Valid" value="–" />
      ) : (
        <Figure label="Valid" value={percent(valid, all)} note={all > 0 && `${count(valid)} of ${count(all)}`} />
      )}
      <Figure label="Refused" value={now ? shortly(refusedOf(now)) : '–'} note={now && reasonOf(now)} />
      {figure('Credits spent', spentOf)}
      {children}
    </div>
  );
}

/** The figures and the chart of a screen, and the choice of its period. */
export const Usage = (props: { of: UsageOf; period: ReturnType<typeof usePeriod>; title?: string }) => (
  <>
    <UsageFigures of={props.of} period={props.period} />
    <Card
      title={`${props.title ?? 'Verifications'} by ${props.period.granularity}, UTC`}
      actions={<PeriodChoice period={props.period} />}
    >
      <UsageChart of={props.of} period={props.period} />
    </Card>
  </>
);

const countOne = ({ count }: UsageRow) => count;

export function UsageChart({ of, period }: { of: UsageOf; period: Period }) {
  const data = useUsage(of, period);
  const earlier = before(period);
  // The request of the figures.
  const then = useUsage(of, earlier, 0).data;
  return (
    <Loaded of={data} lines={7}>
      {(rows) => {
        // The hours of earlier days are kept as one sum.
        const isCoarse = period.granularity === 'hour' && rows.some(({ granularity }) => granularity === 'day');
        const shown = isCoarse ? inDays(period) : period;
        // Where its hours are kept as one sum, too, they are no line.
        const isFine = !then?.some(({ granularity }) => granularity === 'day' && shown.granularity === 'hour');
        return (
          <>
            <Chart
              title="Verifications by outcome"
              times={shown.times}
              stepMs={shown.stepMs}
              choose={period.choose}
              before={
                then && isFine ? byTime({ ...shown, start: 2 * shown.start - shown.end }, then, countOne) : undefined
              }
              series={outcomes.map((outcome) => ({
                name: wordOf(outcome),
                color: `--${outcome}`,
                values: byTime(
                  shown,
                  rows.filter((row) => row.outcome === outcome),
                  countOne,
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
