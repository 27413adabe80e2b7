// The supply chain: package-lock.json states exactly what each package contains, and bin/ calls npm with safe options.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { beforeEach, describe, expect, test } from 'vitest';
import { uwsPins } from '../src/http/uwsPins.ts';
import { dirOfTest } from './support/ofFile.ts';

interface Entry {
  version: string;
  integrity?: string;
  resolved?: string;
  dev?: boolean;
  optional?: boolean;
  devOptional?: boolean;
  hasInstallScript?: boolean;
}

describe('package-lock.json', () => {
  const text = readFileSync('package-lock.json', 'utf8');
  const { packages } = JSON.parse(text) as { packages: Record<string, Entry> };
  const entries = Object.entries(packages).filter(([path]) => path !== '');
  /**
   * npm installs no such package, as nothing has this hash. npm run pin writes it if the registry lacked the package.
   */
  const refused = `sha512-${createHash('sha512').digest('base64')}`;
  const builds = entries.filter(([path]) => path.includes('@uwsjs/'));
  const inServer = entries.filter(([, { dev, optional, devOptional }]) => !dev && !optional && !devOptional);

  test('has the sha512 of every package, for all systems', () => {
    expect(entries.length).toBeGreaterThan(500);
    const without = entries.filter(([, { integrity }]) => !/^sha512-[\w+/]{86}==$/.test(integrity ?? ''));
    expect(without.map(([path]) => path)).toEqual([]);
  });

  test('refuses only packages that can be missing', () => {
    const cannot = entries.filter(([, { integrity, optional }]) => integrity === refused && !optional);
    expect(cannot).toEqual([]);
  });

  test('names no registry', () => {
    expect(entries.filter(([, { resolved }]) => resolved !== undefined)).toEqual([]);
    expect(text).not.toMatch(/registry/);
  });

  test('has every build of uWebSockets.js for all systems, and each that is not refused is pinned', () => {
    for (const system of ['linux-x64', 'linux-arm64', 'darwin-x64', 'darwin-arm64'])
      for (const major of [20, 22, 23, 24, 26])
        expect(
          builds.some(([path]) => path.endsWith(`@uwsjs/${system}-${major}`)),
          `${system}-${major}`,
        ).toBe(true);
    const names = builds
      .filter(([, { integrity }]) => integrity !== refused)
      .map(([path, { version }]) => `${path.split('node_modules/').at(-1)}@${version}`);
    expect(Object.keys(uwsPins).sort()).toEqual(names.sort());
    for (const sha256 of Object.values(uwsPins)) expect(sha256).toMatch(/^[0-9a-f]{64}$/);
  });

  test('a server is built and runs with fewer than 60 packages, and needs no install script', () => {
    // Two optional packages are for this system: the builds of uWebSockets.js and of the compiler.
    expect(inServer.length + 2).toBeLessThan(60);
    const scripted = entries.filter(([, { dev, hasInstallScript }]) => !dev && hasInstallScript);
    expect(scripted.map(([path]) => path)).toEqual(['node_modules/@scarf/scarf']);
  });
});

describe('the calls of npm', () => {
  let dir: string;
  const lock = {
    '': {},
    'node_modules/server': { integrity: 'sha512-server' },
    'node_modules/tester': { integrity: 'sha512-tester', dev: true },
    'node_modules/other-system': { integrity: 'sha512-other', optional: true },
  };
  const { server, tester } = { server: lock['node_modules/server'], tester: lock['node_modules/tester'] };

  beforeEach(() => {
    dir = dirOfTest();
    mkdirSync(join(dir, 'bin'));
    mkdirSync(join(dir, 'node_modules'));
    copyFileSync('bin/prepare.mjs', join(dir, 'bin', 'prepare.mjs'));
    writeFileSync(join(dir, 'npm'), '#!/bin/sh\necho "$@"\n', { mode: 0o755 });
    writeFileSync(join(dir, 'package-lock.json'), JSON.stringify({ packages: lock }));
  });

  /** The arguments of npm, if this is installed already. */
  function asked(options: { dev?: boolean }, installed?: Record<string, Entry | { integrity: string }>): string {
    const listed = join(dir, 'node_modules', '.package-lock.json');
    if (installed) writeFileSync(listed, JSON.stringify({ packages: installed }));
    const script = `import(process.argv[1]).then(({ install }) => install(${JSON.stringify(options)}))`;
    const { stderr } = spawnSync(process.execPath, ['-e', script, join(dir, 'bin', 'prepare.mjs')], {
      env: { PATH: `${dir}${delimiter}${process.env.PATH}`, NODE_ENV: 'production' },
      encoding: 'utf8',
    });
    return stderr.replace(/^tollgate: .*\n/, '').trim();
  }

  const flags = '--include=optional --ignore-scripts --no-save --no-audit --no-fund --loglevel=error';

  test('a fresh clone gets the production dependencies, and no script of a package is run', () => {
    expect(asked({})).toBe(`ci --omit=dev ${flags}`);
  });

  test('installed packages are not installed again', () => {
    expect(asked({}, { 'node_modules/server': server })).toBe('');
    expect(asked({ dev: true }, { 'node_modules/server': server, 'node_modules/tester': tester })).toBe('');
  });

  test('development dependencies are added when they are needed, and kept when they are not', () => {
    expect(asked({ dev: true }, { 'node_modules/server': server })).toBe(`install --include=dev ${flags}`);
    expect(asked({}, { 'node_modules/server': server, 'node_modules/tester': tester })).toBe('');
  });

  test('another version is installed, with the development dependencies that are there', () => {
    const older = { integrity: 'sha512-older' };
    expect(asked({}, { 'node_modules/server': older })).toBe(`install --omit=dev ${flags}`);
    expect(asked({}, { 'node_modules/server': older, 'node_modules/tester': tester })).toBe(
      `install --include=dev ${flags}`,
    );
  });

  test('a build that the registry did not have is not asked for at every start', () => {
    const ours: string = `node_modules/@uwsjs/${process.platform}-${process.arch}-${process.versions.node.split('.')[0]}`;
    const refused = `sha512-${createHash('sha512').digest('base64')}`;
    const packages = { ...lock, [ours]: { integrity: refused, optional: true } };
    writeFileSync(join(dir, 'package-lock.json'), JSON.stringify({ packages }));
    expect(asked({}, { 'node_modules/server': server })).toBe('');
  });

  test('the build of uWebSockets.js for another Node is not the one for this', () => {
    const ours: string = `node_modules/@uwsjs/${process.platform}-${process.arch}-${process.versions.node.split('.')[0]}`;
    const build = { integrity: 'sha512-ours', optional: true };
    const packages = { ...lock, [ours]: build };
    writeFileSync(join(dir, 'package-lock.json'), JSON.stringify({ packages }));
    expect(asked({}, { 'node_modules/server': server })).toBe(`install --omit=dev ${flags}`);
    expect(asked({}, { 'node_modules/server': server, [ours]: build })).toBe('');
  });
});
