// How far a long command is: a bar on a terminal, else a plain line now and then. On standard error, so that standard
// output carries nothing but what was asked for.

import { SingleBar } from 'cli-progress';

/** Between two plain lines. */
const lineEveryMs = 10_000;

export interface Progress {
  /** `done` of the total; `lines` so far. */
  at(done: number, lines: number): void;
  stop(): void;
}

/** `total` in whatever unit `done` is told in; undefined when nobody knows how much there is. */
export function startProgress(what: string, total: number | undefined): Progress {
  const { isTTY } = process.stderr;
  const counted = '{lines} lines, {duration_formatted}';
  const portion = isTTY ? ' {bar} {percentage} %, {eta_formatted} to go,' : ': {percentage} %,';
  const bar = new SingleBar({
    stream: process.stderr,
    format: total === undefined ? `${what}: ${counted}` : `${what}${portion} ${counted}`,
    barCompleteChar: '█',
    barIncompleteChar: '░',
    barsize: 24,
    noTTYOutput: true,
    notTTYSchedule: lineEveryMs,
    hideCursor: null,
    // Else a plain last line is followed by an empty one.
    clearOnComplete: !isTTY,
    gracefulExit: false,
    etaBuffer: 50,
    formatValue: (value, _options, type) =>
      type === 'percentage' ? `${Math.min(100, Math.floor(value))}` : `${value}`,
  });
  bar.start(total ?? 1, 0, { lines: 0 });
  return {
    at: (done, lines) => bar.update(Math.min(done, total ?? 0), { lines: lines.toLocaleString('en') }),
    stop: () => bar.stop(),
  };
}
