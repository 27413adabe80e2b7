// Bounds log lines that any client can cause or that an outage repeats: one of each kind per second. The first is
// written immediately, then the latest of each second with `omitted`, the number of lines of its kind that were left
// out since the previous one.

import type { Logger } from 'pino';
import type { ApiError } from '../errors.ts';
import { causeOf } from './errorResponse.ts';
import type { Request } from './message.ts';

type Level = 'info' | 'error';

const pauseMs = 1_000;

export class CallLog {
  readonly #log: Logger;
  /** Kinds of which a line was written less than a second ago. Callers cannot create kinds, so there are few. */
  readonly #paused = new Map<string, { latest: { level: Level; line: object } | undefined; omitted: number }>();

  constructor(log: Logger) {
    this.#log = log;
  }

  write(kind: string, level: Level, line: object) {
    const paused = this.#paused.get(kind);
    if (paused) {
      if (paused.latest) paused.omitted++;
      paused.latest = { level, line };
      return;
    }
    this.#log[level](line);
    this.#pause(kind);
  }

  /** Writes an error of the server. One of its caller is not logged. */
  failed(operation: string, { requestId }: Pick<Request, 'requestId'>, error: ApiError, startedAt: number) {
    const { status, code } = error;
    if (status < 500) return;
    const durationMs = Math.round((performance.now() - startedAt) * 1000) / 1000;
    this.write(code, 'error', { requestId, operation, status, code, cause: causeOf(error), durationMs });
  }

  #pause(kind: string) {
    this.#paused.set(kind, { latest: undefined, omitted: 0 });
    setTimeout(() => {
      const { latest, omitted } = this.#paused.get(kind)!;
      this.#paused.delete(kind);
      if (!latest) return;
      this.#log[latest.level](omitted > 0 ? { ...latest.line, omitted } : latest.line);
      this.#pause(kind);
    }, pauseMs).unref();
  }
}
