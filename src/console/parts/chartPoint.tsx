// The figures of the bars under the pointer, or selected by arrow keys: the time, each series and its share. A click or
// Enter makes their time the period of the screen; a drag, or arrow keys with Shift, selects several bars.

import { useRef, useState } from 'preact/hooks';
import { count, percent, timeSpan } from '../format.ts';
import { dayMs, sumOf } from '../period.ts';
import { localTime } from '../zone.ts';
import { Button } from './basic.tsx';

export interface Series {
  name: string;
  /** The name of a custom property with its color. */
  color: string;
  values: readonly number[];
}

export interface ChartProps {
  title: string;
  times: readonly number[];
  series: readonly Series[];
  /** The length of a bar. */
  stepMs: number;
  height?: number;
  /** The sums of the same bars in the period before, for a line. */
  before?: readonly number[] | undefined;
  /** Makes the time of bars the period of the screen. */
  choose?: ((start: number, end: number) => void) | undefined;
}

export const Swatch = ({ color }: { color: string }) => (
  <svg width="10" height="10" aria-hidden="true">
    <rect width="10" height="10" rx="2" style={{ fill: `var(${color})` }} />
  </svg>
);

/** The first and the last bar, in the order in which they were selected. */
interface Spot {
  from: number;
  to: number;
  /** On touch screens a button makes the choice, because a finger also explores. */
  isHeld: boolean;
}

type Figures = ReturnType<typeof figuresOf>;

/** The figures of bars. Shares are of all series, including hidden ones. */
function figuresOf({ times, series, stepMs }: ChartProps, { from, to }: Spot, hidden: readonly string[]) {
  const [first, last] = [Math.min(from, to), Math.max(from, to)];
  const start = times[first]!;
  const end = times[last]! + stepMs;
  const rows = series.map((one) => ({
    ...one,
    sum: sumOf(one.values.slice(first, last + 1), (value) => value),
  }));
  const all = sumOf(rows, ({ sum }) => sum);
  const shown = rows.filter(({ name, sum }) => sum > 0 && !hidden.includes(name));
  const isOver = end <= Date.now();
  const here = end - start < dayMs ? localTime(start) : '';
  const when = `${timeSpan(start, end)} UTC${here}${isOver ? '' : ', not over yet'}`;
  return { first, last, start, end, all, shown, when };
}

const sentenceOf = ({ when, all, shown }: Figures) =>
  [`${when}: ${count(all)}`, ...shown.map(({ name, sum }) => `${name} ${count(sum)}, ${percent(sum, all)}`)].join('; ');

/** Next to the bars, within the chart. */
const tipWidth = 250;
const placeOf = (middle: number) =>
  `max(-48px, min(calc(100% - ${tipWidth}px), calc(${100 * middle}% ${middle < 0.5 ? '+ 14px' : `- ${tipWidth + 14}px`})))`;

function Tip(props: { figures: Figures; middle: number; isHeld: boolean; choose: (() => void) | undefined }) {
  const { figures, middle, isHeld, choose } = props;
  const { when, all, shown } = figures;
  return (
    <div class={`tip ${isHeld ? 'held' : ''}`} style={{ left: placeOf(middle), width: `${tipWidth}px` }}>
      <table aria-hidden="true">
        <caption>{when}</caption>
        <tbody>
          {shown.map(({ name, color, sum }) => (
            <tr key={name}>
              <td>
                <Swatch color={color} /> {name}
              </td>
              <td class="right number">{count(sum)}</td>
              <td class="right number">{percent(sum, all)}</td>
            </tr>
          ))}
          <tr>
            <td>All</td>
            <td class="right number">{count(all)}</td>
            <td />
          </tr>
        </tbody>
      </table>
      {isHeld && choose && (
        <Button class="small" onClick={choose}>
          Show this period
        </Button>
      )}
    </div>
  );
}

/** Keys that move in the chart; undefined for others. */
function moved(key: string, at: number, length: number): number | undefined {
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: length - 1 }[key];
  return to === undefined ? undefined : Math.min(length - 1, Math.max(0, to));
}

export function Point({ chart, hidden }: { chart: ChartProps; hidden: readonly string[] }) {
  const [spot, set] = useState<Spot>();
  /** The bar at which a drag began. */
  const anchor = useRef<number>();
  const { title, times, stepMs, choose } = chart;
  const { length } = times;
  const clamped = Math.min(length - 1, spot?.to ?? length - 1);
  const at = { ...spot, from: Math.min(length - 1, spot?.from ?? clamped), to: clamped, isHeld: spot?.isHeld ?? false };
  const figures = figuresOf(chart, at, hidden);
  const { first, last, start, end } = figures;
  const take =
    choose && last - first + 1 < length
      ? () => {
          set(undefined);
          choose(start, end);
        }
      : undefined;
  const indexOf = ({ clientX, currentTarget }: PointerEvent) => {
    const { left, width } = (currentTarget as Element).getBoundingClientRect();
    return Math.min(length - 1, Math.max(0, Math.floor(((clientX - left) / width) * length)));
  };
  const point = (event: PointerEvent) => {
    const to = indexOf(event);
    set({ from: anchor.current ?? to, to, isHeld: event.pointerType !== 'mouse' });
  };
  const now = times.findIndex((time) => time <= Date.now() && Date.now() < time + stepMs);
  const span = (from: number, bars: number) => ({
    left: `${(100 * from) / length}%`,
    width: `${(100 * bars) / length}%`,
  });
  return (
    <div
      class="plot-over"
      onFocusOut={(e) => !e.currentTarget.contains(e.relatedTarget as Node | null) && set(undefined)}
    >
      {now >= 0 && <div class="plot-now" style={span(now, 1)} />}
      {spot && <div class="plot-spot" style={span(first, last - first + 1)} />}
      <div
        class="plot-keys"
        role="slider"
        tabIndex={0}
        aria-label={`${title}. Arrow keys read its bars${take ? ', Enter chooses one' : ''}.`}
        aria-valuemin={0}
        aria-valuemax={length - 1}
        aria-valuenow={at.to}
        aria-valuetext={sentenceOf(figures)}
        onFocus={({ currentTarget }) =>
          currentTarget.matches(':focus-visible') && set({ from: clamped, to: clamped, isHeld: false })
        }
        onKeyDown={(event) => {
          const to = moved(event.key, at.to, length);
          if (to !== undefined) set({ from: event.shiftKey ? at.from : to, to, isHeld: false });
          else if (event.key === 'Escape') set(undefined);
          else if (event.key === 'Enter' && spot) take?.();
          else return;
          event.preventDefault();
        }}
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          anchor.current = indexOf(event);
          event.currentTarget.setPointerCapture(event.pointerId);
          point(event);
        }}
        onPointerMove={(event) => (event.pointerType === 'mouse' || anchor.current !== undefined) && point(event)}
        onPointerUp={(event) => {
          const isDone = anchor.current !== undefined && event.pointerType === 'mouse';
          anchor.current = undefined;
          if (isDone) take?.();
        }}
        onPointerCancel={() => {
          anchor.current = undefined;
          set(undefined);
        }}
        onPointerLeave={(event) => event.pointerType === 'mouse' && anchor.current === undefined && set(undefined)}
      />
      {spot && <Tip figures={figures} middle={(first + last + 1) / 2 / length} isHeld={at.isHeld} choose={take} />}
    </div>
  );
}
