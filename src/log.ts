// The log: lines of JSON on standard error. If the reader is slow, stopped or gone, or the disk is full, lines are lost
// and nothing else happens: memory stays bounded, and the process neither waits nor ends.

import { type Logger, pino } from 'pino';
import type { Config } from './config.ts';

/** Bytes of lines that wait for the reader, about 5000 lines. Further lines are dropped and counted. */
const waitingBytesMax = 1024 * 1024;
/** At exit, waiting lines are written only if a reader is likely to take them soon, because this write blocks. */
const flushedBytesMax = 64 * 1024;
const stalledAfterMs = 1_000;

/**
 * The fields of an error that are logged: an error of ioredis also contains its command, which may contain a secret.
 * The message of the cause is what Redis replied, for example that its disk is full.
 */
const errorFields = ({ name, message, stack, cause }: Error) => ({
  name,
  message,
  ...(cause instanceof Error && { cause: cause.message }),
  stack,
});

export function createLog({ logLevel }: Pick<Config, 'logLevel'>): Logger {
  // Not on standard output, which gets the first root key.
  const file = pino.destination({ dest: 2, maxLength: waitingBytesMax });
  let waitingBytes = 0;
  let dropped = 0;
  /** When the reader last took bytes, or bytes began to wait. */
  let movedAt = 0;

  const output = {
    write(line: string) {
      if (waitingBytes === 0) movedAt = performance.now();
      const droppedBefore = dropped;
      file.write(line);
      if (dropped === droppedBefore) waitingBytes += Buffer.byteLength(line);
    },
    /**
     * Calls `done` when no line waits. At exit, a line that is being written would come after the last ones, or be
     * lost.
     */
    flush(done: () => void) {
      const check = () => {
        if (waitingBytes > 0) return;
        file.off('write', check);
        done();
      };
      file.on('write', check);
      check();
    },
  };
  const log = pino(
    {
      level: logLevel,
      base: null,
      serializers: { err: errorFields },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (level) => ({ level }) },
    },
    output,
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
    log.warn({ dropped: lines }, 'Log lines were dropped because standard error was read too slowly.');
  });
  // Without a listener, a full disk would be an uncaught exception. The next line is written again.
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
