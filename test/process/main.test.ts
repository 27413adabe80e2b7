// The server as a process: how it starts, what it prints, how it stops.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { beforeAll, describe, expect, type TestContext, test, vi } from 'vitest';
import { allEndedMs } from '../../src/domain/leaseTerms.ts';
import { embeddedUrlIfRunning } from '../../src/redis/embedded.ts';
import { serversKey } from '../../src/redis/names.ts';
import {
  build,
  cliFile,
  mainFile,
  type Program,
  portOf,
  run,
  runRedis,
  runServer,
  serverEnv,
} from '../support/processes.ts';
import { isThorough } from '../support/testIf.ts';

/** Of variants that only npm run test:faults has time for. */
const longConcurrent = isThorough ? test.concurrent : () => {};
const longDescribe = isThorough ? describe : () => {};

/** A busy machine takes long for everything; what must not happen at all would take longer. */
const waiting = { timeout: 30_000, interval: 20 };

// Tests are concurrent, because most of the time they wait for a process.
vi.setConfig({ testTimeout: 120_000, maxConcurrency: 4 });

beforeAll(build, 120_000);

/** A data directory for this test, and servers on it that are stopped when the test ends. */
function open({ onTestFinished }: TestContext) {
  const dataDir = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  const servers: Program[] = [];
  onTestFinished(async () => {
    await Promise.all(servers.map((server) => server.stop()));
    rmSync(dataDir, { recursive: true });
  });
  return {
    dataDir,
    start(env: Record<string, string> = {}, words?: string[]): Program {
      const server = runServer({ TOLLGATE_DATA_DIR: dataDir, ...env }, words);
      servers.push(server);
      return server;
    },
  };
}

const firstRootKey = /^This is the first root key\. It is printed only once: (root_\w+)$/m;

test.concurrent('an empty store gets a first root key, which works, is printed once and is in no log', async (context) => {
  const { start } = open(context);
  const first = start({ LOG_LEVEL: 'trace' });
  const port = await portOf(first);
  await vi.waitFor(() => expect(first.out).toMatch(firstRootKey), waiting);
  const rootKey = firstRootKey.exec(first.out)![1]!;
  const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
  const request = { method: 'POST', headers, body: '{"name":"first"}' };
  expect((await fetch(`http://127.0.0.1:${port}/v2/apis.createApi`, request)).status).toBe(200);
  expect(await first.stop()).toBe(0);
  expect(first.err).not.toContain(rootKey);

  const second = start();
  await portOf(second);
  expect(await second.stop()).toBe(0);
  expect(second.out).not.toMatch(firstRootKey);
});

longConcurrent(
  'other processes learn that the embedded Redis has every write, if it is new or was stopped',
  async (context) => {
    const { dataDir, start } = open(context);
    for (const _start of ['new', 'stopped']) {
      const server = start();
      await portOf(server);
      const redis = new Redis((await embeddedUrlIfRunning(dataDir))!.slice('unix:'.length));
      const [entry] = await redis.hvals(serversKey);
      redis.disconnect();
      const [, ageMs] = / [0-9a-f]{32} (\d+)$/.exec(entry!) ?? [];
      expect(Number(ageMs)).toBeGreaterThanOrEqual(allEndedMs);
      expect(await server.stop()).toBe(0);
    }
  },
);

test.concurrent('with FIRST_ROOT_KEY=none, for when standard output is kept, the start creates no root key, and prints where the documents, the metrics and the data are', async (context) => {
  const { dataDir, start } = open(context);
  const server = start({ FIRST_ROOT_KEY: 'none' });
  const port = await portOf(server);
  const workspaces = spawnSync(process.execPath, [cliFile, 'workspace', 'list'], {
    env: { PATH: process.env.PATH, TOLLGATE_DATA_DIR: dataDir },
    encoding: 'utf8',
  });
  expect(workspaces.stdout).toBe('There are no workspaces.\n');
  expect(await server.stop()).toBe(0);
  const url = `http://127.0.0.1:${port}`;
  expect(server.out).toBe(
    `Tollgate listens on ${url}\nConsole: ${url}/console\nAPI reference: ${url}/docs\nMetrics: ${url}/metrics\nData: ${dataDir}\n`,
  );
});

test.concurrent('with a Redis and an address for other machines, it prints Redis without the password and how to get metrics', async (context) => {
  const { dataDir, start } = open(context);
  const redis = await runRedis(dataDir, ['--requirepass', 's3cret']);
  const relay = createServer((client) => client.pipe(connect(redis.socket)).pipe(client)).listen(0, '127.0.0.1');
  await once(relay, 'listening');
  const { port } = relay.address() as { port: number };
  const server = start({
    REDIS_URL: `redis://default:s3cret@127.0.0.1:${port}`,
    HOST: '0.0.0.0',
    METRICS_PORT: '',
    // The relay is in this process, which the other tests of the file keep busy.
    REDIS_TIMEOUT_MS: '20000',
  });
  await server.prints(/^Data: .*\n/m);
  await server.stop();
  relay.close();
  await redis.stop();
  expect(server.out).toContain(
    '\nMetrics: off, as other machines may reach 0.0.0.0. Set METRICS_PORT to serve them.\n',
  );
  expect(server.out).toContain(`\nData: Redis at redis://…@127.0.0.1:${port}\n`);
  expect(server.printed()).not.toContain('s3cret');
});

longConcurrent('a workspace whose import was interrupted is named in the log', async (context) => {
  const { dataDir, start } = open(context);
  const workspaceId = 'ws_1111111111111111';
  const line = { kind: 'workspace', workspaceId, name: 'cut', createdAt: 1, protectApis: false, sequence: 1 };
  const header = { kind: 'header', format: 2, release: '1.0.0', exportId: 'exported1', exportedAt: 1 };
  const lines = [{ ...header, workspaces: [workspaceId] }, line];
  const { status } = spawnSync(process.execPath, [cliFile, 'import', '-'], {
    env: { PATH: process.env.PATH, TOLLGATE_DATA_DIR: dataDir },
    input: lines.map((each) => `${JSON.stringify(each)}\n`).join(''),
  });
  expect(status).toBe(1);
  const server = start({ LOG_LEVEL: 'warn' });
  await portOf(server);
  await vi.waitFor(() => expect(server.err).toContain('Workspaces are incomplete'), waiting);
  const logged = JSON.parse(server.err.split('\n').find((each) => each.includes('Workspaces are incomplete'))!);
  expect(logged).toMatchObject({ level: 'warn', workspaceIds: [workspaceId], count: 1 });
  await server.stop();
});

test.concurrent.for(isThorough ? (['SIGTERM', 'SIGINT'] as const) : (['SIGTERM'] as const))(
  '%s stops it with exit code 0, and its Redis with it',
  async (signal, context) => {
    const { dataDir, start } = open(context);
    const server = start();
    await portOf(server);
    expect(await server.stop(signal)).toBe(0);
    expect(await embeddedUrlIfRunning(dataDir)).toBeUndefined();
  },
);

test.concurrent('a signal in the middle of the start leaves no Redis behind', async (context) => {
  const { dataDir, start } = open(context);
  const server = start();
  await vi.waitFor(() => expect(embeddedUrlIfRunning(dataDir)).resolves.toBeDefined(), waiting);
  expect(await server.stop()).toBe(0);
  expect(await embeddedUrlIfRunning(dataDir)).toBeUndefined();
});

/** Sends the first half of a request, then a signal. Resolves when the server has begun to stop. */
async function interruptRequest(server: Program, signal: NodeJS.Signals | ((pid: number) => void)) {
  const port = await portOf(server);
  const client = connect(port, '127.0.0.1').on('error', () => {});
  let answer = '';
  client.on('data', (bytes) => (answer += bytes));
  await send(client, 'POST /v2/keys.verifyKey HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{');
  // A response on another connection shows that the first half has been read.
  await fetch(`http://127.0.0.1:${port}/`);
  if (typeof signal === 'string') server.child.kill(signal);
  else signal(server.child.pid!);
  await vi.waitFor(() => expect(reachable(port)).resolves.toBe(false), waiting);
  return { finish: () => send(client, '}'), answer: () => answer };
}

const send = (socket: Socket, text: string) => new Promise<void>((resolve) => socket.write(text, () => resolve()));

async function reachable(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  return once(socket, 'connect').then(
    () => !socket.destroy().connecting,
    () => false,
  );
}

test.concurrent('requests in flight get their responses before it stops', async (context) => {
  const { start } = open(context);
  const server = start();
  const request = await interruptRequest(server, 'SIGTERM');
  await request.finish();

  expect(await server.ended).toBe(0);
  expect(request.answer()).toMatch(/^HTTP\/1\.1 401 /);
});

longConcurrent('also when started by `tollgate serve`', async (context) => {
  const { start } = open(context);
  const server = start({}, [cliFile, 'serve']);
  const request = await interruptRequest(server, 'SIGTERM');
  await request.finish();

  expect(await server.ended).toBe(0);
  expect(request.answer()).toMatch(/^HTTP\/1\.1 401 /);
});

test.concurrent('Ctrl-C below npm, which signals twice, is one signal', async (context) => {
  const { start } = open(context);
  const server = start();
  // By another program, as this one may be slower than the time in which two signals are one.
  const request = await interruptRequest(server, (pid) =>
    spawn('sh', ['-c', `kill -INT ${pid}; sleep 0.1; kill -INT ${pid}`]),
  );
  await request.finish();

  expect(await server.ended).toBe(0);
});

test.concurrent('a later signal ends it at once, and its Redis with it', async (context) => {
  const { dataDir, start } = open(context);
  const server = start();
  await interruptRequest(server, 'SIGINT');
  await vi.waitFor(() => {
    server.child.kill('SIGINT');
    expect(server.child.exitCode).toBe(1);
  }, waiting);
  expect(server.err).not.toContain('could not stop within');
  await vi.waitFor(() => expect(embeddedUrlIfRunning(dataDir)).resolves.toBeUndefined(), waiting);
});

test.concurrent('SIGHUP does not end it, unless its terminal was closed', async (context) => {
  const { dataDir } = open(context);
  const log = join(dataDir, 'log');
  const words = ['-qfec', `exec ${process.execPath} dist/main.js 2> ${log}`, join(dataDir, 'typescript')];
  const terminal = run('script', words, { env: serverEnv({ TOLLGATE_DATA_DIR: dataDir }) });
  const logged = () => readFileSync(log, 'utf8');
  await vi.waitFor(() => expect(logged()).toContain('"Ready."'), waiting);
  const pid = spawnSync('pgrep', ['-P', String(terminal.child.pid)])
    .stdout.toString()
    .trim();

  process.kill(Number(pid), 'SIGHUP');
  await vi.waitFor(() => expect(logged()).toContain('Certificates were read again.'), waiting);
  expect(isAlive(pid)).toBe(true);
  terminal.child.kill('SIGKILL');
  await vi.waitFor(() => expect(logged()).toContain('"Stopped."'), waiting);
  await vi.waitFor(() => expect(isAlive(pid)).toBe(false), waiting);
  expect(await embeddedUrlIfRunning(dataDir)).toBeUndefined();
});

test.concurrent('a second server on the same data directory is refused', async (context) => {
  const { start } = open(context);
  const first = start();
  await portOf(first);
  const second = start();
  expect(await second.ended).toBe(1);
  expect(second.err).toMatch(/^tollgate: The data directory .* is in use by another Tollgate \(process \d+\)\./);
});

test.concurrent('a port in use is one line of error, and its Redis is stopped', async (context) => {
  const { dataDir, start } = open(context);
  const other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  const { port } = other.address() as { port: number };

  const server = start({ PORT: String(port) });
  expect(await server.ended).toBe(1);
  expect(server.err).toMatch(new RegExp(`^tollgate: Cannot listen on 127\\.0\\.0\\.1 port ${port}: .*\\n$`));
  expect(server.out).toBe('');
  expect(await embeddedUrlIfRunning(dataDir)).toBeUndefined();
  other.close();
});

test.concurrent('invalid settings are one error without a stack', async (context) => {
  const { start } = open(context);
  const server = start({ PORT: 'http' });
  expect(await server.ended).toBe(1);
  expect(server.err).toBe('tollgate: Invalid settings:\n  PORT=http must be a whole number from 0 to 65535\n');
});

const workersOf = (server: Program) =>
  spawnSync('pgrep', ['-P', String(server.child.pid), '-f', 'worker.js'])
    .stdout.toString()
    .trim()
    .split('\n');

test.concurrent('with several workers a killed one is replaced, and the port stays open; their arguments lack the address of Redis', async (context) => {
  const { start } = open(context);
  const server = start({ WORKERS: '2', LOG_LEVEL: 'error' });
  const port = await portOf(server);
  const before = workersOf(server);
  expect(before).toHaveLength(2);
  // Every user of the machine can read the arguments of a process.
  for (const pid of before)
    expect(spawnSync('ps', ['-o', 'args=', '-p', pid]).stdout.toString().trim()).toMatch(/worker\.js$/);

  process.kill(Number(before[0]), 'SIGKILL');
  await vi.waitFor(() => expect(server.err).toContain('A worker ended with SIGKILL'), waiting);
  expect(await reachable(port)).toBe(true);
  await vi.waitFor(() => {
    const after = workersOf(server);
    expect(after).toHaveLength(2);
    expect(after).not.toContain(before[0]);
  }, waiting);
  expect((await fetch(`http://127.0.0.1:${port}/v2/liveness`)).status).toBe(200);

  expect(await server.stop()).toBe(0);
  expect(await reachable(port)).toBe(false);
});

longDescribe('a Redis that becomes unreachable while the second worker starts', () => {
  /** Starts a server whose Redis is behind a relay. The relay refuses connections only while there are two workers. */
  async function openRelay(context: TestContext) {
    const { dataDir, start } = open(context);
    const redis = await runRedis(dataDir);
    const clients = new Set<Socket>();
    const relay = createServer((client) => {
      if (workersOf(opened.server).length === 2 && opened.refuses()) {
        opened.refused++;
        client.destroy();
        return;
      }
      clients.add(client);
      const upstream = connect(redis.socket);
      client.pipe(upstream).pipe(client);
      for (const socket of [client, upstream]) socket.on('error', () => socket.destroy());
    }).listen(0, '127.0.0.1');
    const opened = { server: undefined as never as Program, clients, refused: 0, refuses: () => false };
    await once(relay, 'listening');
    const { port } = relay.address() as { port: number };
    opened.server = start({
      WORKERS: '2',
      LOG_LEVEL: 'error',
      REDIS_URL: `redis://127.0.0.1:${port}`,
      // Refusals are noticed at once; a busy machine may be slow.
      REDIS_TIMEOUT_MS: '10000',
    });
    context.onTestFinished(async () => {
      await opened.server.stop('SIGKILL');
      relay.close();
      await redis.stop();
    });
    return opened;
  }
  type Relay = Awaited<ReturnType<typeof openRelay>>;

  async function expectServesAndStops(relay: Relay) {
    const { server } = relay;
    const port = await portOf(server);
    expect(relay.refused).toBeGreaterThan(0);
    const restarted = /Cannot reach Redis[\s\S]*A worker ended with exit code 1\. Restarting it/;
    await vi.waitFor(() => expect(server.err).toMatch(restarted), waiting);
    expect((await fetch(`http://127.0.0.1:${port}/v2/liveness`)).status).toBe(200);
    await vi.waitFor(() => expect(workersOf(server)).toHaveLength(2), waiting);
    await vi.waitFor(async () => {
      expect((await fetch(`http://127.0.0.1:${port}/health/ready`)).status).toBe(200);
    }, waiting);
    expect(await server.stop()).toBe(0);
  }

  test.concurrent('unreachable for that worker only: it is started again, while the first one serves', async (context) => {
    const relay = await openRelay(context);
    relay.refuses = () => relay.refused === 0;
    await expectServesAndStops(relay);
    expect(relay.server.out).toMatch(firstRootKey);
  });

  test.concurrent('unreachable for all of them: the server waits for it, and reports that it created no root key', async (context) => {
    const relay = await openRelay(context);
    relay.refuses = () => {
      for (const client of relay.clients) client.destroy();
      return !relay.server.err.includes('first root key');
    };
    await expectServesAndStops(relay);
    expect(relay.server.out).not.toMatch(firstRootKey);
    expect(relay.server.err).toContain('tollgate workspace create');
  });
});

longConcurrent('workers of a server that was killed end by themselves', async (context) => {
  const { start } = open(context);
  const server = start({ WORKERS: '2' });
  const port = await portOf(server);
  server.child.kill('SIGKILL');
  await vi.waitFor(() => expect(reachable(port)).resolves.toBe(false), waiting);
  // Its Redis is still running. The next server stops it.
  await portOf(start());
});

// The server waits ten seconds for a request in flight.
longConcurrent('a request that never ends keeps no worker alive after the first process', async (context) => {
  const { dataDir, start } = open(context);
  // At the rate of `goOn` the body ends minutes later.
  const server = start({ WORKERS: '2', BODY_LIMIT_BYTES: `${2 ** 26}` });
  const client = connect(await portOf(server), '127.0.0.1').on('error', () => {});
  await send(client, 'POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n');
  await once(client, 'data');
  // A sender of less than 160 KB in ten seconds is closed as too slow: this is 20 times as fast, as timers may be
  // late.
  const goOn = setInterval(() => client.write(`10000\r\n${'x'.repeat(0x10000)}\r\n`), 200);
  const workers = workersOf(server);
  try {
    server.child.kill('SIGINT');
    await once(server.child, 'exit');
    await vi.waitFor(() => expect(server.err).toContain('could not stop within 10000 ms'), waiting);
    await vi.waitFor(() => expect(workers.filter(isAlive)).toEqual([]), waiting);
    await vi.waitFor(() => expect(embeddedUrlIfRunning(dataDir)).resolves.toBeUndefined(), waiting);
  } finally {
    clearInterval(goOn);
    client.destroy();
  }
});

function isAlive(pid: string): boolean {
  try {
    return process.kill(Number(pid), 0);
  } catch {
    return false;
  }
}

longConcurrent(
  'a worker that cannot be started is tried again until it can, and does not delay the stop',
  async (context) => {
    const { dataDir, start } = open(context);
    const node = join(dataDir, 'node');
    symlinkSync(process.execPath, node);
    // The first process starts workers with what it takes for Node, which here is a link that the test can remove.
    const preload = `data:text/javascript,process.execPath = ${JSON.stringify(node)}`;
    const server = start({ WORKERS: '2', LOG_LEVEL: 'error' }, ['--import', preload, mainFile]);
    await portOf(server);
    const [first] = workersOf(server);

    rmSync(node);
    process.kill(Number(first), 'SIGKILL');
    await vi.waitFor(() => expect(server.err).toContain('A worker failed to start'), waiting);
    symlinkSync(process.execPath, node);
    await vi.waitFor(() => expect(workersOf(server)).toHaveLength(2), waiting);

    expect(await server.stop()).toBe(0);
  },
);
