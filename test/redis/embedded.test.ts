// Real redis-server processes in temporary directories. An owner that is killed is a separate process.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { allEndedMs } from '../../src/domain/leaseTerms.ts';
import { type EmbeddedRedis, embeddedUrlIfRunning, startEmbedded } from '../../src/redis/embedded.ts';
import { runCli } from '../support/cli.ts';
import { thoroughTest } from '../support/testIf.ts';

const installed = ['redis-server', 'valkey-server'].some((name) => spawnSync(name, ['--version']).status === 0);

const waiting = { timeout: 10_000, interval: 20 };

let dataDir: string;
let running: EmbeddedRedis[];
let owners: ChildProcess[];

beforeEach(() => {
  dataDir = realpathSync(mkdtempSync(join(tmpdir(), 'tollgate-test-')));
  running = [];
  owners = [];
});

afterEach(async () => {
  for (const owner of owners) owner.kill('SIGKILL');
  await Promise.all(running.map((redis) => redis.stop()));
  const orphan = await embeddedUrlIfRunning(dataDir);
  if (orphan) await ask(orphan, (redis) => redis.shutdown('NOSAVE').catch(() => {}));
  rmSync(dataDir, { recursive: true, force: true });
});

async function start(options: Partial<Parameters<typeof startEmbedded>[0]> = {}) {
  const redis = await startEmbedded({ dataDir, ...options });
  running.push(redis);
  return redis;
}

async function stop(redis: EmbeddedRedis) {
  running.splice(running.indexOf(redis), 1);
  await redis.stop();
}

const pathOf = (url: string) => url.replace(/^unix:/, '');

async function ask<T>(url: string, question: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis({ path: pathOf(url), retryStrategy: () => null });
  redis.on('error', () => {});
  try {
    return await question(redis);
  } finally {
    redis.disconnect();
  }
}

const pidOf = async (url: string) =>
  Number(/process_id:(\d+)/.exec(await ask(url, (redis) => redis.info('server')))![1]);

/** A process that starts the Redis of this test's directory and then waits to be killed. */
async function startOwner(): Promise<{ owner: ChildProcess; url: string }> {
  const program = `
    import { runnerImport } from 'vite';
    const { module } = await runnerImport('./src/redis/embedded.ts');
    console.log((await module.startEmbedded({ dataDir: ${JSON.stringify(dataDir)} })).url);
    setInterval(() => {}, 60_000);`;
  const owner = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  owners.push(owner);
  const [line] = await once(owner.stdout!, 'data');
  return { owner, url: String(line).trim() };
}

const configFile = () => join(dataDir, 'redis', 'redis.conf');

/** From now on Redis does not start: its configuration cannot be written. */
function blockConfig() {
  rmSync(configFile());
  mkdirSync(configFile());
}

const touch = (file: string) => utimesSync(file, new Date(), new Date());

/** As `cp -a` restores a backup: the files have the same names, sizes and times of their last change. */
function replaceByCopy(dir: string) {
  cpSync(dir, `${dir}.copy`, { recursive: true, preserveTimestamps: true });
  rmSync(dir, { recursive: true });
  renameSync(`${dir}.copy`, dir);
}

async function kill(owner: ChildProcess) {
  owner.kill('SIGKILL');
  await once(owner, 'exit');
}

describe.skipIf(!installed)('the embedded Redis', () => {
  test('keeps its data over a stop and a start', async () => {
    const first = await start();
    await ask(first.url, (redis) => redis.set('name', 'Tollgate'));
    await stop(first);

    const second = await start();
    expect(await ask(second.url, (redis) => redis.get('name'))).toBe('Tollgate');
  });

  test('has ended when stop() resolves', async () => {
    const redis = await start();
    const pid = await pidOf(redis.url);
    await stop(redis);

    expect(() => process.kill(pid, 0)).toThrow('ESRCH');
    expect(await embeddedUrlIfRunning(dataDir)).toBeUndefined();
    expect(readdirSync(join(dataDir, 'redis')).filter((name) => /sock|owner/.test(name))).toEqual([]);
  });

  test('listens on no port, keeps an append-only file and never evicts', async () => {
    const { url } = await start();
    const settings = await ask(url, async (redis) => [
      ...((await redis.config('GET', 'port')) as string[]),
      ...((await redis.config('GET', 'append*')) as string[]),
      ...((await redis.config('GET', 'aof-timestamp-enabled')) as string[]),
      ...((await redis.config('GET', 'maxmemory-policy')) as string[]),
      ...((await redis.config('GET', '*-max-listpack-value')) as string[]),
      ...((await redis.config('GET', 'lazyfree-lazy-*')) as string[]),
    ]);
    const named = Object.fromEntries(settings.flatMap((word, i) => (i % 2 ? [[settings[i - 1], word]] : [])));
    expect(named).toMatchObject({
      port: '0',
      appendonly: 'yes',
      appendfsync: 'everysec',
      'aof-timestamp-enabled': 'yes',
      'maxmemory-policy': 'noeviction',
      'hash-max-listpack-value': '16384',
      'zset-max-listpack-value': '64',
      'lazyfree-lazy-expire': 'yes',
      'lazyfree-lazy-server-del': 'yes',
      'lazyfree-lazy-user-del': 'yes',
    });
  });

  test('a large record that expires is freed by another thread, while commands are served', async () => {
    const { url } = await start();
    const lazilyFreed = async (redis: Redis) => Number(/lazyfreed_objects:(\d+)/.exec(await redis.info('memory'))![1]);
    await ask(url, async (redis) => {
      const before = await lazilyFreed(redis);
      // The number of fields decides, not their size.
      await redis.hset('large', Object.fromEntries(Array.from({ length: 1000 }, (_, field) => [`f${field}`, '1'])));
      await redis.pexpire('large', 1);
      await vi.waitFor(async () => expect(await redis.exists('large')).toBe(0), waiting);
      await vi.waitFor(async () => expect((await lazilyFreed(redis)) - before).toBe(1), waiting);
    });
  });

  test('directory, socket and configuration are private', async () => {
    mkdirSync(join(dataDir, 'redis'), { mode: 0o755 });
    const { url } = await start();
    const modeOf = (path: string) => (statSync(path).mode & 0o777).toString(8);

    expect(modeOf(dirname(pathOf(url)))).toBe('700');
    expect(modeOf(pathOf(url))).toBe('700');
    expect(modeOf(join(dataDir, 'redis', 'redis.conf'))).toBe('600');
  });

  test('has a process group of its own, so that Ctrl-C in a terminal does not signal it', async () => {
    const pid = await pidOf((await start()).url);
    expect(() => process.kill(-pid, 0)).not.toThrow();
  });

  test('other processes can find it', async () => {
    expect(await embeddedUrlIfRunning(join(dataDir, 'nothing'))).toBeUndefined();
    expect(await embeddedUrlIfRunning(dataDir)).toBeUndefined();
    const { url } = await start();
    expect(await embeddedUrlIfRunning(dataDir)).toBe(url);
  });

  test('refuses a second owner, names the first, and does not affect its Redis', async () => {
    const { url } = await start();
    const pid = await pidOf(url);

    await expect(start()).rejects.toThrow(`${dataDir} is in use by another Tollgate (process ${process.pid})`);
    expect(await pidOf(url)).toBe(pid);
  });

  thoroughTest('a command reports that it does not reply, not that the server should be stopped', async () => {
    const pid = await pidOf((await start()).url);
    process.kill(pid, 'SIGSTOP');
    try {
      const { code, err } = await runCli(['workspace', 'list'], { TOLLGATE_DATA_DIR: dataDir });
      const message = `Tollgate (process ${process.pid}) uses ${dataDir}, and its Redis does not reply`;
      expect({ code, err }).toEqual({ code: 1, err: expect.stringContaining(message) });
    } finally {
      process.kill(pid, 'SIGCONT');
    }
  });

  test('of several that start at once, at most one owns the directory', async () => {
    const outcomes = await Promise.allSettled([start(), start(), start(), start()]);
    expect(outcomes.filter(({ status }) => status === 'fulfilled').length).toBeLessThanOrEqual(1);
    for (const outcome of outcomes) {
      if (outcome.status === 'rejected') expect(outcome.reason.message).toMatch(/is in use by another Tollgate/);
    }
  });

  test('an owner killed outright leaves an orphan, which the next start replaces without losing a write', async () => {
    const { owner, url } = await startOwner();
    const orphan = await pidOf(url);
    await kill(owner);
    await ask(url, (redis) => redis.set('written', 'to the orphan'));

    const events: string[] = [];
    const redis = await start({ onEvent: (message) => events.push(message) });

    // On a busy machine the orphan may still be loading its data.
    const reported = events.filter((event) => !event.includes('is loading its data'));
    expect(reported).toEqual([expect.stringContaining('earlier Tollgate')]);
    expect(await pidOf(redis.url)).not.toBe(orphan);
    expect(await ask(redis.url, (client) => client.get('written'))).toBe('to the orphan');
  });

  thoroughTest('an orphan that runs a script does not prevent a start', async () => {
    const { owner, url } = await startOwner();
    await ask(url, (redis) => redis.config('SET', 'lua-time-limit', '10'));
    await kill(owner);
    const endless = new Redis({ path: pathOf(url), retryStrategy: () => null });
    endless.on('error', () => {});
    const script = endless.eval("redis.call('set', 'half', 'done') while true do end", 0).catch(() => {});
    await vi.waitFor(() => expect(ask(url, (redis) => redis.ping())).rejects.toThrow('BUSY'), waiting);

    const redis = await start();
    await script;
    endless.disconnect();
    expect(await ask(redis.url, (client) => client.exists('half'))).toBe(0);
  });

  thoroughTest('files of a killed owner and its killed Redis do not prevent a start', async () => {
    const { owner, url } = await startOwner();
    const pid = await pidOf(url);
    await kill(owner);
    process.kill(pid, 'SIGKILL');
    await vi.waitFor(() => expect(embeddedUrlIfRunning(dataDir)).resolves.toBeUndefined(), waiting);
    expect(readdirSync(join(dataDir, 'redis')).filter((name) => /sock|owner/.test(name))).toHaveLength(2);

    const redis = await start();
    expect(await ask(redis.url, (client) => client.ping())).toBe('PONG');
  });

  test('one in a new directory, or after one that was stopped, has every write', async () => {
    const first = await start();
    expect(first.isComplete()).toBe(true);
    await stop(first);
    const second = await start();
    expect(second.isComplete()).toBe(true);
    await stop(second);
    expect((await start()).isComplete()).toBe(true);
  });

  test('one after an orphan may lack writes', async () => {
    const { owner } = await startOwner();
    await kill(owner);
    expect((await start()).isComplete()).toBe(false);
  });

  thoroughTest(
    'one after a Redis that was killed may lack writes, and so may the next, until leases of that time have ended',
    async () => {
      await stop(await start());
      const { owner, url } = await startOwner();
      const pid = await pidOf(url);
      await kill(owner);
      process.kill(pid, 'SIGKILL');
      await vi.waitFor(() => expect(embeddedUrlIfRunning(dataDir)).resolves.toBeUndefined(), waiting);

      let nowMs = 0;
      const monotonicMs = () => nowMs;
      const second = await start({ monotonicMs });
      expect(second.isComplete()).toBe(false);
      nowMs += allEndedMs - 1;
      await stop(second);

      const third = await start({ monotonicMs });
      expect(third.isComplete()).toBe(false);
      nowMs += allEndedMs;
      await stop(third);
      expect((await start()).isComplete()).toBe(true);
    },
  );

  test.each([
    ['of another time', (dir: string) => touch(join(dir, 'appendonlydir', 'appendonly.aof.1.incr.aof'))],
    ['of a copy', (dir: string) => replaceByCopy(join(dir, 'appendonlydir'))],
  ])('one with an append-only file %s may lack writes', async (_what, change) => {
    await stop(await start());
    change(join(dataDir, 'redis'));
    expect((await start()).isComplete()).toBe(false);
  });

  test('one that was started again after an unexpected end may lack writes', async () => {
    const events: string[] = [];
    const redis = await start({ onEvent: (message) => events.push(message) });
    process.kill(await pidOf(redis.url), 'SIGKILL');
    await vi.waitFor(() => expect(events).toContain('redis-server is running again.'), waiting);
    expect(redis.isComplete()).toBe(false);
    await stop(redis);
    expect((await start()).isComplete()).toBe(false);
  });

  test('a Redis that ends unexpectedly is started again, with its data', async () => {
    const events: string[] = [];
    const { url } = await start({ onEvent: (message) => events.push(message) });
    await ask(url, (redis) => redis.set('name', 'Tollgate'));
    process.kill(await pidOf(url), 'SIGKILL');

    await vi.waitFor(() => expect(events).toContain('redis-server is running again.'), waiting);
    expect(events[0]).toBe('redis-server ended unexpectedly (SIGKILL). Starting it again in 100 ms.');
    expect(await ask(url, (redis) => redis.get('name'))).toBe('Tollgate');
  });

  test('a Redis that cannot be started for a while is tried until it starts', async () => {
    const events: string[] = [];
    const { url } = await start({ onEvent: (message) => events.push(message) });
    blockConfig();
    process.kill(await pidOf(url), 'SIGKILL');

    const again = /^redis-server could not be run \(EISDIR: .*\)\. Starting it again in (\d+) ms\.$/;
    const delays = () => events.flatMap((event) => again.exec(event)?.[1] ?? []);
    await vi.waitFor(() => expect(delays().slice(0, 2)).toEqual(['200', '400']), waiting);
    rmSync(configFile(), { recursive: true });
    await vi.waitFor(() => expect(events).toContain('redis-server is running again.'), waiting);
    expect(events.filter((event) => event.includes('ended unexpectedly'))).toHaveLength(1);
    expect(await ask(url, (redis) => redis.ping())).toBe('PONG');
  });

  test('a Redis that cannot be started does not prevent stop()', async () => {
    const events: string[] = [];
    const redis = await start({ onEvent: (message) => events.push(message) });
    blockConfig();
    process.kill(await pidOf(redis.url), 'SIGKILL');

    await vi.waitFor(() => expect(events.at(-1)).toContain('EISDIR'), waiting);
    await stop(redis);
    expect(await embeddedUrlIfRunning(dataDir)).toBeUndefined();
  });

  test('a path too long for a socket puts the sockets below the temporary directory, as private', async () => {
    const deep = join(dataDir, 'd'.repeat(100));
    const { url } = await start({ dataDir: deep });

    expect(dirname(dirname(pathOf(url)))).toBe(realpathSync(tmpdir()));
    expect((statSync(dirname(pathOf(url))).mode & 0o777).toString(8)).toBe('700');
    expect(existsSync(join(deep, 'redis', 'appendonlydir'))).toBe(true);
    expect(await embeddedUrlIfRunning(deep)).toBe(url);
    rmSync(dirname(pathOf(url)), { recursive: true });
  });

  test('an invalid data directory is an error with the name of its setting', async () => {
    const file = join(dataDir, 'file');
    writeFileSync(file, '');
    for (const dir of [file, join(file, 'below')]) {
      await expect(start({ dataDir: dir })).rejects.toThrow('TOLLGATE_DATA_DIR cannot be used: ');
    }
  });

  test('a directory with spaces and quotes in its name works', async () => {
    const { url } = await start({ dataDir: join(dataDir, 'a "b" \'c\'') });
    expect(await ask(url, (redis) => redis.ping())).toBe('PONG');
  });

  test('a Redis that does not start is an error with its last output, and the directory is free again', async () => {
    mkdirSync(join(dataDir, 'redis', 'appendonlydir'), { recursive: true });
    const manifest = join(dataDir, 'redis', 'appendonlydir', 'appendonly.aof.manifest');
    writeFileSync(manifest, 'nonsense\n');
    await expect(start()).rejects.toThrow(/did not start \(exit code 1\)[\s\S]*manifest/);

    rmSync(manifest);
    await expect(start()).resolves.toBeDefined();
  });
});

test('without a server program, the error states what to do', async () => {
  await expect(start({ binary: '/nowhere/redis-server' })).rejects.toThrow(
    'Tollgate needs /nowhere/redis-server 7.0 or later on the PATH. Install one, or set REDIS_URL',
  );
});

test('a program that is too old is refused with its version', async () => {
  const binary = join(dataDir, 'old-server');
  writeFileSync(binary, '#!/bin/sh\necho "Redis server v=6.0.16 sha=00000000:0"\n', { mode: 0o755 });
  await expect(start({ binary })).rejects.toThrow(`${binary} here is 6.0.16.`);
});
