// Runs the commands of docs/backup.md as written, in a folder with the program files of Tollgate, on a server whose
// keys are in use.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { runCli } from '../support/cli.ts';
import { openClient } from '../support/client.ts';
import { blocksOf, openFolder } from '../support/folder.ts';
import { run } from '../support/processes.ts';
import { freePort } from '../support/redisNodes.ts';
import { isThorough, testIf } from '../support/testIf.ts';

const blocks = blocksOf('docs/backup.md');
/** The block of the page that contains this text. Each is used once. */
const untried = new Set(blocks);
function block(part: string): string {
  const [found, ...others] = blocks.filter((text) => text.includes(part));
  expect(others).toEqual([]);
  untried.delete(found!);
  return found!;
}

const installed = spawnSync('redis-check-rdb', ['--version']).status !== null;
let opened: ReturnType<typeof openFolder>;
beforeAll(() => {
  opened = openFolder({ dependencies: 'installed' });
});
afterAll(() => opened.close());

testIf(isThorough && installed)(
  'a backup of a running server, and a copy of a stopped one, hold every key and count',
  async () => {
    const server = await opened.serve('npm start');
    const rootKey = await server.firstRootKey();
    const { ok: api } = openClient(server.url, rootKey);
    const { apiId } = await api('apis.createApi', { name: 'payments' });
    const keys: string[] = [];
    for (let at = 0; at < 50; at++) {
      const ratelimits = [{ name: 'requests', limit: 1, duration: 3_600_000, autoApply: true }];
      const credits = { remaining: 100 + at };
      const { key } = await api('keys.createKey', {
        apiId,
        name: `${at}`,
        externalId: `user_${at % 7}`,
        credits,
        ratelimits,
      });
      keys.push(key!);
    }
    // Every second key has used up its limit.
    for (const [at, key] of keys.entries()) if (at % 2 === 0) await api('keys.verifyKey', { key });
    const workspaceId = rootKey.replace(/^root_(\w{16})_.*/, 'ws_$1');
    const exportOf = async (dataDir: string) =>
      // Without its first line, which has its time.
      (
        await runCli(['export', '--workspace', workspaceId], { TOLLGATE_DATA_DIR: join(opened.path, dataDir) })
      ).out.replace(/^.*\n/, '');
    const before = await exportOf('data');
    expect(before.match(/"kind":"key"/g)).toHaveLength(50);

    // The backup is made while the server serves and its data changes.
    let stopped = false;
    const busy = (async () => {
      while (!stopped)
        await api('ratelimits.limit', { namespace: 'busy', identifier: 'all', limit: 1e9, duration: 60_000 });
    })();
    expect(opened.run(block('tollgate backup tollgate.rdb'))).toContain('RDB looks OK');
    stopped = true;
    await busy;
    expect(statSync(join(opened.path, 'tollgate.rdb')).mode & 0o777).toBe(0o600);
    const { key: late } = await api('keys.createKey', { apiId });
    const withLate = await exportOf('data');
    await server.stop('SIGINT');
    opened.run(block('cp -a data data-copy'));

    /** All data of the first fifty keys, on a server that started from the backup. */
    async function expectAll(url: string) {
      for (const [at, key] of keys.entries()) {
        const answer = await openClient(url, rootKey).ok('keys.verifyKey', { key });
        const isUsedUp = at % 2 === 0;
        expect(answer).toMatchObject({ name: `${at}`, code: isUsedUp ? 'RATE_LIMITED' : 'VALID', credits: 99 + at });
      }
      const rows = await openClient(url, rootKey).ok('analytics.getVerifications', {});
      const count = (outcome: string) =>
        (rows as unknown as { outcome: string; count: number }[])
          .filter((row) => row.outcome === outcome)
          .reduce((sum, row) => sum + row.count, 0);
      // 25 before the backup, the other 25 since.
      expect([count('VALID'), count('RATE_LIMITED')]).toEqual([50, 25]);
    }

    opened.run(block('mkdir -p restored'));
    const looked = opened.run(block('tollgate doctor'));
    expect(looked).toMatch(/^ok +persistence +append-only file, appendfsync everysec, with times$/m);
    expect(looked).toContain(workspaceId);
    expect(await exportOf('restored')).toBe(before);
    const restored = await opened.serve(block('TOLLGATE_DATA_DIR=restored npm start'));
    await expectAll(restored.url);
    expect(await openClient(restored.url, rootKey).ok('keys.verifyKey', { key: late })).toMatchObject({
      code: 'NOT_FOUND',
    });
    // The restored directory is a data directory like any other: changes survive a restart.
    const { key: newest } = await openClient(restored.url, rootKey).ok('keys.createKey', { apiId });
    await restored.stop('SIGINT');
    const again = await opened.serve('TOLLGATE_DATA_DIR=restored npm start');
    expect(await openClient(again.url, rootKey).ok('keys.verifyKey', { key: newest })).toMatchObject({ code: 'VALID' });
    await again.stop('SIGINT');

    expect(await exportOf('data-copy')).toBe(withLate);
    const inText = /`(TOLLGATE_DATA_DIR=data-copy npm start)`/.exec(readFileSync('docs/backup.md', 'utf8'))![1]!;
    const copy = await opened.serve(inText);
    await expectAll(copy.url);
    expect(await openClient(copy.url, rootKey).ok('keys.verifyKey', { key: late })).toMatchObject({ code: 'VALID' });
    await copy.stop('SIGINT');

    // The API is deleted for good, comes back from the backup, and then from a time before the deletion.
    const last = await opened.serve('npm start');
    const client = openClient(last.url, rootKey);
    await client.ok('apis.deleteApi', { apiId, permanent: true });
    const place = { API: apiId, WORKSPACE: workspaceId };
    const [exporting, importing] = block('export --api').replace('restored', 'data-copy').trim().split('\n');
    opened.run(exporting!, place);
    // It is refused while the keys of the deleted API are being removed.
    await vi.waitFor(async () => {
      opened.run(importing!, place);
      expect(await client.ok('keys.verifyKey', { key: keys[1]! })).toMatchObject({ name: '1', code: 'VALID' });
    }, 60_000);
    await delay(2000);
    const time = `${Math.floor(Date.now() / 1000)}`;
    await delay(2000);
    await client.ok('apis.deleteApi', { apiId, permanent: true });
    await last.stop('SIGINT');
    expect(opened.run(block('--truncate-to-timestamp'), { TIME: time })).toContain(workspaceId);
    const cut = await opened.serve('TOLLGATE_DATA_DIR=data-before npm start');
    expect(await openClient(cut.url, rootKey).ok('keys.verifyKey', { key: keys[3]! })).toMatchObject({ code: 'VALID' });
    await cut.stop('SIGINT');
  },
);

test.skipIf(!installed)('a Redis that Tollgate does not run is backed up by its address', async () => {
  const port = await freePort();
  const args = [
    '--port',
    `${port}`,
    '--bind',
    '127.0.0.1',
    '--dir',
    opened.path,
    '--save',
    '',
    '--requirepass',
    'secret',
  ];
  const redis = run('redis-server', args);
  const url = `redis://default:secret@127.0.0.1:${port}`;
  try {
    while ((await runCli(['workspace', 'create', 'mine'], { REDIS_URL: url })).code !== 0) await delay(100);
    // Redis sends the length first to a replica without diskless transfers.
    for (const diskless of ['yes', 'no']) {
      opened.run(`redis-cli -u ${url} --no-auth-warning config set repl-diskless-sync ${diskless}`);
      opened.run('npx tollgate backup tollgate.rdb', { REDIS_URL: url });
      expect(opened.run('redis-check-rdb tollgate.rdb')).toContain('RDB looks OK');
    }
    const refused = await runCli(['backup', join(opened.path, 'no', 'folder.rdb')], { REDIS_URL: url });
    expect(refused).toMatchObject({ code: 1, err: expect.stringContaining('ENOENT') });
    opened.run(`redis-cli -u ${url} --no-auth-warning acl setuser limited on '>pw' '~*' '&*' +@all -sync`);
    const limited = await runCli(['backup', join(opened.path, 'limited.rdb')], {
      REDIS_URL: `redis://limited:pw@127.0.0.1:${port}`,
    });
    expect(limited).toMatchObject({ code: 1, err: expect.stringContaining('The account needs +sync') });
    expect(readdirSync(opened.path).filter((name) => name.includes('limited'))).toEqual([]);
    expect(opened.run('redis-check-rdb tollgate.rdb')).toContain('RDB looks OK');
    expect(existsSync(join(opened.path, 'tollgate.rdb'))).toBe(true);
  } finally {
    await redis.stop();
  }
});

testIf(isThorough && installed)('every command of docs/backup.md was run', () => {
  expect([...untried]).toEqual([]);
});
