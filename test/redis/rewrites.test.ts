// The pace at which the embedded Redis rewrites its append-only file, with a real redis-server.
import { randomBytes } from 'node:crypto';
import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { afterEach, describe, expect, test } from 'vitest';
import { startEmbedded } from '../../src/redis/embedded.ts';
import { rewriteMinBytes, rewritePacer } from '../../src/redis/rewrites.ts';

const megabyte = 1024 * 1024;
const gigabyte = 1024 * megabyte;

describe('the size below which the file is not rewritten', () => {
  const facts = { baseBytes: 500 * megabyte, sizeBytes: 500 * megabyte, rate: 0, freeBytes: 100 * gigabyte };

  test('is the size after the last rewrite while nothing is written: then the percentage of Redis decides', () => {
    expect(rewriteMinBytes(facts)).toBe(500 * megabyte);
    expect(rewriteMinBytes({ ...facts, baseBytes: 10, sizeBytes: 10 })).toBe(64 * megabyte);
  });

  test('lets the file grow for ten minutes', () => {
    expect(rewriteMinBytes({ ...facts, rate: megabyte / 2000 })).toBe(800 * megabyte);
  });

  test('is bounded, as Redis has to load the file when it starts', () => {
    expect(rewriteMinBytes({ ...facts, rate: megabyte })).toBe(1012 * megabyte);
  });

  test('leaves three quarters of the free disk, and does not change while the file grows', () => {
    const busy = { ...facts, rate: megabyte, freeBytes: 400 * megabyte };
    expect(rewriteMinBytes(busy)).toBe(600 * megabyte);
    expect(rewriteMinBytes({ ...busy, sizeBytes: 550 * megabyte, freeBytes: 350 * megabyte })).toBe(600 * megabyte);
    expect(rewriteMinBytes({ ...busy, freeBytes: 0 })).toBe(500 * megabyte);
  });
});

describe('with a Redis', () => {
  const closers: (() => unknown)[] = [];
  afterEach(async () => {
    for (const close of closers.splice(0).reverse()) await close();
  });

  async function open() {
    const dataDir = realpathSync(mkdtempSync(join(tmpdir(), 'tollgate-test-')));
    closers.push(() => rmSync(dataDir, { recursive: true, force: true }));
    const embedded = await startEmbedded({ dataDir });
    closers.push(() => embedded.stop());
    const redis = new Redis({ path: embedded.url.replace(/^unix:/, '') });
    closers.push(() => redis.disconnect());
    let now = 0;
    const look = rewritePacer(redis, dataDir, () => now);
    const size = async () => Number(((await redis.config('GET', 'auto-aof-rewrite-min-size')) as string[])[1]);
    const write = (bytes: number) => redis.set('name', randomBytes(bytes));
    const pass = (ms: number) => {
      now += ms;
    };
    return { redis, look, size, write, pass };
  }

  test('the size follows what is written, and falls slowly', async () => {
    const { look, size, write, pass } = await open();
    await look();
    expect(await size()).toBe(64 * megabyte);

    await write(megabyte);
    pass(2000);
    await look();
    // Half a megabyte a second.
    expect(await size()).toBeGreaterThanOrEqual(300 * megabyte);
    expect(await size()).toBeLessThan(302 * megabyte);

    pass(1000);
    await look();
    expect(await size()).toBeGreaterThanOrEqual(270 * megabyte);
    expect(await size()).toBeLessThan(272 * megabyte);
  });

  test('a Redis that has the size of its configuration again, as after a restart, gets it at the next look', async () => {
    const { redis, look, size, write, pass } = await open();
    await look();
    await write(megabyte);
    pass(1000);
    await look();
    const wanted = await size();

    await redis.config('SET', 'auto-aof-rewrite-min-size', 64 * megabyte);
    await look();
    expect(await size()).toBe(wanted);
  });

  test('a rewrite does not count as growth', async () => {
    const { redis, look, size, write, pass } = await open();
    await write(4 * megabyte);
    await look();
    await redis.del('name');
    await redis.bgrewriteaof();
    await expect.poll(async () => /aof_rewrite_in_progress:0/.test(await redis.info('persistence'))).toBe(true);
    await expect
      .poll(async () => Number(/aof_current_size:(\d+)/.exec(await redis.info('persistence'))![1]))
      .toBeLessThan(megabyte);
    pass(1000);
    await look();
    expect(await size()).toBe(64 * megabyte);
  });
});
