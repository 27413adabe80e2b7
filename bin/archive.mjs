// The installable archive of a release: a folder that runs on a machine with Node, without npm, a registry or a
// compiler. The same commit gives the same bytes.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { refused, root, run, runLocal, versionSuffix } from './prepare.mjs';
import { filesOf, sha256 } from './registry.mjs';

/** What of the repository is in the archive. Only files of the commit, so nothing that lies about gets in. */
const contents = [
  ...['LICENSE', 'README.md', 'CHANGELOG.md', 'SECURITY.md', 'THIRD_PARTY.md', 'deploy', 'docs', 'examples'],
  ...['src/http/console.bundle.css', 'src/http/console.bundle.js', 'src/http/examples.json'],
];
const systems = ['linux-x64', 'linux-arm64', 'darwin-x64', 'darwin-arm64'];
const oldestMajor = 20;
/** Of the packages: the compiler, which only a build needs, and the builds of uWebSockets.js, which are added here. */
const notShipped = /^(typescript|@typescript|@uwsjs|\.bin|\.package-lock\.json)$/;
const notRun = /\.(map|[cm]?ts)$/;

const readJson = (path) => JSON.parse(readFileSync(path, 'utf8'));

export const git = (...args) => output('git', args).trim();

function output(program, args, options = {}) {
  const { status, stdout, stderr } = spawnSync(program, args, { cwd: root, maxBuffer: 2 ** 30, ...options });
  if (status !== 0) throw new Error(`${program} ${args[0]} failed: ${stderr ?? 'it could not be run'}`);
  return options.raw ? stdout : stdout.toString();
}

/**
 * Writes the archive, its SBOM and their checksums to a folder. Returns the names of the files with their SHA-256.
 */
export async function writeArchive(folder, { version } = readJson(join(root, 'package.json'))) {
  const { uwsPins } = await import(new URL('../dist/http/uwsPins.js', import.meta.url).href);
  const work = mkdtempSync(join(tmpdir(), 'tollgate-release-'));
  try {
    const name = `tollgate-${version}`;
    const stage = join(work, name);
    mkdirSync(stage);
    copyFiles(stage);
    compile(stage);
    installPackages(stage);
    addBuilds(stage, uwsPins);
    const sbom = sbomOf(stage);
    writeManifest(stage);
    const files = { [`${name}.tar.gz`]: pack(work, name), [`${name}.cdx.json`]: sbom };
    const sums = Object.entries(files).map(([file, bytes]) => [file, sha256(bytes)]);
    mkdirSync(folder, { recursive: true });
    for (const [file, bytes] of Object.entries(files)) writeFileSync(join(folder, file), bytes);
    writeFileSync(join(folder, 'SHA256SUMS'), sums.map(([file, sum]) => `${sum}  ${file}\n`).join(''));
    return sums;
  } finally {
    rmSync(work, { recursive: true });
  }
}

function copyFiles(stage) {
  const files = git('ls-files', '-z', '--', ...contents)
    .split('\0')
    .filter(Boolean);
  for (const file of files) {
    mkdirSync(dirname(join(stage, file)), { recursive: true });
    cpSync(join(root, file), join(stage, file));
  }
  mkdirSync(join(stage, 'bin'));
  cpSync(join(root, 'deploy/archive/tollgate'), join(stage, 'bin/tollgate'));
  chmodSync(join(stage, 'bin/tollgate'), 0o755);
}

function compile(stage) {
  const code = runLocal('tsc', ['-p', 'tsconfig.build.json', '--outDir', join(stage, 'dist')]);
  if (code !== 0) throw new Error('The build failed. The errors are above.');
  // The build made it of lua/, which is not in the archive.
  cpSync(join(root, 'dist', 'tollgate.lua'), join(stage, 'dist', 'tollgate.lua'));
  writeFileSync(join(stage, 'dist', 'commit.txt'), versionSuffix());
}

/** The packages of package-lock.json, which npm checks by their SHA-512, and no others. */
function installPackages(stage) {
  for (const file of ['package.json', 'package-lock.json', '.npmrc']) cpSync(join(root, file), join(stage, file));
  const flags = ['--omit=dev', '--omit=optional', '--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline'];
  const code = run('npm', ['ci', ...flags, '--loglevel=error'], { cwd: stage, stdio: ['ignore', 2, 2] });
  if (code !== 0) throw new Error('npm ci failed. Its message is above.');
  const packages = join(stage, 'node_modules');
  for (const name of readdirSync(packages))
    if (notShipped.test(name)) rmSync(join(packages, name), { recursive: true });
  for (const path of readdirSync(packages, { recursive: true }))
    if (notRun.test(path)) rmSync(join(packages, path), { recursive: true, force: true });
}

/** The builds of uWebSockets.js that package-lock.json has for these systems. */
function buildsOf() {
  const { packages } = readJson(join(root, 'package-lock.json'));
  const name = /@uwsjs\/((?:linux|darwin)-(?:x64|arm64))-(\d+)$/;
  return Object.entries(packages).flatMap(([path, { version, integrity }]) => {
    const [, system, major] = name.exec(path) ?? [];
    const isWanted = systems.includes(system) && Number(major) >= oldestMajor && integrity !== refused;
    return isWanted ? [{ path, system, spec: `@uwsjs/${system}-${major}@${version}`, integrity }] : [];
  });
}

/** The systems that an archive would run on, and those for which package-lock.json has no build. */
export function systemsOfArchive() {
  const found = new Set(buildsOf().map(({ system }) => system));
  return { present: systems.filter((each) => found.has(each)), missing: systems.filter((each) => !found.has(each)) };
}

function addBuilds(stage, uwsPins) {
  for (const { path, spec, integrity } of buildsOf()) {
    const files = filesOf(spec, integrity, ['package.json', 'uws.node']);
    if (sha256(files.get('uws.node')) !== uwsPins[spec]) throw new Error(`${spec} differs from src/http/uwsPins.ts.`);
    mkdirSync(join(stage, path), { recursive: true });
    for (const [file, bytes] of files) writeFileSync(join(stage, path, file), bytes);
  }
}

/** Without scripts and development dependencies, which the archive has not. */
function writeManifest(stage) {
  const { scripts, devDependencies, scarfSettings, ...manifest } = readJson(join(root, 'package.json'));
  manifest.bin = { tollgate: 'bin/tollgate' };
  writeFileSync(join(stage, 'package.json'), `${JSON.stringify(manifest, undefined, 2)}\n`);
  for (const file of ['package-lock.json', '.npmrc']) rmSync(join(stage, file));
}

/**
 * CycloneDX, from npm, of the packages in the archive. It selects them here: `npm sbom --omit=dev` (11.19) leaves out
 * packages that a development dependency needs as well.
 */
function sbomOf(stage) {
  const args = ['sbom', '--sbom-format=cyclonedx', '--package-lock-only'];
  const sbom = JSON.parse(output('npm', args, { cwd: stage }));
  const manifest = /(^|node_modules\/)(@[^/]+\/)?[^/]+\/package\.json$/;
  const packages = join(stage, 'node_modules');
  const shipped = readdirSync(packages, { recursive: true })
    .filter((path) => manifest.test(path))
    .map((path) => readJson(join(packages, path)));
  const names = new Set(shipped.map(({ name, version }) => `pkg:npm/${name.replace('@', '%40')}@${version}`));
  const isShipped = ({ purl }) => names.has(purl);
  sbom.components = sbom.components.filter(isShipped);
  const refs = new Set([sbom.metadata.component['bom-ref'], ...sbom.components.map((each) => each['bom-ref'])]);
  sbom.dependencies = sbom.dependencies
    .filter(({ ref }) => refs.has(ref))
    .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((each) => refs.has(each)) }));
  sbom.metadata.component.name = 'tollgate';
  sbom.metadata.timestamp = git('log', '-1', '--format=%cI');
  // npm makes a random one. This one is of the contents.
  delete sbom.serialNumber;
  const hash = createHash('sha256').update(JSON.stringify(sbom)).digest('hex');
  const id = `${hash.slice(0, 8)}-${hash.slice(8, 12)}-8${hash.slice(13, 16)}-8${hash.slice(17, 20)}-${hash.slice(20, 32)}`;
  return Buffer.from(`${JSON.stringify({ ...sbom, serialNumber: `urn:uuid:${id}` }, undefined, 2)}\n`);
}

/** Names in order, the time of the commit, no owner, and modes that depend on no umask. */
function pack(work, name) {
  if (!/GNU tar/.test(output('tar', ['--version']))) throw new Error('The archive is made with GNU tar.');
  const same = [
    '--sort=name',
    `--mtime=@${git('log', '-1', '--format=%ct')}`,
    '--owner=0',
    '--group=0',
    '--numeric-owner',
  ];
  const args = [...same, '--mode=u=rwX,go=rX', '--format=ustar', '-cf', '-', '-C', work, name];
  const env = { ...process.env, LC_ALL: 'C' };
  return gzipSync(output('tar', args, { raw: true, env }), { level: 9 });
}
