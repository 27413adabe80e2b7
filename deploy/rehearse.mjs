// node deploy/rehearse.mjs: runs the steps of the Dockerfile and of compose.yaml without a Docker engine, in a minute or two.
//
// Each stage of the Dockerfile becomes a folder, in which its instructions are run. The last stage is started like a
// container: process 1 in new namespaces, read-only, as its user, without capabilities. This machine's Debian, Node and npm
// are used instead of the base images. Needs Linux, root, and redis-server or valkey-server.
import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';

const context = fileURLToPath(new URL('..', import.meta.url));
const read = (path) => readFileSync(join(context, path), 'utf8');
const work = mkdtempSync(join(tmpdir(), 'tollgate-rehearsal-'));
const done = (step) => console.log(`done: ${step}`);

const { tollgate, valkey } = parse(read('compose.yaml')).services;
let redis;
let server;
try {
  const image = build();
  await checkImage(image);
} finally {
  if (server) process.kill(-server.pid, 'SIGKILL');
  redis?.kill('SIGKILL');
  rmSync(work, { recursive: true, force: true });
}

/** Runs the Dockerfile's steps. Returns its last stage: folder, user, environment and command. */
function build() {
  const instructions = read('Dockerfile')
    .replace(/^#.*\n/gm, '')
    .replaceAll('\\\n', ' ')
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => line.match(/^(\w+)\s+(.*)$/).slice(1));
  // The context: .dockerignore excludes everything except the files that it names.
  const given = join(work, 'context');
  for (const name of read('.dockerignore').match(/(?<=^!).+$/gm)) {
    cpSync(join(context, name), join(given, name), { recursive: true });
  }

  const stages = new Map();
  let stage;
  for (const [instruction, rest] of instructions) {
    const args = rest.startsWith('[') ? JSON.parse(rest) : rest.split(/\s+/);
    switch (instruction) {
      case 'ARG':
        break;
      case 'FROM': {
        stage = { root: join(work, `stage${stages.size}`), dir: '/', env: {} };
        stages.set(args[2] ?? 'last', stage);
        if (args[0].includes('NODE_IMAGE')) cpSync(process.execPath, join(stage.root, 'usr/local/bin/node'));
        break;
      }
      case 'WORKDIR':
        stage.dir = rest;
        mkdirSync(join(stage.root, rest), { recursive: true });
        break;
      case 'COPY': {
        const from = args[0].startsWith('--from=') ? stages.get(args.shift().slice('--from='.length)).root : given;
        const to = join(stage.root, args.at(-1).startsWith('/') ? '' : stage.dir, args.pop());
        for (const path of args) {
          cpSync(join(from, path), to.endsWith('/') ? join(to, path) : to, { recursive: true, verbatimSymlinks: true });
        }
        break;
      }
      case 'RUN': {
        const cwd = join(stage.root, stage.dir);
        const env = { ...process.env, PATH: `${dirname(process.execPath)}:${process.env.PATH}` };
        execFileSync(args[0], args.slice(1), { cwd, env, stdio: ['ignore', 'ignore', 'inherit'] });
        done(`RUN ${args.join(' ')}`);
        break;
      }
      case 'ENV':
        Object.assign(stage.env, Object.fromEntries(args.map((pair) => pair.split(/=(.*)/s))));
        break;
      case 'USER':
        stage.user = rest;
        break;
      case 'HEALTHCHECK':
        stage.healthcheck = JSON.parse(rest.slice(rest.indexOf('CMD') + 3));
        break;
      case 'CMD':
        stage.command = args;
        break;
      case 'EXPOSE':
        break;
      default:
        throw new Error(`${instruction} is not supported: add it to deploy/rehearse.mjs.`);
    }
  }
  return stages.get('last');
}

/** Runs a command as in a container of the image: with its own processes, and only its own files and Debian's, read-only. */
function inContainer({ root, dir, user, env }, command, moreEnv = {}) {
  const [uid, gid] = user.split(':');
  const script = `
    set -e
    mount --bind "$0" "$0"
    for path in usr/bin usr/lib etc dev; do mkdir -p "$0/$path"; mount --bind "/$path" "$0/$path"; done
    for name in bin lib lib64; do ln -sfn "usr/$name" "$0/$name"; done
    mkdir -p "$0/usr/lib64" "$0/proc"; mount --bind /usr/lib64 "$0/usr/lib64"; mount -t proc proc "$0/proc"
    mount -o remount,bind,ro "$0"
    exec /usr/sbin/chroot "$0" /usr/bin/setpriv --reuid=${uid} --regid=${gid} --clear-groups --no-new-privs --bounding-set=-all env -C ${dir} "$@"`;
  const args = ['--mount', '--pid', '--fork', '--kill-child', 'sh', '-c', script, root, ...command];
  return ['unshare', args, { env: { PATH: '/usr/local/bin:/usr/bin:/bin', ...env, ...moreEnv }, detached: true }];
}

async function checkImage(image) {
  const [port, redisPort] = [await freePort(), await freePort()];
  const env = { ...tollgate.environment, PORT: `${port}`, REDIS_URL: `redis://127.0.0.1:${redisPort}` };
  const run = (...command) => {
    const [program, args, options] = inContainer(image, command, env);
    return spawnSync(program, args, { ...options, encoding: 'utf8', timeout: 60_000 });
  };
  const ok = (...command) => {
    const { status, stdout, stderr } = run(...command);
    assert.equal(status, 0, `${command.join(' ')}: ${stdout}${stderr}`);
    return stdout;
  };

  const packages = readdirSync(join(image.root, image.dir, 'node_modules'));
  for (const name of ['typescript', '@typescript', 'vitest', '@biomejs'])
    assert.ok(!packages.includes(name), `${name} is in the image`);
  for (const name of ['npm', 'tsc']) assert.notEqual(run('test', '-e', `/usr/local/bin/${name}`).status, 0);
  assert.equal(ok('id', '-u').trim(), image.user.split(':')[0]);
  assert.match(ok('grep', '-E', 'Cap(Prm|Eff|Bnd)', '/proc/self/status'), /^(Cap\w+:\s+0+\n){3}$/);
  assert.notEqual(run('touch', 'x').status, 0);
  assert.notEqual(run('touch', '/tmp/x').status, 0);
  const megabytes = execFileSync('du', ['-sm', '--exclude=usr/bin', image.root], { encoding: 'utf8' }).split('\t')[0];
  done(`the image: ${megabytes} MB above Debian's, no development dependency, no npm, read-only, user ${image.user}`);

  // The Redis or Valkey of this machine takes the same arguments as that of the image.
  const program = ['valkey-server', 'redis-server'].find((name) => spawnSync(name, ['--version']).status === 0);
  const place = ['--port', `${redisPort}`, '--bind', '127.0.0.1', '--dir', mkdtempSync(join(work, 'redis-'))];
  const startRedis = () => {
    redis = spawn(program, [...valkey.command.slice(1), ...place], { stdio: 'ignore' });
  };

  const [unshare, args, options] = inContainer(image, image.command, env);
  startRedis();
  await until('Redis replies', () => redisCli(redisPort, 'ping') === 'PONG');
  server = spawn(unshare, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = once(server, 'exit');
  let output = '';
  for (const stream of [server.stdout, server.stderr]) stream.on('data', (bytes) => (output += bytes));
  await until('the health check passes', () => run(...image.healthcheck).status === 0).catch((error) => {
    throw new Error(`${error.message}\n${output}`);
  });
  await until('the server prints its address', () => /^Tollgate listens on http:\/\/0\.0\.0\.0:\d+$/m.test(output));
  assert.doesNotMatch(output, /root_/);
  done('started; the health check passes; no root key in the output');

  const [, cli] = read('compose.yaml').match(/exec tollgate (.+) workspace create/);
  ok(cli, 'workspace', 'create', 'production');
  const { rootKey } = JSON.parse(ok(cli, 'root-key', 'create', '--permission', '*', '--json'));
  const call = async (operation, body) => {
    const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
    const request = { method: 'POST', headers, body: JSON.stringify(body) };
    const response = await fetch(`http://127.0.0.1:${port}/v2/${operation}`, request);
    assert.equal(response.status, 200, operation);
    return (await response.json()).data;
  };
  const { apiId } = await call('apis.createApi', { name: 'rehearsal' });
  const { key } = await call('keys.createKey', { apiId, credits: { remaining: 2 } });
  assert.equal((await call('keys.verifyKey', { key })).code, 'VALID');
  done('first root key created by the command line; a key verified');

  redis.kill('SIGTERM');
  await once(redis, 'exit');
  const isReady = async () => (await fetch(`http://127.0.0.1:${port}/health/ready`)).ok;
  await until('it is not ready without Redis', async () => !(await isReady()));
  assert.equal(run(...image.healthcheck).status, 0);
  startRedis();
  await until('it is ready again', isReady);
  assert.equal((await call('keys.verifyKey', { key })).credits, 0);
  done('Redis stopped and restarted: the key and its credits are unchanged');

  const [pid] = readFileSync(`/proc/${server.pid}/task/${server.pid}/children`, 'utf8').trim().split(' ');
  const startedAt = performance.now();
  process.kill(Number(pid), 'SIGTERM');
  const [code] = await ended;
  server = undefined;
  assert.equal(code, 0, output);
  done(`SIGTERM to process 1: exit code 0 after ${Math.round(performance.now() - startedAt)} ms`);
}

function redisCli(port, ...args) {
  return spawnSync('redis-cli', ['-e', '-p', `${port}`, ...args], { encoding: 'utf8' }).stdout.trim();
}

async function freePort() {
  const listener = createServer().listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const { port } = listener.address();
  listener.close();
  await once(listener, 'close');
  return port;
}

async function until(what, holds) {
  for (const deadline = performance.now() + 60_000; performance.now() < deadline; await delay(200))
    if (await holds()) return;
  throw new Error(`Timed out after a minute: ${what}.`);
}
