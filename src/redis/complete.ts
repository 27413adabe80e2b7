// Whether the embedded Redis begins with every write of the one before it. A Redis that is killed may lose its last
// writes. One that was stopped has written all of them: then a file describes the append-only file that it left, by
// what copies and restored backups do not share with it (inode and time of the last change of the inode).

import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const markOf = (dir: string) => join(dir, 'complete');

/** Stores that the append-only file in this directory has every write. */
export function markComplete(dir: string): void {
  try {
    writeFileSync(markOf(dir), describe(dir), { mode: 0o600 });
  } catch {
    // On a full disk. Then the next start waits for leases.
  }
}

/** Whether the append-only file has every write, or there is none. Removes the mark, as Redis will write. */
export function takeComplete(dir: string): boolean {
  try {
    const mark = existsSync(markOf(dir)) ? readFileSync(markOf(dir), 'utf8') : '';
    rmSync(markOf(dir), { force: true });
    return mark === describe(dir);
  } catch {
    return false;
  }
}

/** A line for each file; '' without an append-only file. */
function describe(dir: string): string {
  const files = readdirSync(dir, { recursive: true, encoding: 'utf8' }).filter((path) => path.startsWith('appendonly'));
  return files
    .sort()
    .map((path) => {
      const { ino, size, ctimeNs } = statSync(join(dir, path), { bigint: true });
      return `${path} ${ino} ${size} ${ctimeNs}\n`;
    })
    .join('');
}
