// Libraries that are loaded into a Redis before its own: a clock that jumps, and a disk that loses what was not synced.

import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, truncateSync } from 'node:fs';
import { join } from 'node:path';

/** Whether there is a C compiler, for what is preloaded into a Redis. */
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
 * What a Redis has on its disk, as against what it has written: the loss of power that a kill is not. `env` goes to the Redis;
 * `losePower`, once it is killed, takes from its append-only file what had not reached the disk, and answers how many bytes
 * that was. Undefined where there is no C compiler.
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

/** The append-only file that a Redis is writing to. */
export function incrementalFile(dir: string): string {
  const names = readdirSync(join(dir, 'appendonlydir')).filter((name) => name.endsWith('.incr.aof'));
  return join(dir, 'appendonlydir', names.sort((a, b) => a.localeCompare(b, 'en', { numeric: true })).at(-1)!);
}
