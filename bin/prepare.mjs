// What must be there before Tollgate's code can run: a Node that is new enough, the dependencies, the build, a Redis.
// Runs with nothing installed, so it uses Node alone and parses on old versions too.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('..', import.meta.url));
const inRoot = (...path) => join(root, ...path);
const oldestNode = [20, 15];

const say = (message) => console.error(`tollgate: ${message}`);

export function fail(message) {
  say(message);
  process.exit(1);
}

/** Runs a command before everybody's eyes and answers with its exit code; that of a shell when it cannot be run. */
export function run(command, args, options = {}) {
  const { status, signal } = spawnSync(command, args, { cwd: root, stdio: 'inherit', ...options });
  return status ?? (signal ? 130 : 127);
}

/** A program of our own dependencies. Not through npx, which would fetch what is missing. */
export const runLocal = (name, args, options) => run(inRoot('node_modules', '.bin', name), args, options);

/** Installs and builds what is missing: with `dev` the development dependencies too, and where needed a Redis of this machine. */
export function prepare({ dev = false, needsRedis = () => true } = {}) {
  checkNode();
  install({ dev });
  build();
  if (needsRedis() && !hasRedis()) installRedis();
}

export function checkNode() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major > oldestNode[0] || (major === oldestNode[0] && minor >= oldestNode[1])) return;
  fail(
    `this is Node ${process.versions.node}; Tollgate needs Node ${oldestNode.join('.')} or later (20, 22, 24 or 26).`,
  );
}

/** Installs what package-lock.json names, unless it is there. Development dependencies that are there stay there. */
export function install({ dev = false } = {}) {
  const wanted = packagesIn(inRoot('package-lock.json'));
  const installed = packagesIn(inRoot('node_modules', '.package-lock.json'));
  const withDev = dev || Object.values(installed).some((found) => found.dev);
  // Optional packages are builds for other systems and other versions of Node, with one exception: ours of uWebSockets.js.
  const ours = `/@uwsjs/${process.platform}-${process.arch}-${process.versions.node.split('.')[0]}`;
  const isNeeded = (path, { dev, optional, devOptional }) =>
    optional || devOptional ? path.endsWith(ours) : !dev || withDev;
  const isMissing = ([path, entry]) => isNeeded(path, entry) && installed[path]?.integrity !== entry.integrity;
  if (!Object.entries(wanted).some(isMissing)) return;
  // npm ci begins by deleting node_modules, from which a server may be running; npm install adds to it.
  const command = Object.keys(installed).length === 0 ? 'ci' : 'install';
  say(`installing the dependencies${withDev ? ', those for development too' : ''} (npm ${command}) …`);
  // Neither NODE_ENV nor npm's own settings may change what is installed. No package that is used here needs its install
  // script. npm prints to stderr, so that a command which prints JSON prints nothing else.
  const what = [withDev ? '--include=dev' : '--omit=dev', '--include=optional', '--ignore-scripts', '--no-save'];
  const quietly = ['--no-audit', '--no-fund', '--loglevel=error'];
  const code = run('npm', [command, ...what, ...quietly], { stdio: ['ignore', process.stderr, 'inherit'] });
  if (code !== 0) fail(`npm ${command} failed (exit code ${code}). Its own message is above.`);
}

/** The packages that a lock file lists, by path. */
const packagesIn = (path) => (existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).packages : {});

const modifiedMs = (path) => statSync(path).mtimeMs;

/** Compiles src/ to dist/ unless dist/ is newer. */
export function build() {
  const sources = readdirSync(inRoot('src'), { recursive: true }).map((path) => inRoot('src', path));
  const newest = Math.max(...[...sources, inRoot('tsconfig.json'), inRoot('tsconfig.build.json')].map(modifiedMs));
  // The compiler writes its output even when it finds errors; only this file says that it found none.
  const stamp = inRoot('dist', '.built');
  if (existsSync(stamp) && modifiedMs(stamp) > newest) return;
  say('building …');
  const code = runLocal('tsc', ['-p', 'tsconfig.build.json'], { stdio: ['ignore', process.stderr, 'inherit'] });
  if (code !== 0) fail('the build failed. The errors are above.');
  mkdirSync(inRoot('dist'), { recursive: true });
  writeFileSync(stamp, '');
}

export const hasRedis = () =>
  ['redis-server', 'valkey-server'].some((name) => spawnSync(name, ['--version']).status === 0);

/** On Debian and Ubuntu, as root, installs the package. Anywhere else it ends the program with what to do. */
function installRedis() {
  const isDebian =
    existsSync('/etc/os-release') && /^ID(_LIKE)?=.*\b(debian|ubuntu)\b/m.test(readFileSync('/etc/os-release', 'utf8'));
  if (!isDebian || process.getuid() !== 0) {
    const command = isDebian
      ? 'sudo apt-get install redis-server'
      : 'brew install redis, dnf install valkey, apk add valkey';
    fail(
      'there is no redis-server or valkey-server on the PATH. Do one of these, then start again:\n' +
        `  - install Redis 7.0 or later, or Valkey (${command}); Tollgate runs it by itself\n` +
        '  - set REDIS_URL to a Redis that runs elsewhere, such as redis://localhost:6379',
    );
  }
  say('there is no redis-server on the PATH; installing the package redis-server with apt-get …');
  // RUNLEVEL=1 keeps the package from starting the system's own Redis. Were it started, we would not use it.
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' };
  const apt = (args, stderr) => run('apt-get', [...args, '-qq'], { env, stdio: ['ignore', 'ignore', stderr] });
  const installed = (stderr) => apt(['install', '-y', 'redis-server'], stderr) === 0;
  // The lists of packages may be missing or out of date; to load them takes a minute on some machines.
  if (!installed('ignore') && apt(['update'], 'inherit') === 0) installed('inherit');
  if (!hasRedis()) fail('apt-get could not install redis-server. Its own message is above.');
}
