import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { pinFileOf, writePins } from '../../src/http/recordedPins.ts';
import { loadUws, packagesFor } from '../../src/http/uws.ts';
import { uwsPins } from '../../src/http/uwsPins.ts';
import { build as buildServer } from '../support/processes.ts';

const nodeMajor = Number.parseInt(process.versions.node, 10);
const system = `${process.platform}-${process.arch}`;

/** A program with packages of its own. */
let dir: string;
let program: string;
let pins: Record<string, string>;

beforeEach(() => {
  dir = realpathSync(mkdtempSync(join(tmpdir(), 'tollgate-test-')));
  program = join(dir, 'program.js');
  pins = {};
});

afterEach(() => rmSync(dir, { recursive: true }));

/** The build that this Node loads. */
function realBuild(): string {
  const wrapper = createRequire(import.meta.url).resolve(packagesFor(nodeMajor).at(-1)!);
  return join(dirname(createRequire(wrapper).resolve(`@uwsjs/${system}-${nodeMajor}/package.json`)), 'uws.node');
}

/** Replaces a file. Writing to a file that is loaded would end this process. */
function replace(file: string, content: Buffer | string) {
  rmSync(file, { force: true });
  writeFileSync(file, content);
}

/** Installs a package with its build and pins the build's contents. */
function install(packageName: string, version: string, major: number, build: Buffer) {
  const place = join(dir, 'node_modules', packageName);
  const buildPlace = join(place, 'node_modules', '@uwsjs', `${system}-${major}`);
  mkdirSync(buildPlace, { recursive: true });
  writeFileSync(join(place, 'package.json'), JSON.stringify({ name: '@uwsjs/core', version, main: 'uws.js' }));
  writeFileSync(join(place, 'uws.js'), 'throw new Error("The JavaScript of the package runs.")');
  const name = `@uwsjs/${system}-${major}`;
  writeFileSync(join(buildPlace, 'package.json'), JSON.stringify({ name, version }));
  const file = join(buildPlace, 'uws.node');
  replace(file, build);
  pins[`${name}@${version}`] = createHash('sha256').update(build).digest('hex');
  return file;
}

test.each([
  [20, ['uws-node20-22']],
  [22, ['uws-node22-26', 'uws-node20-22']],
  [23, ['uws-node20-22']],
  [24, ['uws-node22-26']],
  [26, ['uws-node22-26']],
  [18, []],
  [21, []],
])('Node %i tries %j', (major, packages) => {
  expect(packagesFor(major)).toEqual(packages);
});

test('the build that is installed is the pinned one', () => {
  const found = createHash('sha256').update(readFileSync(realBuild())).digest('hex');
  expect(Object.values(uwsPins)).toContain(found);
  expect(loadUws(nodeMajor).App).toBeTypeOf('function');
});

test('a build with one bit changed is not loaded, and the error names the file', () => {
  const build = readFileSync(realBuild());
  const file = install('uws-node20-22', '1.2.3', 20, build);
  expect(loadUws(20, program, pins).App).toBeTypeOf('function');

  build[1_000_000]! ^= 1;
  replace(file, build);
  expect(() => loadUws(20, program, pins)).toThrow(
    `${file} is not loaded: its SHA-256 is ${createHash('sha256').update(build).digest('hex')}, ` +
      `and src/http/uwsPins.ts has ${pins[`@uwsjs/${system}-20@1.2.3`]} for @uwsjs/${system}-20@1.2.3. Delete node_modules`,
  );
});

describe('an installation with a changed build', () => {
  let file: string;
  const run = (...words: string[]) =>
    spawnSync(process.execPath, words, { cwd: dir, env: { PATH: process.env.PATH, PORT: '0' }, encoding: 'utf8' });

  beforeAll(buildServer, 120_000);

  beforeEach(() => {
    for (const name of ['dist', 'lua', 'package.json', 'src/http/examples.json'])
      cpSync(name, join(dir, name), { recursive: true });
    // Node resolves links, so files that must be in another place are copied.
    const isCopied = (name: string) => name.startsWith('uws-') || name === '@uwsjs';
    mkdirSync(join(dir, 'node_modules'));
    for (const name of readdirSync('node_modules')) {
      const [from, to] = [resolve('node_modules', name), join(dir, 'node_modules', name)];
      if (isCopied(name)) cpSync(from, to, { recursive: true });
      else symlinkSync(from, to);
    }
    const found = realBuild();
    file = join(dir, relative(process.cwd(), found));
    const build = readFileSync(found);
    build[1_000_000]! ^= 1;
    replace(file, build);
  });

  test('does not serve', () => {
    const { status, stderr, stdout } = run('dist/main.js');
    expect(stderr).toMatch(new RegExp(`^tollgate: ${file} is not loaded: .*\\n$`));
    expect([status, stdout]).toEqual([1, '']);
  });

  test('is reported by doctor', () => {
    const { status, stdout } = run('dist/cli/index.js', 'doctor');
    expect(stdout).toMatch(new RegExp(`^fault +uWebSockets\\.js +${file} is not loaded`, 'mi'));
    expect(status).toBe(1);
  });
});

test('a build of a version without a pin is not loaded', () => {
  const file = install('uws-node20-22', '1.2.3', 20, readFileSync(realBuild()));
  expect(() => loadUws(20, program, {})).toThrow(`${file} is not loaded`);
  expect(() => loadUws(20, program, {})).toThrow(`has none for @uwsjs/${system}-20@1.2.3`);
});

test('a recorded pin counts only where the repository has none', () => {
  const file = install('uws-node20-22', '1.2.3', 20, readFileSync(realBuild()));
  const name = `@uwsjs/${system}-20@1.2.3`;
  const record = (bytes: Buffer) =>
    writePins(dir, {
      [name]: {
        integrity: `sha512-${createHash('sha512').digest('base64')}`,
        sha256: createHash('sha256').update(bytes).digest('hex'),
      },
    });
  record(readFileSync(file));
  expect(loadUws(20, program, {}, dir).App).toBeTypeOf('function');
  expect(() => loadUws(20, program, { [name]: 'f'.repeat(64) }, dir)).toThrow(
    `src/http/uwsPins.ts has ${'f'.repeat(64)}`,
  );
  record(Buffer.from('another'));
  expect(() => loadUws(20, program, {}, dir)).toThrow(`${pinFileOf(dir)} has `);
  expect(loadUws(20, program, pins, dir).App).toBeTypeOf('function');
});

test('Node 22 takes the newer release', () => {
  install('uws-node22-26', '2.0.0', 22, readFileSync(realBuild()));
  // The older one would be refused.
  replace(install('uws-node20-22', '1.0.0', 22, Buffer.from('as pinned')), 'changed');
  expect(loadUws(22, program, pins).App).toBeTypeOf('function');
});

test('Node 22 takes the older release where the newer is missing or does not load', () => {
  install('uws-node20-22', '1.0.0', 22, readFileSync(realBuild()));
  expect(loadUws(22, program, pins).App).toBeTypeOf('function');
  install('uws-node22-26', '2.0.0', 22, Buffer.from('no native code'));
  expect(loadUws(22, program, pins).App).toBeTypeOf('function');
});

test('a changed newer release ends the start, though the older one would load', () => {
  install('uws-node20-22', '1.0.0', 22, readFileSync(realBuild()));
  const newer = install('uws-node22-26', '2.0.0', 22, readFileSync(realBuild()));
  replace(newer, 'changed');
  expect(() => loadUws(22, program, pins)).toThrow(`${newer} is not loaded`);
});

test('when none loads the error names what was tried, why it failed and what to do', () => {
  install('uws-node20-22', '1.0.0', 22, Buffer.from('no native code'));
  expect(() => loadUws(22, program, pins)).toThrow(
    /does not load on Node 22[\s\S]*uws-node22-26: Cannot find module[\s\S]*uws-node20-22: \S+uws\.node: \S.*\n[\s\S]*`npm run pin`/,
  );
  expect(() => loadUws(21, program, pins)).toThrow(/no build for Node 21\. Run Tollgate on Node 20, 22, 24 or 26/);
});
