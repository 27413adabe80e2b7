// `tollgate doctor`. Each test starts a redis-server, set up well or badly on purpose.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { startEmbedded } from '../../src/redis/embedded.ts';
import { runCli, runCliProcess } from '../support/cli.ts';
import { dirOfTest } from '../support/ofFile.ts';
import { build, cliFile, type Program, run } from '../support/processes.ts';
import { freePort } from '../support/redisNodes.ts';

/** A test runs one process or several, on a machine that may be busy. */
const waiting = { timeout: 15_000, interval: 20 };

const installed = spawnSync('redis-server', ['--version']).status === 0;
let dir: string;
const started: Program[] = [];

interface Finding {
  check: string;
  status: string;
  found: string;
  change?: string;
}

beforeAll(build);
beforeEach(() => {
  dir = dirOfTest();
});
afterEach(async () => {
  await Promise.all(started.splice(0).map((redis) => redis.stop('SIGKILL')));
});

/** The settings that Tollgate recommends. A later argument replaces an earlier one. */
const good = [
  '--appendonly',
  'yes',
  '--save',
  '',
  '--maxmemory-policy',
  'noeviction',
  '--hash-max-listpack-value',
  '16384',
  ...['expire', 'server-del', 'user-del'].flatMap((when) => [`--lazyfree-lazy-${when}`, 'yes']),
];

/** A redis-server on a port of its own. */
async function startRedis(settings: string[] = []): Promise<number> {
  const port = await freePort();
  const options = ['--port', `${port}`, '--bind', '127.0.0.1', '--dir', mkdtempSync(join(dir, 'redis-'))];
  started.push(run('redis-server', [...options, ...good, ...settings]));
  await vi.waitFor(() => {
    const { stdout } = spawnSync('redis-cli', ['-p', `${port}`, 'ping'], { encoding: 'utf8' });
    expect(stdout).toMatch(/PONG|NOAUTH/);
  }, waiting);
  return port;
}

/** A Redis whose account may not use some commands. */
async function startRefusing(...rules: string[]): Promise<number> {
  const port = await startRedis();
  const { stdout } = spawnSync('redis-cli', ['-p', `${port}`, 'acl', 'setuser', 'default', ...rules], {
    encoding: 'utf8',
  });
  expect(stdout).toBe('OK\n');
  return port;
}

async function examine(env: Record<string, string>, runDoctor = runCli) {
  const { code, out } = await runDoctor(['doctor', '--json'], env);
  const findings = JSON.parse(out) as Finding[];
  const of = (status: string) => findings.filter((finding) => finding.status === status).map(({ check }) => check);
  return { code, out, findings, of, find: (check: string) => findings.find((finding) => finding.check === check) };
}

const at = (port: number) => ({ REDIS_URL: `redis://127.0.0.1:${port}` });

describe.skipIf(!installed)('with its own Redis', () => {
  test('with a running server every check passes, with a line each', async () => {
    const redis = await startEmbedded({ dataDir: dir });
    try {
      const { code, out, err } = await runCliProcess(['doctor'], { TOLLGATE_DATA_DIR: dir });
      expect({ code, err }).toEqual({ code: 0, err: '' });
      const names = out
        .trimEnd()
        .split('\n')
        .map((line) => /^ok {7}(.*?) {2}/.exec(line)?.[1]);
      expect(names).toEqual([
        'node',
        'uWebSockets.js',
        'open files',
        'data directory',
        'disk',
        'redis',
        'version',
        'role',
        'writes',
        'persistence',
        'eviction',
        'memory',
        'encodings',
        'freeing',
        'channels',
        'clock',
        'scripts',
        'root keys',
      ]);
      expect(out).toContain(`(${redis.url}, running)`);
    } finally {
      await redis.stop();
    }
  });

  test('without a server it starts that Redis for the command', async () => {
    await (await startEmbedded({ dataDir: dir })).stop();
    const { code, find } = await examine({ TOLLGATE_DATA_DIR: dir });
    expect({ code, found: find('redis')!.found }).toEqual({
      code: 0,
      found: expect.stringContaining('started for this check'),
    });
    expect(find('data directory')!.status).toBe('ok');
  });

  test('without data it creates none, and reports where it looked', async () => {
    const dataDir = join(dir, 'none');
    const { code, find } = await examine({ TOLLGATE_DATA_DIR: dataDir });
    expect(code).toBe(0);
    expect(find('data directory')).toMatchObject({ status: 'unknown', found: `${dataDir} has no data yet` });
    expect(find('redis')!.found).toContain('started for this check');
    expect(existsSync(dataDir)).toBe(false);
    expect(readdirSync(tmpdir()).filter((name) => name.startsWith('tollgate-doctor-'))).toEqual([]);
  });

  test('a Redis that does not start is a fault with its reason', async () => {
    const { code, find } = await examine({ TOLLGATE_DATA_DIR: dir, PATH: '/nowhere' }, runCliProcess);
    expect(code).toBe(1);
    expect(find('redis')).toMatchObject({
      status: 'fault',
      found: expect.stringContaining('Tollgate needs redis-server'),
    });
  });
});

describe.skipIf(!installed)('with a Redis of REDIS_URL', () => {
  test('that is set up as recommended, every check passes', async () => {
    const { code, of } = await examine(at(await startRedis()));
    expect({ code, faults: of('fault'), warnings: of('warning') }).toEqual({ code: 0, faults: [], warnings: [] });
  });

  test.each([
    ['evicts', ['--maxmemory-policy', 'allkeys-lru'], 'eviction', 'fault', 'Set maxmemory-policy noeviction.'],
    ['keeps nothing', ['--appendonly', 'no'], 'persistence', 'fault', 'Set appendonly yes.'],
    ['keeps snapshots', ['--appendonly', 'no', '--save', '60 1'], 'persistence', 'warning', 'Set appendonly yes.'],
    [
      'leaves syncing to the system',
      ['--appendfsync', 'no'],
      'persistence',
      'warning',
      'Set appendfsync everysec or always.',
    ],
    ['is full', ['--maxmemory', '1mb'], 'memory', 'fault', 'Give Redis more memory.'],
    [
      'spreads records',
      ['--hash-max-listpack-value', '64'],
      'encodings',
      'warning',
      'Set hash-max-listpack-value 16384.',
    ],
    ['frees records at once', ['--lazyfree-lazy-expire', 'no'], 'freeing', 'warning', 'Set lazyfree-lazy-expire yes.'],
    ['waits for replicas it has not', ['--min-replicas-to-write', '1'], 'role', 'fault', 'Restore the replicas'],
  ])('that %s, it reports what to change', async (_, settings, check, status, change) => {
    const { code, findings, find } = await examine(at(await startRedis(settings)));
    expect(find(check)).toMatchObject({ status, change: expect.stringContaining(change) });
    // A Redis that refuses writes also refuses the library. A full one has room for the probe, and none for the
    // library.
    const more = { memory: ['scripts'], role: ['writes', 'scripts'] }[check] ?? [];
    expect(findings.filter((finding) => finding.status !== 'ok').map((finding) => finding.check)).toEqual([
      check,
      ...more,
    ]);
    expect(code).toBe(status === 'fault' ? 1 : 0);
  });

  test('that has replicas: the replica is a fault, and it recommends that the master waits for one', async () => {
    const master = await startRedis();
    const replica = await startRedis(['--replicaof', `127.0.0.1 ${master}`]);
    await vi.waitFor(() => {
      const { stdout } = spawnSync('redis-cli', ['-p', `${master}`, 'info', 'replication'], { encoding: 'utf8' });
      expect(stdout).toContain('connected_slaves:1');
    }, waiting);
    expect((await examine(at(replica))).find('role')).toMatchObject({ status: 'fault' });
    expect((await examine(at(master))).find('role')).toMatchObject({
      status: 'warning',
      change: 'Set min-replicas-to-write 1 and min-replicas-max-lag 10.',
    });
    spawnSync('redis-cli', ['-p', `${master}`, 'config', 'set', 'min-replicas-to-write', '1']);
    expect((await examine(at(master))).find('role')).toMatchObject({ status: 'ok' });
  });

  test('that refuses CONFIG, as managed ones do, the report lists the unknown settings', async () => {
    const port = await startRefusing('-config');
    const { code, of, find } = await examine(at(port));
    expect({ code, unknown: of('unknown'), faults: of('fault') }).toEqual({
      code: 0,
      unknown: ['persistence', 'encodings', 'freeing'],
      faults: [],
    });
    expect(find('encodings')!.change).toContain('hash-max-listpack-value 16384');
    expect(find('freeing')!.change).toContain('lazyfree-lazy-expire yes');
  });

  test('that refuses INFO as well, the other checks run', async () => {
    const port = await startRefusing('-config', '-info');
    const { code, of } = await examine(at(port));
    expect({ code, unknown: of('unknown') }).toEqual({
      code: 0,
      unknown: ['version', 'role', 'persistence', 'eviction', 'memory', 'encodings', 'freeing'],
    });
  });

  test('that refuses channels, as new accounts are, it reports what they are for', async () => {
    const port = await startRefusing('resetchannels');
    const { code, find, of } = await examine(at(port));
    expect({ code, warnings: of('warning') }).toEqual({ code: 0, warnings: ['channels'] });
    const change = find('channels')!.change!;
    const rules = change.replace('ACL SETUSER <account> ', '').split(' ');
    spawnSync('redis-cli', ['-p', `${port}`, 'acl', 'setuser', 'default', ...rules]);
    expect((await examine(at(port))).of('warning')).toEqual([]);
  });

  test('that refuses scripts, that is a fault', async () => {
    const port = await startRefusing('-function');
    const { code, find } = await examine(at(port));
    expect(code).toBe(1);
    expect(find('scripts')).toMatchObject({ status: 'fault', found: expect.stringContaining('NOPERM') });
  });

  test.skipIf(spawnSync('faketime', ['--version']).status !== 0).each([
    ['+5s', 'warning', /^that of Redis is [456]\d\d\d ms behind that of this machine$/],
    ['-2h', 'fault', /^that of Redis is (7200|7199|7201) s ahead of that of this machine$/],
  ])('whose clock differs by %s, it reports the difference', async (offset, status, found) => {
    const command = ['-f', offset, process.execPath, cliFile, 'doctor', '--json'];
    const { stdout } = spawnSync('faketime', command, {
      encoding: 'utf8',
      env: { PATH: process.env.PATH, FAKETIME_DONT_FAKE_MONOTONIC: '1', ...at(await startRedis()) },
    });
    const finding = (JSON.parse(stdout) as Finding[]).find(({ check }) => check === 'clock');
    expect(finding).toMatchObject({ status, found: expect.stringMatching(found) });
  });

  test('that is an incomplete Cluster, it does not wait for it', async () => {
    const port = await startRedis(['--cluster-enabled', 'yes']);
    const { code, find } = await examine({ REDIS_URL: `redis+cluster://127.0.0.1:${port}` }, runCliProcess);
    expect(code).toBe(1);
    expect(find('redis')).toMatchObject({ status: 'fault' });
  });

  test('that asks for a password, which REDIS_URL lacks: it says so', async () => {
    const port = await startRedis(['--requirepass', 'hunter2']);
    const { find } = await examine({ REDIS_URL: `redis://127.0.0.1:${port}` });
    expect(JSON.stringify(find('redis'))).toContain('It asks for a password (NOAUTH), and REDIS_URL has none.');
  });

  test('no password is printed, whether it is right, wrong, or in an invalid URL', async () => {
    const port = await startRedis(['--requirepass', 'hunter2']);
    const urls = [
      `redis://:hunter2@127.0.0.1:${port}`,
      `redis://:hunter3@127.0.0.1:${port}`,
      `redi://:hunter3@127.0.0.1:${port}`,
    ];
    const codes: (number | null)[] = [];
    for (const REDIS_URL of [...urls, 'redis://:hunter3@127.0.0.1:1']) {
      for (const more of [[], ['--json']]) {
        const { code, out, err } = await runCli(['doctor', ...more], { REDIS_URL });
        expect(`${out}${err}`).not.toMatch(/hunter/);
        codes.push(code);
      }
    }
    expect(codes).toEqual([0, 0, 1, 1, 1, 1, 1, 1]);
  });
});

test('invalid settings are a fault, by name', async () => {
  const { code, find } = await examine({ REDIS_URL: 'localhost' });
  expect(code).toBe(1);
  expect(find('settings')).toMatchObject({
    status: 'fault',
    found: expect.stringContaining('REDIS_URL=localhost must be'),
  });
});

test('an unreachable Redis is a fault, without a wait', async () => {
  const { code, find } = await examine({ REDIS_URL: 'redis://127.0.0.1:1' });
  expect(code).toBe(1);
  expect(find('redis')).toMatchObject({ status: 'fault', found: expect.stringContaining('ECONNREFUSED') });
});

test('a low limit of open files is a warning', () => {
  const command = `ulimit -n 256; exec ${process.execPath} ${cliFile} doctor --json`;
  const { stdout } = spawnSync('sh', ['-c', command], {
    encoding: 'utf8',
    env: { PATH: process.env.PATH, REDIS_URL: 'redis://127.0.0.1:1' },
  });
  const finding = (JSON.parse(stdout) as Finding[]).find(({ check }) => check === 'open files');
  expect(finding).toMatchObject({ status: 'warning', found: '256, which is also the maximum number of connections' });
});
