// Progress of a long command on standard error: a bar on a terminal, otherwise a line every ten seconds.

import { SingleBar } from 'cli-progress';
import type { Terminal } from './terminal.ts';

const lineEveryMs = 10_000;

export interface Progress {
  /** `done` is in the unit of the total; `lines` counts all lines so far. */
  update(done: number, lines: number): void;
  stop(): void;
}

/** Displays the progress of `run`, and ends the display however `run` ends: its timer would keep the process alive. */
export async function withProgress<Result>(
  run: (progress: Progress) => Promise<Result>,
  ...of: Parameters<typeof startProgress>
): Promise<Result> {
  const progress = startProgress(...of);
  try {
    return await run(progress);
  } finally {
    progress.stop();
  }
}

/** `total` is undefined if it is not known. */
export function startProgress(
  stderr: Terminal['stderr'],
  task: string,
  total: number | undefined,
  unit = 'lines',
): Progress {
  const { isTTY } = stderr;
  const counted = `{lines} ${unit}, {duration_formatted}`;
  const portion = isTTY ? ' {bar} {percentage} %, {eta_formatted} to go,' : ': {percentage} %,';
  const bar = new SingleBar({
    stream: stderr,
    format: total === undefined ? `${task}: ${counted}` : `${task}${portion} ${counted}`,
    barCompleteChar: '█',
    barIncompleteChar: '░',
    barsize: 24,
    noTTYOutput: true,
    notTTYSchedule: lineEveryMs,
    hideCursor: null,
    // Otherwise an empty line follows the last one.
    clearOnComplete: !isTTY,
    gracefulExit: false,
    etaBuffer: 50,
    formatValue: (value, _options, type) =>
      type === 'percentage' ? `${Math.min(100, Math.floor(value))}` : `${value}`,
  });
  bar.start(total ?? 1, 0, { lines: 0 });
  return {
    update: (done, lines) => bar.update(Math.min(done, total ?? 0), { lines: lines.toLocaleString('en') }),
    stop: () => bar.stop(),
  };
}
