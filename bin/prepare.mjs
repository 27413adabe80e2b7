// Prepares what Tollgate's code needs: checks the version of Node, installs the dependencies, builds, and finds a
// Redis. It runs before anything is installed, so it uses only Node, and syntax that old versions can parse.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('..', import.meta.url));
const inRoot = (...path) => join(root, ...path);
const oldestNode = [20, 15];

export const log = (message) => console.error(`tollgate: ${message}`);

export function fail(message) {
  log(message);
  process.exit(1);
}

/**
 * Runs a command with its output on the terminal and returns its exit code: 127 if it cannot be run, 130 after a
 * signal.
 */
export function run(command, args, options = {}) {
  const { status, signal } = spawnSync(command, args, { cwd: root, stdio: 'inherit', ...options });
  return status ?? (signal ? 130 : 127);
}

/** Runs a program of the dependencies. Not with npx, which would download a missing one. */
export const runLocal = (name, args, options) => run(inRoot('node_modules', '.bin', name), args, options);

/**
 * Installs and builds what is missing: with `dev` also the development dependencies, with `serves` the build of
 * uWebSockets.js for this system, and a Redis if one is needed.
 */
export async function prepare({ dev = false, serves = true, needsRedis = () => true } = {}) {
  checkNode();
  install({ dev });
  build();
  if (serves) await (await import('./builds.mjs')).takeBuilds();
  if (needsRedis() && !hasRedis()) installRedis();
}

export function checkNode() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major > oldestNode[0] || (major === oldestNode[0] && minor >= oldestNode[1])) return;
  fail(
    `this is Node ${process.versions.node}; Tollgate needs Node ${oldestNode.join('.')} or later (20, 22, 24 or 26).`,
  );
}

/** In package-lock.json, the SHA-512 of a package that the registry did not have: npm installs no such package. */
export const refused = `sha512-${createHash('sha512').digest('base64')}`;

/** Installs missing packages of package-lock.json. Installed development dependencies stay. */
export function install({ dev = false } = {}) {
  const wanted = packagesIn(inRoot('package-lock.json'));
  const installed = packagesIn(inRoot('node_modules', '.package-lock.json'));
  const withDev = dev || Object.values(installed).some((found) => found.dev);
  // All optional packages are builds for a system and a version of Node. Only uWebSockets.js for this machine is
  // needed.
  const ours = `/@uwsjs/${process.platform}-${process.arch}-${process.versions.node.split('.')[0]}`;
  const isNeeded = (path, { dev, optional, devOptional }) =>
    optional || devOptional ? path.endsWith(ours) : !dev || withDev;
  const isMissing = ([path, entry]) =>
    entry.integrity !== refused && isNeeded(path, entry) && installed[path]?.integrity !== entry.integrity;
  if (!Object.entries(wanted).some(isMissing)) return;
  // npm ci deletes node_modules first, from which a server may be running; npm install adds to it.
  const command = Object.keys(installed).length === 0 ? 'ci' : 'install';
  log(`installing the dependencies${withDev ? ' and development dependencies' : ''} (npm ${command}) …`);
  // The options override NODE_ENV and npm's settings. No package needs its install script. npm prints to stderr, so
  // that the standard output of a command has only its own output.
  const what = [withDev ? '--include=dev' : '--omit=dev', '--include=optional', '--ignore-scripts', '--no-save'];
  const quietly = ['--no-audit', '--no-fund', '--loglevel=error'];
  const code = run('npm', [command, ...what, ...quietly], { stdio: ['ignore', process.stderr, 'inherit'] });
  if (code !== 0) fail(`npm ${command} failed (exit code ${code}). Its message is above.`);
}

/** The packages that a lock file lists, by path. */
const packagesIn = (path) => (existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).packages : {});

const modifiedMs = (path) => statSync(path).mtimeMs;

const commitFile = inRoot('dist', 'commit.txt');

/** Compiles src/ to dist/ unless dist/ is newer, and writes what src/version.ts adds to the version. */
export function build() {
  compile();
  const suffix = versionSuffix();
  if (existsSync(commitFile) && readFileSync(commitFile, 'utf8') === suffix) return;
  try {
    writeFileSync(commitFile, suffix);
  } catch {
    // A folder of another user keeps the commit of its last build.
  }
}

/** The output of a git command about this folder; undefined without git. With GIT_DIR any user may ask. */
function git(...args) {
  const env = { ...process.env, GIT_DIR: inRoot('.git'), GIT_OPTIONAL_LOCKS: '0' };
  const { status, stdout } = spawnSync('git', args, { cwd: root, env, encoding: 'utf8' });
  return status === 0 ? stdout.trim() : undefined;
}

/**
 * Nothing for a release. Otherwise the commit, such as `+g614671f7`, with `.dirty` if the program was changed since.
 * Where neither git nor `git archive` (bin/archived.txt) has the commit, it is that of the last build.
 */
export function versionSuffix() {
  const { version } = JSON.parse(readFileSync(inRoot('package.json'), 'utf8'));
  const isClone = existsSync(inRoot('.git'));
  const head = isClone
    ? git('log', '-1', '--format=%h %D')
    : readFileSync(inRoot('bin', 'archived.txt'), 'utf8').trim();
  if (head === undefined || head.startsWith('$'))
    return existsSync(commitFile) ? readFileSync(commitFile, 'utf8') : '+unknown';
  const program = ['src', 'lua', 'package.json', 'package-lock.json'];
  const isChanged = isClone && git('status', '--porcelain', '--', ...program) !== '';
  if (!isChanged && `${head},`.includes(` tag: v${version},`)) return '';
  return `+g${head.split(' ')[0]}${isChanged ? '.dirty' : ''}`;
}

function compile() {
  const sources = ['src', 'lua'].flatMap((name) =>
    readdirSync(inRoot(name), { recursive: true }).map((path) => inRoot(name, path)),
  );
  const newest = Math.max(...[...sources, inRoot('tsconfig.json'), inRoot('tsconfig.build.json')].map(modifiedMs));
  // The compiler writes output even when it finds errors. This file exists only if it found none.
  const stamp = inRoot('dist', '.built');
  if (existsSync(stamp) && modifiedMs(stamp) > newest) return;
  log('building …');
  const code = runLocal('tsc', ['-p', 'tsconfig.build.json'], { stdio: ['ignore', process.stderr, 'inherit'] });
  if (code !== 0) fail('the build failed. The errors are above.');
  if (run(process.execPath, [inRoot('dist', 'scripts', 'writeLibrary.js')]) !== 0) fail('lua/ is wrong. See above.');
  writeFileSync(stamp, '');
  rmSync(commitFile, { force: true });
}

export const hasRedis = () =>
  ['redis-server', 'valkey-server'].some((name) => spawnSync(name, ['--version']).status === 0);

/** Installs the package on Debian and Ubuntu as root. Elsewhere ends the program with instructions. */
function installRedis() {
  const isDebian =
    existsSync('/etc/os-release') && /^ID(_LIKE)?=.*\b(debian|ubuntu)\b/m.test(readFileSync('/etc/os-release', 'utf8'));
  if (!isDebian || process.getuid() !== 0) {
    const command = isDebian
      ? 'sudo apt-get install redis-server'
      : 'brew install redis, dnf install valkey, apk add valkey';
    fail(
      'there is no redis-server or valkey-server on the PATH. Do one of these, then start again:\n' +
        `  - install Redis 7.0 or later, or Valkey (${command}); Tollgate starts it itself\n` +
        '  - set REDIS_URL to a running Redis, such as redis://localhost:6379',
    );
  }
  log('there is no redis-server on the PATH; installing the package redis-server with apt-get …');
  // RUNLEVEL=1 keeps the package from starting a Redis of the system, which Tollgate would not use.
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' };
  const apt = (args, stderr) => run('apt-get', [...args, '-qq'], { env, stdio: ['ignore', 'ignore', stderr] });
  const installed = (stderr) => apt(['install', '-y', 'redis-server'], stderr) === 0;
  // The package lists may be missing or out of date. Updating them takes a minute on some machines.
  if (!installed('ignore') && apt(['update'], 'inherit') === 0) installed('inherit');
  if (!hasRedis()) fail('apt-get could not install redis-server. Its message is above.');
}
