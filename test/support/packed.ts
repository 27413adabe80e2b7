// The program that tests start: the files of dist/, with each dependency bundled into one file. Node loads 600 files of
// dependencies otherwise, which is more than half of the CPU time of a start, and the tests start hundreds of
// processes. The tests themselves load the same bundles.
//
// `npm start` and `npx tollgate` load the packages as they are installed, in cli/backup.test.ts and .ci/run.

import { createHash } from 'node:crypto';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { rolldown } from 'rolldown';
import { build, root } from '../../bin/prepare.mjs';

/** A package that is not listed is loaded as it is installed. */
const packages = ['@scure/base', 'ajv', 'cli-progress', 'commander', 'ioredis', 'pino', 'prom-client', 'typebox'];

// The parents of this folder are searched for packages too: swagger-ui-dist, and the builds of uWebSockets.js.
const packed = join(root, 'dist', 'packed');
/** From the root of the repository, in which tests run. */
export const mainFile = 'dist/packed/dist/main.js';
export const cliFile = 'dist/packed/dist/cli/index.js';

/** The folder of an entry of node_modules: of its bundle, if it has one. */
export function installedOrPacked(name: string): string {
  const bundle = join(packed, 'node_modules', name);
  return existsSync(bundle) ? bundle : join(root, 'node_modules', name);
}

/** Bundles the dependencies if package-lock.json changed. Returns the file of each package, for vitest. */
export async function packDependencies(): Promise<Map<string, string>> {
  const files = new Map(packages.map((name) => [name, join(packed, 'node_modules', name, 'index.js')]));
  const stamp = join(packed, 'node_modules', '.lock');
  const lock = createHash('sha256')
    .update(readFileSync(join(root, 'package-lock.json')))
    .digest('hex');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === lock) return files;
  rmSync(packed, { recursive: true, force: true });
  await Promise.all([...files].map(([name, file]) => pack(name, file)));
  // Files that the program reads at their places next to dist/.
  for (const name of ['lua', 'src', 'package.json']) symlinkSync(join(root, name), join(packed, name));
  writeFileSync(stamp, lock);
  return files;
}

async function pack(name: string, file: string) {
  // Of a CommonJS package a bundle has no named exports. The entry gives it those that Node finds.
  const names = Object.keys(await import(name)).filter((exported) => exported !== 'module.exports');
  const lines = names.map(
    (exported, at) => `const export${at} = all[${JSON.stringify(exported)}]; export { export${at} as ${exported} };`,
  );
  const entry = join(root, 'entry.js');
  const text = [`import * as all from ${JSON.stringify(name)};`, ...lines].join('\n');
  const bundle = await rolldown({
    input: entry,
    platform: 'node',
    logLevel: 'silent',
    plugins: [
      {
        name: 'entry',
        resolveId: (id) => (id === entry ? id : undefined),
        load: (id) => (id === entry ? text : undefined),
      },
    ],
  });
  await bundle.write({ file, format: 'esm' });
  await bundle.close();
  writeFileSync(join(dirname(file), 'package.json'), '{ "type": "module", "exports": "./index.js" }\n');
}

/** Compiles changed files, and copies what the compiler wrote. */
export function buildPacked(): void {
  build();
  const dist = join(root, 'dist');
  for (const path of readdirSync(dist, { recursive: true, encoding: 'utf8' })) {
    if (!/(\.js|^commit\.txt|^tollgate\.lua)$/.test(path) || path.startsWith('packed')) continue;
    const [from, to] = [join(dist, path), join(packed, 'dist', path)];
    if (existsSync(to) && statSync(to).mtimeMs > statSync(from).mtimeMs) continue;
    mkdirSync(dirname(to), { recursive: true });
    // Other tests may be starting the program: a file is replaced as a whole.
    copyFileSync(from, `${to}.${process.pid}`);
    renameSync(`${to}.${process.pid}`, to);
  }
}
