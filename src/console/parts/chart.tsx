// Charts by uPlot. Each displays the figures under the pointer (chartPoint.tsx), and has all figures as a table.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { compact, count, date, dateTime, hourOfDay } from '../format.ts';
import { dayMs, sumOf } from '../period.ts';
import { themeEvent } from '../theme.ts';
import { Button } from './basic.tsx';
import { type ChartProps, Point, type Series, Swatch } from './chartPoint.tsx';

const colorOf = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** An hour, or the day that begins with it. */
const tickOf = (ms: number, stepMs: number) =>
  stepMs >= dayMs || new Date(ms).getUTCHours() === 0 ? date(ms).slice(5) : hourOfDay(ms);

/** Sums each series with those below it, so that bars are stacked. */
function stacked(series: readonly Series[], length: number): number[][] {
  const sums: number[] = Array(length).fill(0);
  return series.map(({ values }) => values.map((value, index) => (sums[index]! += value)));
}

/**
 * The end of a scale on which a few very large bars do not flatten the others: undefined where the largest is at most
 * four times as large as the next after the largest tenth.
 */
function cutOf(sums: readonly number[]): number | undefined {
  const used = sums.filter((sum) => sum > 0).sort((a, b) => a - b);
  const usual = used[Math.ceil(used.length * 0.9) - 2];
  return used.length >= 6 && usual !== undefined && used.at(-1)! > 4 * usual ? Math.max(4, 1.5 * usual) : undefined;
}

const beforeName = 'The period before';
const beforeColor = '--quiet';
const dashed = { width: 1.5, dash: [4, 3], points: { show: false } };

/**
 * Stacked bars of the series that are not hidden, up to `end` of the scale. The last series is drawn first, so that it
 * is behind the others. The period before is a line.
 */
function Bars({ times, series, before, stepMs, height = 220, end }: ChartProps & { end: number | undefined }) {
  const host = useRef<HTMLDivElement>(null);
  const id = JSON.stringify([times, series, before, stepMs, end]);
  useEffect(() => {
    const element = host.current!;
    const sums = stacked(series, times.length).reverse();
    const behind = [...series].reverse();
    const stepS = stepMs / 1000;
    const axis = {
      stroke: () => colorOf('--quiet'),
      grid: { stroke: () => colorOf('--line'), width: 1 },
      ticks: { show: false },
      font: '12px system-ui',
    };
    const options: uPlot.Options = {
      width: element.clientWidth,
      height,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), 'UTC'),
      legend: { show: false },
      cursor: { show: false },
      padding: [12, 8, 0, 0],
      scales: {
        x: { range: [(times[0] ?? 0) / 1000 - stepS / 2, (times.at(-1) ?? 0) / 1000 + stepS / 2] },
        y: { range: (_plot, _min, max) => [0, end ?? Math.max(4, max * 1.05)] },
      },
      axes: [
        {
          ...axis,
          grid: { show: false },
          size: 32,
          values: (_plot, ticks) => ticks.map((t) => tickOf(t * 1000, stepMs)),
        },
        {
          ...axis,
          size: 56,
          values: (_plot, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? compact(tick) : '')),
        },
      ],
      series: [
        {},
        ...behind.map(({ name, color }) => ({
          label: name,
          fill: () => colorOf(color),
          width: 0,
          paths: uPlot.paths.bars!({ size: [0.8, 40] }),
          points: { show: false },
        })),
        ...(before ? [{ label: beforeName, stroke: () => colorOf(beforeColor), ...dashed }] : []),
      ],
    };
    const rows = [times.map((t) => t / 1000), ...sums, ...(before ? [[...before]] : [])];
    const plot = new uPlot(options, rows as uPlot.AlignedData, element);
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    const redraw = () => plot.redraw(false);
    addEventListener(themeEvent, redraw);
    return () => {
      removeEventListener(themeEvent, redraw);
      observer.disconnect();
      plot.destroy();
    };
  }, [id, height]);
  return <div ref={host} aria-hidden="true" />;
}

export function Chart(props: ChartProps) {
  const { series, before, times, height = 220 } = props;
  const [hidden, setHidden] = useState<readonly string[]>([]);
  const [isFull, setFull] = useState(false);
  const used = series.filter(({ values }) => values.some((value) => value > 0));
  const line = before?.some((value) => value > 0) ? [{ name: beforeName, color: beforeColor, values: before }] : [];
  const listed = [...(used.length > 0 ? used : series.slice(0, 1)), ...line];
  const shown = series.filter(({ name }) => !hidden.includes(name));
  const end = cutOf(times.map((_, index) => sumOf(shown, ({ values }) => values[index]!)));
  const toggle = (name: string) =>
    setHidden(hidden.includes(name) ? hidden.filter((one) => one !== name) : [...hidden, name]);
  return (
    <figure class="chart">
      <div class="plot" style={{ height: `${height}px` }}>
        <Bars
          {...props}
          series={shown}
          before={hidden.includes(beforeName) ? undefined : line[0]?.values}
          end={isFull ? undefined : end}
        />
        {times.length > 0 && <Point chart={props} hidden={hidden} />}
      </div>
      {end !== undefined && (
        <p class="quiet">
          {!isFull && `The scale ends at ${compact(Math.floor(end))}: bars that reach the top are higher. `}
          <Button class="small" aria-pressed={isFull} onClick={() => setFull(!isFull)}>
            Whole scale
          </Button>
        </p>
      )}
      <Legend series={listed} hidden={hidden} toggle={toggle} />
      <FigureTable {...props} series={[...used, ...line]} />
    </figure>
  );
}

/** A click hides a series, or displays it again. */
const Legend = (props: { series: readonly Series[]; hidden: readonly string[]; toggle: (name: string) => void }) => (
  <ul class="legend">
    {props.series.map(({ name, color, values }) => (
      <li key={name}>
        <button type="button" aria-pressed={!props.hidden.includes(name)} onClick={() => props.toggle(name)}>
          <Swatch color={color} /> {name} <span class="number quiet">{count(sumOf(values, (value) => value))}</span>
        </button>
      </li>
    ))}
  </ul>
);

const FigureTable = ({ title, times, series, stepMs }: ChartProps) => (
  <details class="figures">
    <summary>Figures</summary>
    <div class="table">
      <table>
        <caption class="hidden">{title}</caption>
        <thead>
          <tr>
            <th scope="col">{stepMs < dayMs ? 'Hour, UTC' : 'Day, UTC'}</th>
            {series.map(({ name }) => (
              <th key={name} scope="col" class="right">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {times.map((time, index) => (
            <tr key={time}>
              <td class="number">{stepMs < dayMs ? dateTime(time, { seconds: false }) : date(time)}</td>
              {series.map(({ name, values }) => (
                <td key={name} class="right number">
                  {count(values[index]!)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  </details>
);

/** Bars without axes, for a row of a table. `isRunning`: the last one is not over. */
export function Spark(props: { values: readonly number[]; label: string; isRunning?: true }) {
  const { values, label, isRunning } = props;
  const [width, height] = [72, 22];
  const max = Math.max(1, ...values);
  const step = width / Math.max(1, values.length);
  return (
    <svg class="spark" width={width} height={height} role="img" aria-label={label}>
      {values.map((value, index) => {
        const part = (value / max) * height;
        const isLast = isRunning && index === values.length - 1;
        const place = { x: index * step, y: height - part, width: 0.8 * step, height: part };
        return <rect key={index} {...place} class={isLast ? 'now' : ''} />;
      })}
    </svg>
  );
}

/** Of fewer requests no median is displayed. */
export const fewMax = 20;

interface FigureProps {
  label: string;
  /** A longer description than the label. */
  hint?: string | undefined;
  value: ComponentChildren;
  note?: ComponentChildren;
}
export const Figure = (props: FigureProps) => (
  <div class="figure" title={props.hint}>
    <p class="figure-label">{props.label}</p>
    <p class="figure-value number">{props.value}</p>
    <p class="figure-note quiet">{props.note || '\u00a0'}</p>
  </div>
);
