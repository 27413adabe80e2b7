// The log: lines of JSON on standard error. A reader that is slow, stopped or gone, or a full disk, costs lines and
// nothing else: no memory beyond a bound, no wait, no end of the process.

import { type Logger, pino } from 'pino';
import type { Config } from './config.ts';

/** Bytes of lines that wait for the reader, some 5000 lines. Further lines are dropped, and counted. */
const waitingBytesMax = 1024 * 1024;
/** At exit, what waits is written only when a reader can take it soon: writing then blocks. */
const flushedBytesMax = 64 * 1024;
const stalledAfterMs = 1_000;

/** Errors are logged by name, message and stack alone: one of ioredis carries its command, and that may carry a secret. */
export function createLog({ logLevel }: Pick<Config, 'logLevel'>): Logger {
  const err = ({ name, message, stack }: Error) => ({ name, message, stack });
  // Standard output is for the address and the first root key, which then is in no log file.
  const file = pino.destination({ dest: 2, maxLength: waitingBytesMax });
  let waitingBytes = 0;
  let dropped = 0;
  /** When bytes were last taken, or began to wait. */
  let movedAt = 0;

  const log = pino(
    { level: logLevel, base: null, serializers: { err } },
    {
      write(line) {
        if (waitingBytes === 0) movedAt = performance.now();
        const droppedBefore = dropped;
        file.write(line);
        if (dropped === droppedBefore) waitingBytes += Buffer.byteLength(line);
      },
    },
  );

  file.on('drop', () => {
    dropped++;
  });
  file.on('write', (bytes: number) => {
    waitingBytes -= bytes;
    movedAt = performance.now();
    if (dropped === 0 || waitingBytes > waitingBytesMax / 2) return;
    const lines = dropped;
    dropped = 0;
    log.warn({ dropped: lines }, 'Log lines were dropped, as standard error was read too slowly.');
  });
  // Without a listener a full disk would be an uncaught exception. The next line tries again.
  file.on('error', () => {});

  const flushSync = file.flushSync.bind(file);
  file.flushSync = () => {
    const isRead = performance.now() - movedAt < stalledAfterMs;
    if (!isRead || waitingBytes > flushedBytesMax) return;
    try {
      flushSync();
    } catch {
      // There is nowhere left to report it.
    }
  };
  return log;
}
