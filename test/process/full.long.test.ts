// Real servers on a disk that is full, and on a Redis whose memory is full: what they serve, which cause callers,
// probes, metrics, the log and commands report, and that they recover by themselves.

import { spawnSync } from 'node:child_process';
import { rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { allEndedMs } from '../../src/domain/leaseTerms.ts';
import { startEmbedded } from '../../src/redis/embedded.ts';
import { buildLibrary } from '../../src/scripts/library.ts';
import { useLibrary } from '../../src/scripts/loader.ts';
import { runCli } from '../support/cli.ts';
import { readMetrics } from '../support/metrics.ts';
import { atEnd, build, endAll, runServer, startRedis, startServer, temporaryDir } from '../support/processes.ts';

// The command line of this process has the scripts of the server, as a full Redis loads no others.
useLibrary(buildLibrary());

const waiting = { timeout: 60_000, interval: 50 };

beforeAll(build, 120_000);
afterEach(endAll);

const mayMount = spawnSync('unshare', ['-m', 'true']).status === 0 && process.getuid?.() === 0;
if (!mayMount)
  console.warn('test/process/full.long.test.ts: tests of a full disk are SKIPPED: this user may not mount one.');

/** A disk of its own of 16 MB. */
function mountDisk() {
  const dir = temporaryDir();
  const { status, stderr } = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=16m', 'tmpfs', dir], { encoding: 'utf8' });
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  atEnd(() => spawnSync('umount', ['-l', dir]));
  const file = join(dir, 'other data');
  return {
    dataDir: join(dir, 'data'),
    fill() {
      for (;;) {
        try {
          writeFileSync(file, Buffer.alloc(4096), { flag: 'a' });
        } catch (error) {
          expect(error).toMatchObject({ code: 'ENOSPC' });
          return;
        }
      }
    },
    free: () => rmSync(file),
  };
}

interface Answer {
  status: number;
  data?: Record<string, unknown>;
  error?: { type: string; title: string; detail: string };
}

function clientOf(url: string, rootKey: string) {
  const read = async (response: Response): Promise<Answer> => ({
    status: response.status,
    ...((await response.json()) as object),
  });
  return {
    ready: async () => read(await fetch(`${url}/health/ready`)),
    call: async (operation: string, body: object) => {
      const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
      return read(await fetch(`${url}/v2/${operation}`, { method: 'POST', headers, body: JSON.stringify(body) }));
    },
    async metrics() {
      const { series } = readMetrics(await (await fetch(`${url}/metrics`)).text());
      const of = (name: string, reason?: string) =>
        series.find((each) => each.name === `tollgate_${name}` && (!reason || each.labels.reason === reason))?.value;
      return of;
    },
  };
}

const diskFull = {
  status: 503,
  error: {
    type: '/errors/store_full',
    title: 'Store full',
    detail:
      'The store is full: the disk of Redis has no space left, and Redis refuses all changes. Nothing was changed.',
  },
};
const memoryFull = {
  status: 503,
  error: { type: '/errors/store_full', detail: expect.stringContaining('Redis has reached its maxmemory') },
};
const ok = { status: 200 };

describe.skipIf(!mayMount)('a full disk', () => {
  /** The reason is known from the first write that fails. The last page of the file may take some more. */
  const untilRefused = ({ call }: ReturnType<typeof clientOf>) =>
    vi.waitFor(async () => expect(await call('apis.createApi', { name: 'more' })).toMatchObject(diskFull), waiting);

  test('is the cause that everything reports, reads are served, and all is well when there is space', async () => {
    const { dataDir, fill, free } = mountDisk();
    const env = { TOLLGATE_DATA_DIR: dataDir };
    const server = await startServer({ ...env, LEASE_MS: '0' });
    const client = clientOf(server.url, await server.firstRootKey());
    const { call, ready, metrics } = client;
    const { apiId } = (await call('apis.createApi', { name: 'payments' })).data!;
    const { keyId, key } = (await call('keys.createKey', { apiId, credits: { remaining: 5 } })).data!;
    expect(await ready()).toMatchObject({ status: 200, data: { writes: 'accepted' } });

    fill();
    await untilRefused(client);
    await vi.waitFor(async () => expect(await ready()).toMatchObject(diskFull), waiting);
    expect(await call('keys.verifyKey', { key })).toMatchObject(diskFull);
    expect(await call('keys.updateKey', { keyId, enabled: false })).toMatchObject(diskFull);
    expect(await call('keys.getKey', { keyId })).toMatchObject(ok);
    expect(await call('system.getStatus', {})).toMatchObject({
      data: {
        redis: { checks: expect.arrayContaining([expect.objectContaining({ check: 'writes', status: 'fault' })]) },
      },
    });
    await vi.waitFor(async () => expect((await metrics())('redis_writes_refused', 'disk_full')).toBe(1), waiting);
    const of = await metrics();
    expect([of('redis_up'), of('redis_aof_written'), of('disk_free_bytes')]).toEqual([1, 0, 0]);
    expect(of('disk_size_bytes')).toBe(16 << 20);

    const doctor = await runCli(['doctor'], env);
    expect(doctor).toMatchObject({ code: 1, err: '' });
    expect(doctor.out).toMatch(/^fault +disk +0 MB free/m);
    expect(doctor.out).toMatch(/^fault +writes +refused by Redis: its disk is full\n +Free disk space/m);
    expect(doctor.out).toMatch(/^ok +redis +embedded .*running/m);
    expect(doctor.out).not.toContain('another Tollgate');
    expect(await runCli(['key', 'list'], env)).toMatchObject({ code: 0, out: expect.stringContaining(`${keyId}`) });
    expect(await runCli(['key', 'explain', `${keyId}`], env)).toMatchObject({ code: 0 });
    expect(await runCli(['key', 'disable', `${keyId}`], env)).toEqual({
      code: 4,
      out: '',
      err: `tollgate: ${diskFull.error.detail}\n`,
    });
    await vi.waitFor(
      () => expect(server.err).toMatch(/"cause":"MISCONF [^"]*No space left on device","stack[^\n]*sweep[\w ]* failed/),
      waiting,
    );

    free();
    await vi.waitFor(async () => expect(await ready()).toMatchObject(ok), waiting);
    expect(await call('keys.verifyKey', { key })).toMatchObject({ data: { code: 'VALID', credits: 4 } });
    await vi.waitFor(async () => expect((await metrics())('redis_writes_refused', 'disk_full')).toBe(0), waiting);
    expect((await runCli(['doctor'], env)).out).toMatch(/^ok +writes +accepted/m);
  });

  test('a server starts on it and recovers; without data it does not start, and names the disk', async () => {
    const { dataDir, fill, free } = mountDisk();
    fill();
    const refused = runServer({ TOLLGATE_DATA_DIR: dataDir });
    expect(await refused.ended).toBe(1);
    expect(refused.err).toBe(
      `tollgate: The disk with TOLLGATE_DATA_DIR (${dataDir}) is full. Free space on it, and start Tollgate again.\n`,
    );
    free();
    const first = await startServer({ TOLLGATE_DATA_DIR: dataDir });
    const rootKey = await first.firstRootKey();
    await first.stop();

    fill();
    const second = await startServer({ TOLLGATE_DATA_DIR: dataDir });
    const client = clientOf(second.url, rootKey);
    await untilRefused(client);
    expect(await client.call('apis.listApis', {})).toMatchObject(ok);
    free();
    await vi.waitFor(async () => expect(await client.ready()).toMatchObject(ok), waiting);
  });

  test('a Redis that could not write when it was stopped may lack writes at the next start', async () => {
    const { dataDir, fill, free } = mountDisk();
    let nowMs = 0;
    const startNext = async () => {
      const redis = await startEmbedded({ dataDir, monotonicMs: () => nowMs });
      nowMs += allEndedMs;
      return redis;
    };
    const complete = await startNext();
    expect(complete.isComplete()).toBe(true);

    fill();
    const client = new Redis(complete.url.slice('unix:'.length));
    await vi.waitFor(() => expect(client.set('page', 'x'.repeat(4096))).rejects.toThrow('MISCONF'), waiting);
    client.disconnect();
    // There is space for the mark.
    symlinkSync(join(temporaryDir(), 'complete'), join(dataDir, 'redis', 'complete'));
    await complete.stop();
    free();
    const lacking = await startNext();
    expect(lacking.isComplete()).toBe(false);
    await lacking.stop();
  });
});

describe('full memory', () => {
  test('is the cause that everything reports; a key is disabled in spite of leases; all is well with more memory', async () => {
    const dataDir = join(temporaryDir(), 'data');
    const server = await startServer({ TOLLGATE_DATA_DIR: dataDir, LEASE_MS: '2000' });
    const { call, ready, metrics } = clientOf(server.url, await server.firstRootKey());
    const { apiId } = (await call('apis.createApi', { name: 'payments' })).data!;
    const { keyId, key } = (await call('keys.createKey', { apiId })).data!;
    const admin = new Redis({ path: join(dataDir, 'redis', 'redis.sock') });
    atEnd(() => admin.disconnect());
    // Until a lease decides them.
    await vi.waitFor(async () => {
      for (let at = 0; at < 20; at++) await call('keys.verifyKey', { key });
      expect((await metrics())('local_decisions_total')).toBeGreaterThan(0);
    }, waiting);

    await admin.config('SET', 'maxmemory', '1');
    expect(await call('apis.createApi', { name: 'more' })).toMatchObject(memoryFull);
    expect(await call('keys.updateKey', { keyId, enabled: false })).toMatchObject(ok);
    // No lease repeats the VALID of before.
    expect(await call('keys.verifyKey', { key })).toMatchObject(memoryFull);
    await vi.waitFor(async () => expect(await ready()).toMatchObject(memoryFull), waiting);
    await vi.waitFor(async () => expect((await metrics())('redis_writes_refused', 'memory_full')).toBe(1), waiting);
    const of = await metrics();
    expect([of('redis_up'), of('redis_memory_max_bytes')]).toEqual([1, 1]);
    expect(of('redis_memory_bytes')).toBeGreaterThan(1_000_000);
    const { code, out } = await runCli(['doctor'], { TOLLGATE_DATA_DIR: dataDir });
    expect(code).toBe(1);
    expect(out).toMatch(/^fault +writes +refused by Redis: its memory is full \(maxmemory\)/m);

    await admin.config('SET', 'maxmemory', '0');
    await vi.waitFor(async () => expect(await ready()).toMatchObject(ok), waiting);
    expect(await call('keys.verifyKey', { key })).toMatchObject({ data: { code: 'DISABLED' } });
  });

  test('a server does not start if its scripts are not loaded, and names the memory; `doctor` does too', async () => {
    const { url, admin } = await startRedis(temporaryDir(), { fsync: 'off' });
    await admin.config('SET', 'maxmemory', '1');
    const server = runServer({ REDIS_URL: url });
    expect(await server.ended).toBe(1);
    expect(server.err).toMatch(
      /^tollgate: Redis refuses writes, and the scripts of this version are not loaded yet: its memory is full \(maxmemory\)\. Give Redis more memory/,
    );
    const { out } = await runCli(['doctor'], { REDIS_URL: url });
    expect(out).toMatch(/^fault +writes +refused by Redis: its memory is full/m);
    expect(out).toMatch(/^fault +scripts +Redis refuses writes.*\n +Correct `writes` first\.$/m);

    // With the scripts it serves reads.
    await admin.config('SET', 'maxmemory', '0');
    const first = await startServer({ REDIS_URL: url });
    const rootKey = await first.firstRootKey();
    await first.stop();
    await admin.config('SET', 'maxmemory', '1');
    const { call, ready } = clientOf((await startServer({ REDIS_URL: url })).url, rootKey);
    expect(await call('apis.listApis', {})).toMatchObject(ok);
    expect(await ready()).toMatchObject(memoryFull);
  });
});
