// Valkey 9 from Debian's unstable, for tests of what older servers lack. It runs from a folder below node_modules, with
// the C library it was built with. Nothing of the system is changed.

import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const cache = resolve('node_modules/.cache/tollgate');
const folder = join(cache, 'valkey-9');
const keyring = '/usr/share/keyrings/debian-archive-keyring.gpg';

function run(program: string, ...args: string[]): void {
  const { error, status, stderr } = spawnSync(program, args, { encoding: 'utf8', timeout: 300_000 });
  if (error) throw error;
  if (status !== 0) throw new Error(`${program}: ${stderr.trim().split('\n').at(-1)}`);
}

/** Downloads the packages with an apt that knows only this folder, and unpacks them below `root`. */
function download(into: string): void {
  for (const part of ['etc/apt/preferences.d', 'var/lib/apt/lists/partial', 'var/cache/apt/archives/partial'])
    mkdirSync(join(into, part), { recursive: true });
  mkdirSync(join(into, 'var/lib/dpkg'));
  // No package is installed there, so those that Valkey requires are downloaded as well.
  writeFileSync(join(into, 'var/lib/dpkg/status'), '');
  const source = `deb [signed-by=${keyring}] http://deb.debian.org/debian unstable main\n`;
  writeFileSync(join(into, 'etc/apt/sources.list'), source);
  const options = ['-qq', '-o', `Dir=${into}`, '-o', `Dir::State::status=${into}/var/lib/dpkg/status`];
  options.push('-o', 'APT::Sandbox::User=root');
  run('apt-get', ...options, 'update');
  run('apt-get', ...options, 'install', '-y', '--no-install-recommends', '--download-only', 'valkey-server');
  const archives = join(into, 'var/cache/apt/archives');
  for (const name of readdirSync(archives).filter((file) => file.endsWith('.deb')))
    run('dpkg', '-x', join(archives, name), join(into, 'root'));
}

/** A program that starts Valkey 9 like `redis-server`, or the reason why there is none. */
export function valkey9(): { program: string } | { missing: string } {
  const program = join(folder, 'valkey-server');
  if (existsSync(program)) return { program };
  if (process.arch !== 'x64') return { missing: `it is tried on x64 only, this is ${process.arch}` };
  mkdirSync(cache, { recursive: true });
  const unfinished = mkdtempSync(join(cache, 'unfinished-'));
  try {
    download(unfinished);
    const root = join(folder, 'root');
    const start = `${root}/usr/lib64/ld-linux-x86-64.so.2 --library-path ${root}/usr/lib/x86_64-linux-gnu`;
    const file = join(unfinished, 'valkey-server');
    writeFileSync(file, `#!/bin/sh\nexec ${start} --argv0 valkey-server ${root}/usr/bin/valkey-server "$@"\n`);
    chmodSync(file, 0o755);
    renameSync(unfinished, folder);
  } catch (error) {
    rmSync(unfinished, { recursive: true, force: true });
    return { missing: (error as Error).message };
  }
  const { status, stdout } = spawnSync(program, ['--version'], { encoding: 'utf8' });
  return status === 0 && / v=9\./.test(stdout) ? { program } : { missing: `it does not start here: ${stdout}` };
}
