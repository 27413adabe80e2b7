// The image without a container engine: the steps of the Dockerfile in folders, and the server that they leave.

import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { endAll, temporaryDir } from '../support/processes.ts';

afterAll(endAll);

const lines = readFileSync('Dockerfile', 'utf8').split('\n');
const place = temporaryDir();
/** Programs of the image that these steps do not need. */
const isOutside = (path: string) => path.startsWith('/usr/local/bin/');

function copy(args: string[], folder: string) {
  const stage = args.find((each) => each.startsWith('--from='))?.slice('--from='.length);
  const [to, ...from] = args.filter((each) => !each.startsWith('--')).reverse();
  if (isOutside(to!)) return;
  for (const path of from) {
    const source = stage ? join(place, path.replace('/app', stage)) : resolve(path);
    const target = /\/$/.test(to!) ? join(folder, to!, basename(path)) : join(folder, to!);
    cpSync(source, target, { recursive: true, verbatimSymlinks: true });
  }
}

test('a server starts from the files of the last stage, and verifies a key', { timeout: 300_000 }, () => {
  let folder = place;
  for (const line of lines) {
    const [instruction = '', ...args] = line.split(/\s+/);
    if (instruction === 'FROM') {
      folder = join(place, args[1] === 'AS' ? args[2]! : 'last');
      mkdirSync(folder);
    }
    if (instruction === 'COPY') copy(args, folder);
    if (instruction !== 'RUN') continue;
    const [program, ...given] = JSON.parse(line.slice('RUN '.length)) as [string, ...string[]];
    if (program === 'npm') symlinkSync(resolve('node_modules'), join(folder, 'node_modules'));
    // The packages are linked here.
    else if (program !== 'rm') expect(spawnSync(program, given, { cwd: folder, stdio: 'inherit' }).status).toBe(0);
  }
  rmSync(join(place, 'build', 'dist'), { recursive: true });

  const command = (JSON.parse(/^CMD (.*)$/m.exec(lines.join('\n'))![1]!) as string[]).join(' ');
  const script = `
    (cd ${folder}; exec env -i PATH="$PATH" PORT=0 TOLLGATE_DATA_DIR=${place}/data ${command}) > ${place}/log 2>&1 &
    node .ci/smoke.mjs ${place}/log $!
    kill -TERM $!; wait $!`;
  const { status, stdout } = spawnSync('sh', ['-ec', script], { encoding: 'utf8' });
  expect([status, stdout], readFileSync(join(place, 'log'), 'utf8')).toEqual([0, 'A key was created and verified.\n']);
});
