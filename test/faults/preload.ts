// Libraries that are preloaded into a Redis (LD_PRELOAD): a clock that jumps, and a disk that loses data that was not
// synced.

import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, truncateSync } from 'node:fs';
import { join } from 'node:path';

/** Whether there is a C compiler to build them. */
export const compiles = spawnSync('cc', ['--version']).status === 0;

/** Compiles `<name>.c` to a library in `dir`. */
export function preload(name: 'fsync' | 'clock', dir: string): string | undefined {
  if (!compiles) return undefined;
  const library = join(dir, `${name}.so`);
  const source = `test/faults/${name}.c`;
  const { status, stderr } = spawnSync('cc', ['-O1', '-shared', '-fPIC', '-o', library, source, '-ldl'], {
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(stderr);
  return library;
}

/**
 * Simulates a power failure, which unlike a kill also loses data that Redis has written but not synced. Start Redis
 * with `env`. After it was killed, `losePower` cuts the append-only file back to the synced bytes, and returns how many
 * bytes were lost. Undefined without a C compiler.
 */
export function watchDisk(dir: string) {
  const library = preload('fsync', dir);
  const log = join(dir, 'fsync.log');
  if (!library) return undefined;
  return {
    env: { LD_PRELOAD: library, FSYNC_LOG: log },
    losePower(): number {
      const file = incrementalFile(dir);
      const lines = readFileSync(log, 'utf8').split('\n');
      const synced = Math.max(
        0,
        ...lines.filter((line) => line.endsWith(file)).map((line) => Number.parseInt(line, 10)),
      );
      const lost = readFileSync(file).length - synced;
      truncateSync(file, synced);
      return lost;
    },
  };
}

/** The append-only file to which a Redis writes. */
export function incrementalFile(dir: string): string {
  const names = readdirSync(join(dir, 'appendonlydir')).filter((name) => name.endsWith('.incr.aof'));
  return join(dir, 'appendonlydir', names.sort((a, b) => a.localeCompare(b, 'en', { numeric: true })).at(-1)!);
}
