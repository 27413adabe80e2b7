// Python packages for tests, pinned by their hashes: installed once, and kept below node_modules.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';

export interface Python {
  /** The arguments that start Python with these packages only. */
  args: readonly string[];
  env: { PYTHONPATH: string };
}

const cache = resolve('node_modules/.cache/tollgate');
const installMsMax = 180_000;

/** Python with the packages of a requirements file, or the reason why it is missing. */
export function pythonWith(requirements: string): Python | { missing: string } {
  const version = spawnSync('python3', ['-m', 'pip', '--version'], { encoding: 'utf8' });
  if (version.status !== 0) return { missing: `there is no python3 with pip: ${reasonOf(version)}` };
  const digest = createHash('sha256').update(readFileSync(requirements)).update(version.stdout).digest('hex');
  const folder = join(cache, `python-${digest.slice(0, 16)}`);
  if (!existsSync(folder)) {
    mkdirSync(cache, { recursive: true });
    const unfinished = mkdtempSync(join(cache, 'unfinished-'));
    const options = [
      '--quiet',
      '--no-compile',
      '--disable-pip-version-check',
      '--root-user-action=ignore',
      '--retries=1',
    ];
    const args = [...options, '--only-binary=:all:', '--require-hashes', '--target', unfinished, '-r', requirements];
    const install = spawnSync('python3', ['-m', 'pip', 'install', ...args], {
      encoding: 'utf8',
      timeout: installMsMax,
    });
    if (install.status !== 0) {
      rmSync(unfinished, { recursive: true });
      return { missing: `pip could not install ${requirements}: ${reasonOf(install)}` };
    }
    // Another test may have installed the same packages meanwhile.
    if (existsSync(folder)) rmSync(unfinished, { recursive: true });
    else renameSync(unfinished, folder);
  }
  // -S leaves out the packages of this machine.
  return { args: ['-S'], env: { PYTHONPATH: folder } };
}

const reasonOf = ({ error, stderr }: { error?: Error; stderr: string | null }) =>
  error?.message ?? stderr?.trim().split('\n').at(-1) ?? '';
