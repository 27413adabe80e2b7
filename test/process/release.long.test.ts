// `npm run release` in a copy of the repository, and the archive that it makes, as an operator unpacks it: on a machine
// without npm and without a network.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { version } from '../../src/version.ts';
import { endAll, temporaryDir } from '../support/processes.ts';

const name = `tollgate-${version}`;
const who = { GIT_AUTHOR_NAME: 'a', GIT_AUTHOR_EMAIL: 'a@b', GIT_COMMITTER_NAME: 'a', GIT_COMMITTER_EMAIL: 'a@b' };
const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

/** A copy of the repository with a commit of its own. */
let copy: string;
let place: string;
let unpacked: string;

function inCopy(command: string, env: Record<string, string> = {}) {
  const options = { cwd: copy, env: { ...process.env, ...who, ...env }, encoding: 'utf8' as const };
  const { status, stdout, stderr } = spawnSync('sh', ['-ec', command], options);
  return { status, stdout, stderr };
}

/** npm ci, the compiler and gzip, on a machine that runs other tests as well. */
const timeout = 600_000;

/** Without the check, which is all tests; and for the systems for which there are builds. */
const release = 'node bin/release.mjs --skip-check --systems linux-x64';

beforeAll(() => {
  copy = temporaryDir();
  place = temporaryDir();
  const { stdout } = spawnSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard']);
  for (const file of stdout
    .toString()
    .split('\0')
    .filter((each) => each !== '' && existsSync(each))) {
    mkdirSync(dirname(join(copy, file)), { recursive: true });
    cpSync(file, join(copy, file));
  }
  symlinkSync(resolve('node_modules'), join(copy, 'node_modules'));
  const changelog = readFileSync('CHANGELOG.md', 'utf8');
  writeFileSync(join(copy, 'CHANGELOG.md'), changelog.replace(/^(## \S+) \(.*\)$/m, '$1 (not released)'));
  inCopy('git init -q; echo node_modules >> .git/info/exclude; git add .; git commit -qm All');
});

afterAll(endAll);

describe('npm run release', () => {
  test('refuses a folder with changes, and writes nothing', () => {
    writeFileSync(join(copy, 'docs', 'new.md'), 'new');
    const { status, stderr } = inCopy(release);
    expect([status, stderr]).toEqual([
      1,
      expect.stringMatching(/cannot be released:\n {2}- the folder has changes.*\n.*docs\/new\.md/),
    ]);
    inCopy('rm docs/new.md');
    expect(inCopy('git status --porcelain; git tag').stdout).toBe('');
  });

  test('refuses to release without the build of a system, unless the release names its systems', () => {
    const { status, stderr } = inCopy('node bin/release.mjs --skip-check');
    expect([status, stderr]).toEqual([
      1,
      expect.stringMatching(/- there is no build of uWebSockets\.js for linux-arm64, .*--systems linux-x64\n$/),
    ]);
    expect(inCopy('git tag').stdout).toBe('');
    expect(inCopy('node bin/release.mjs --systems linux-x64,windows').stderr).toContain('for windows');
  });

  test('refuses an option that it does not have', () => {
    expect(inCopy('node bin/release.mjs --wirte').stderr).toContain("Unknown option '--wirte'");
  });

  test('writes the date, tags it, and leaves the files in release/', { timeout }, () => {
    const written = inCopy(`${release} --write`);
    expect([written.status, written.stderr]).toEqual([0, expect.any(String)]);
    expect(inCopy('git tag --points-at HEAD; git status --porcelain').stdout).toBe(`v${version}\n`);
    expect(readFileSync(join(copy, 'CHANGELOG.md'), 'utf8')).toMatch(
      new RegExp(`\n## ${version.replaceAll('.', '\\.')} \\(\\d{4}-\\d\\d-\\d\\d\\)\n`),
    );
    const files = readdirSync(join(copy, 'release')).sort();
    expect(files).toEqual(['NOTES.txt', 'SHA256SUMS', `${name}.cdx.json`, `${name}.tar.gz`]);
    expect(readFileSync(join(copy, 'release', 'NOTES.txt'), 'utf8')).toMatch(
      /^\S[\s\S]*### Data version\n\nStored data has version \d+\.\n\nThe archive runs on linux-x64\.\n$/,
    );
    const sums = readFileSync(join(copy, 'release', 'SHA256SUMS'), 'utf8');
    for (const file of files.slice(2))
      expect(sums).toContain(`${sha256(readFileSync(join(copy, 'release', file)))}  ${file}\n`);

    const check = spawnSync('sha256sum', ['--check', '--ignore-missing', 'SHA256SUMS'], { cwd: join(copy, 'release') });
    expect([check.status, check.stdout.toString()]).toEqual([0, `${name}.tar.gz: OK\n${name}.cdx.json: OK\n`]);

    unpacked = join(place, name);
    expect(spawnSync('tar', ['-xzf', join(copy, 'release', `${name}.tar.gz`), '-C', place]).status).toBe(0);
  });

  test('gives the same bytes for the same commit, and dry it leaves nothing', { timeout }, () => {
    // As the release workflow runs it on the commit that is tagged, with another umask, time zone and folder.
    const sums = readFileSync(join(copy, 'release', 'SHA256SUMS'), 'utf8');
    const TMPDIR = temporaryDir();
    const again = inCopy(`umask 077; ${release}`, { TZ: 'Asia/Tokyo', LC_ALL: 'C.UTF-8', TMPDIR });
    expect(again.stdout.split('\n').slice(0, 2)).toEqual(sums.trim().split('\n'));
    expect(readdirSync(TMPDIR)).toEqual([]);
  });
});

describe('the archive', () => {
  test('has the server, its packages and pages, and nothing for development', () => {
    expect(readdirSync(unpacked).sort()).toEqual(
      ['CHANGELOG.md', 'LICENSE', 'README.md', 'SECURITY.md', 'THIRD_PARTY.md', 'bin', 'deploy', 'dist', 'docs'].concat(
        ['examples', 'node_modules', 'package.json', 'src'],
      ),
    );
    const paths = readdirSync(unpacked, { recursive: true, encoding: 'utf8' });
    expect(
      paths.filter((path) => /\.(test|ts|map)$|^node_modules\/(typescript|vitest|\.bin)|^dist\/packed/.test(path)),
    ).toEqual([]);
    const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8'));
    const refused = `sha512-${createHash('sha512').digest('base64')}`;
    const builds = Object.entries(packages as Record<string, { integrity: string }>)
      .filter(([path, { integrity }]) => /@uwsjs\/(linux|darwin)-(x64|arm64)-2\d$/.test(path) && integrity !== refused)
      .map(([path]) => `${path}/uws.node`);
    expect(paths.filter((path) => path.endsWith('uws.node')).sort()).toEqual(builds.sort());
  });

  test('its entries have the time of the commit, no owner, and are in order', () => {
    const list = spawnSync(
      'tar',
      ['-tvzf', join(copy, 'release', `${name}.tar.gz`), '--full-time', '--numeric-owner'],
      {
        encoding: 'utf8',
        env: { ...process.env, TZ: 'UTC' },
        maxBuffer: 2 ** 26,
      },
    ).stdout;
    const rows = list
      .trim()
      .split('\n')
      .map((row) => row.split(/\s+/));
    const committed = inCopy('TZ=UTC git log -1 --format=%cd --date=format-local:%F_%T').stdout.trim();
    expect(new Set(rows.map(([, owner, , day, time]) => `${owner} ${day}_${time}`))).toEqual(
      new Set([`0/0 ${committed}`]),
    );
    expect(new Set(rows.map(([mode]) => mode))).toEqual(new Set(['drwxr-xr-x', '-rw-r--r--', '-rwxr-xr-x']));
  });

  test('the SBOM lists exactly its packages, each with its SHA-512 of package-lock.json', () => {
    const { components, metadata, serialNumber } = JSON.parse(
      readFileSync(join(copy, 'release', `${name}.cdx.json`), 'utf8'),
    );
    const manifests = readdirSync(join(unpacked, 'node_modules'), { recursive: true, encoding: 'utf8' })
      .filter((path) => /(^|node_modules\/)(@[^/]+\/)?[^/]+\/package\.json$/.test(path))
      .map((path) => JSON.parse(readFileSync(join(unpacked, 'node_modules', path), 'utf8')))
      .map((manifest) => `${manifest.name}@${manifest.version}`);
    const listed = components.map((each: { group?: string; purl: string }) =>
      decodeURIComponent(each.purl.slice('pkg:npm/'.length)),
    );
    expect([...new Set(listed)].sort()).toEqual([...new Set(manifests)].sort());
    for (const { hashes } of components) expect(hashes[0]).toMatchObject({ alg: 'SHA-512' });
    expect(metadata.component).toMatchObject({ name: 'tollgate', version });
    expect(serialNumber).toMatch(/^urn:uuid:[0-9a-f-]{36}$/);
  });

  /** A network of its own without any address but its own, as root; otherwise npm is missing and that must do. */
  const alone = process.getuid?.() === 0 ? ['unshare', '-n', 'sh', '-ec'] : ['sh', '-ec'];

  test('runs where there is no npm and no network, and verifies a key', () => {
    const programs = join(place, 'programs');
    mkdirSync(programs);
    for (const program of ['node', 'redis-server', 'sh', 'dirname', 'readlink'])
      symlinkSync(
        spawnSync('sh', ['-c', `command -v ${program}`], { encoding: 'utf8' }).stdout.trim(),
        join(programs, program),
      );
    symlinkSync(join(unpacked, 'bin/tollgate'), join(programs, 'tollgate'));
    const script = `
      [ "$(id -u)" != 0 ] || ip link set lo up
      env -i PATH=${programs} PORT=0 TOLLGATE_DATA_DIR=${place}/data tollgate start > ${place}/log 2>&1 < /dev/null &
      node .ci/smoke.mjs ${place}/log $!
      kill -TERM $!; wait $!`;
    const { status, stdout, stderr } = spawnSync(alone[0]!, [...alone.slice(1), script], { encoding: 'utf8' });
    expect([status, stdout, stderr]).toEqual([0, 'A key was created and verified.\n', '']);
    const command = spawnSync(join(programs, 'tollgate'), ['--version'], { encoding: 'utf8', cwd: '/' });
    expect(command.stdout).toBe(`${version}\n`);
    const without = spawnSync(join(programs, 'tollgate'), ['--version'], {
      encoding: 'utf8',
      env: { PATH: '/bin:/usr/sbin', NODE: 'no-node' },
    });
    expect([without.status, without.stderr]).toEqual([1, expect.stringContaining('there is no node on the PATH')]);
  });
});
