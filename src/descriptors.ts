// Reports that a process has no file descriptor left. New connections then wait, and neither uWebSockets.js nor Node
// report it.

import { closeSync, openSync, readFileSync } from 'node:fs';
import type { Logger } from 'pino';

const checkEveryMs = 1_000;
/** Connections that end are replaced by waiting ones, so the descriptors may be used up again and again. */
const logEveryMs = 60_000;

/** Returns the function that ends it. */
export function watchDescriptors(log: Logger): () => void {
  const limit = softLimit();
  let usedUpAt: number | undefined;
  let loggedAt = Number.NEGATIVE_INFINITY;
  const timer = setInterval(() => {
    const now = performance.now();
    if (canOpen()) {
      if (usedUpAt !== undefined && usedUpAt === loggedAt)
        log.warn({ durationMs: Math.round(now - usedUpAt) }, 'There are free file descriptors again.');
      usedUpAt = undefined;
      return;
    }
    usedUpAt ??= now;
    if (now - loggedAt < logEveryMs) return;
    loggedAt = usedUpAt = now;
    log.error(
      { limit },
      'All file descriptors are in use: new connections wait until others end. ' +
        'Raise the limit (ulimit -n, or LimitNOFILE= in systemd), or find out who opens so many connections.',
    );
  }, checkEveryMs).unref();
  return () => clearInterval(timer);
}

function canOpen(): boolean {
  try {
    closeSync(openSync('/dev/null', 'r'));
    return true;
  } catch (error) {
    return !['EMFILE', 'ENFILE'].includes((error as NodeJS.ErrnoException).code!);
  }
}

/** Undefined on a system without /proc. */
function softLimit(): number | undefined {
  try {
    return Number(/^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1]);
  } catch {
    return undefined;
  }
}
