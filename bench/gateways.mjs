// Measures the gateways of examples/ as they are pasted, each in a network namespace of its own with Tollgate, and with
// the API in another one: whether they keep their speed, and what a check costs. It does not measure a real network, or
// TLS.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import * as start from './support/gateways.mjs';
import { addEmptyNetwork, addNetwork, missingNetworks, within } from './support/network.mjs';
import { numbersOf, readOptions, refuse } from './support/options.mjs';
import {
  atEnd,
  cpuSecondsOf,
  root,
  run,
  startRedis,
  startTollgate,
  temporaryDir,
  treeOf,
} from './support/processes.mjs';
import { number, progress, progressDone, report, table } from './support/results.mjs';
import { keyString, openSeed } from './support/seed.mjs';

const read = (file) => readFileSync(join(root, 'examples', file), 'utf8');
/** Without the lines from the first that has `from` up to the one before that with `to`. */
function without(text, from, to) {
  const lines = text.split('\n');
  const first = lines.findIndex((line) => line.includes(from));
  const last = lines.findIndex((line, index) => index > first && line.startsWith(to));
  return [...lines.slice(0, first), ...lines.slice(last)].join('\n');
}
const port80 = '0.0.0.0:80';

/** The file of each gateway, how it is started with its text, and the same text without the check. */
const gateways = {
  nginx: {
    file: 'nginx/tollgate.conf',
    start: (dir, text) => start.nginx(dir, text),
    unchecked: (text) => text.replaceAll(/auth_request "?\/_tollgate.*;/g, 'auth_request off;'),
  },
  'nginx with Lua': {
    file: 'nginx/tollgate-lua.conf',
    start: start.nginxLua,
    unchecked: (text) => text.replaceAll(/^ *access_by_lua_block.*$/gm, ''),
  },
  HAProxy: {
    file: 'haproxy/haproxy.cfg',
    start: (dir, text) => start.haproxy(dir, text, read('haproxy/tollgate.lua')),
    unchecked: (text) => text.replaceAll(/^.*(lua\.tollgate|tollgate_passes).*$/gm, ''),
  },
  Caddy: {
    file: 'caddy/Caddyfile',
    start: (dir, text) => start.caddy(dir, text),
    unchecked: (text) => without(text, 'reverse_proxy 127.0.0.1:8080', '\t\timport api'),
  },
  Traefik: {
    file: 'traefik/tollgate.yml',
    start: (dir, text) => start.traefik(dir, text, port80),
    unchecked: (text) => text.replaceAll(/^ *- tollgate$/gm, ''),
  },
  Envoy: {
    file: 'envoy/envoy.yaml',
    start: start.envoy,
    unchecked: (text) =>
      without(text, '- name: envoy.filters.http.ext_authz', '                  - name: envoy.filters.http.router'),
  },
};

const help = `npm run bench -- gateways [-- options]      as root, on Linux with iproute2, wrk and nginx
  --only a,b           of ${Object.keys(gateways).join(', ')}
  --seconds s          seconds with the check, 60 by default; a sixth of them without
  --connections n      of the clients, 64 by default
  --json               print the result as JSON on standard output
  --quick              run for a few seconds, to see that the bench works; its figures are meaningless`;

const options = readOptions(help, {
  only: { type: 'string' },
  seconds: { type: 'string' },
  connections: { type: 'string' },
  json: { type: 'boolean' },
  quick: { type: 'boolean' },
});
const names = options.only?.split(',') ?? Object.keys(gateways);
const unknown = names.filter((name) => !(name in gateways));
if (unknown.length > 0) refuse(`unknown gateway: ${unknown.join(', ')}.`, help);
const [seconds] = numbersOf(options.seconds, [options.quick ? 6 : 60], help);
const [connections] = numbersOf(options.connections, [64], help);
const part = Math.max(1, Math.round(seconds / 6));

const [inside, outside] = [`tollgate-bench-${process.pid}`, `tollgate-bench-api-${process.pid}`];
const has = (command) => spawnSync(command, ['-v'], { stdio: 'ignore' }).error === undefined;

/** Runs wrk in the network of the gateway. */
async function load(url, key, forSeconds) {
  const words = [
    'wrk',
    '-t1',
    `-c${connections}`,
    `-d${forSeconds}s`,
    '--latency',
    '-H',
    `Authorization: Bearer ${key}`,
  ];
  const child = spawn('ip', [...within(inside).slice(1), ...words, url], { stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (text += data));
  const [code] = await once(child, 'close');
  if (code !== 0) throw new Error(`wrk: ${text}`);
  const figure = (pattern) => Number(pattern.exec(text)?.[1] ?? 0);
  const latency = (percent) => new RegExp(`^ *${percent}% +(\\S+)$`, 'm').exec(text)?.[1];
  const errors = /Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)/.exec(text)?.slice(1) ?? [];
  return {
    requests: figure(/(\d+) requests in/),
    perSecond: figure(/Requests\/sec: +(\S+)/),
    refused: figure(/Non-2xx or 3xx responses: (\d+)/) + errors.reduce((sum, each) => sum + Number(each), 0),
    p50: latency(50),
    p99: latency(99),
  };
}

/** Connections that were opened in the network of a process, and accepted there. */
function connectionsOf(pid) {
  const [names, values] = readFileSync(`/proc/${pid}/net/snmp`, 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('Tcp:'))
    .map((line) => line.split(' '));
  const of = (name) => Number(values[names.indexOf(name)]);
  return { opened: of('ActiveOpens'), accepted: of('PassiveOpens') };
}

function startIn(network, { command, args, env = process.env }) {
  const child = spawn('ip', [...within(network).slice(1), command, ...args], { env, stdio: 'ignore' });
  const stop = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, 'exit');
    child.kill('SIGTERM');
    await exit;
  };
  atEnd(stop);
  return { pid: child.pid, stop };
}

async function startGateway(gateway, text) {
  const dir = join(temporaryDir(), 'gateway');
  mkdirSync(dir);
  const { pid, stop } = startIn(inside, gateway.start(dir, text));
  const asks = `fetch('http://127.0.0.1/').then(({ status }) => process.exit(status === 404 ? 1 : 0), () => process.exit(1))`;
  for (let attempt = 0; ; attempt++) {
    const { status } = spawnSync('ip', [...within(inside).slice(1), process.execPath, '-e', asks], { stdio: 'ignore' });
    if (status === 0) return { pid, stop };
    if (attempt === 100) throw new Error('a gateway does not respond');
    await delay(100);
  }
}

/** The API: nginx, so that it costs little. */
async function startApi(address) {
  const dir = temporaryDir();
  const server = `keepalive_requests 1000000000; server { listen ${address}:3000; location / { return 200 ok; } }`;
  const api = startIn(outside, start.nginx(dir, server));
  await delay(500);
  return api;
}

async function measure() {
  const why = missingNetworks() ?? ['wrk', 'nginx'].find((command) => !has(command));
  if (why) throw new Error(`not on this machine: ${why}`);
  const own = addEmptyNetwork(inside);
  atEnd(() => own.remove());
  const { address, remove } = addNetwork(outside, inside);
  atEnd(remove);

  const redis = await startRedis();
  const seed = await openSeed(redis);
  const limit = { name: 'requests', limit: 1e9, duration: 60_000, autoApply: true };
  await seed.createApi({ count: 1, fieldsOf: () => ({ ratelimits: [limit] }) });
  await seed.close();
  const env = { PORT: '8080', GATEWAY_ROOT_KEY: seed.rootKey, GATEWAY_META: 'plan' };
  const tollgate = await startTollgate({ redis, env, network: inside });
  const api = await startApi(address);

  const rows = [];
  const raw = [];
  for (const name of names) {
    const gateway = gateways[name];
    const text = read(gateway.file).replaceAll(/127\.0\.0\.1(?=:3000|, port_value: 3000)/g, address);
    const run = { name };
    progress(`${name}, without the check`);
    const plain = await startGateway(gateway, gateway.unchecked(text));
    run.plain = await costOf(plain, tollgate, redis, api, () => load('http://127.0.0.1/', keyString(0), part));
    await plain.stop();
    const checked = await startGateway(gateway, text);
    run.parts = [];
    for (let done = 0; done < seconds; done += part) {
      progress(`${name}, ${done} of ${seconds} s`);
      run.parts.push(await costOf(checked, tollgate, redis, api, () => load('http://127.0.0.1/', keyString(0), part)));
    }
    await checked.stop();
    raw.push(run);
    rows.push(rowOf(run));
  }
  progressDone();
  const head = [
    'gateway',
    'requests/s, first',
    'last',
    'p50',
    'p99',
    'refused',
    'gateway CPU µs',
    'without check',
    'ratio',
  ];
  const more = ['Tollgate CPU µs', 'Redis CPU µs', 'connections to the API', 'to Tollgate', 'per 1,000 requests'];
  const markdown = [
    table([...head, ...more], rows),
    `Files of \`examples/\` as pasted, except the address of the API, which is in another network namespace. One key, ${connections} connections, ${seconds} s in six parts; first and last part; CPU per request. The last column is of both kinds of connections.`,
  ].join('\n\n');
  report(
    { bench: 'gateways', title: 'Gateways', markdown, raw },
    { json: options.json, kept: !options.quick && seconds >= 60 && !options.only },
  );
}

async function costOf(gateway, tollgate, redis, api, work) {
  const trees = [treeOf(gateway.pid), treeOf(tollgate.pid, redis.pid), [redis.pid]];
  const cpu = () => trees.map(cpuSecondsOf);
  const before = { cpu: cpu(), own: connectionsOf(gateway.pid), api: connectionsOf(api.pid) };
  const result = await work();
  const after = { cpu: cpu(), own: connectionsOf(gateway.pid), api: connectionsOf(api.pid) };
  const toApi = after.api.accepted - before.api.accepted;
  return {
    ...result,
    micros: after.cpu.map((each, index) => ((each - before.cpu[index]) / result.requests) * 1e6),
    toApi,
    toTollgate: after.own.opened - before.own.opened - toApi - connections,
  };
}

function rowOf({ name, plain, parts }) {
  const [first, last] = [parts[0], parts.at(-1)];
  const sum = (of) => parts.reduce((total, each) => total + of(each), 0);
  const requests = sum((each) => each.requests);
  const micros = first.micros.map((_, index) => sum((each) => each.micros[index] * each.requests) / requests);
  const [toApi, toTollgate] = [sum((each) => each.toApi), sum((each) => each.toTollgate)];
  return [
    name,
    number(first.perSecond),
    number(last.perSecond),
    last.p50,
    last.p99,
    sum((each) => each.refused),
    number(micros[0]),
    number(plain.micros[0]),
    number(micros[0] / plain.micros[0]),
    number(micros[1]),
    number(micros[2]),
    toApi,
    toTollgate,
    number(((toApi + toTollgate) / requests) * 1000),
  ];
}

await run(measure);
