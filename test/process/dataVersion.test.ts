// Servers and the command line on stored data of other versions: refusals with their own exit code, the migration of
// data of version 4, and what a server that was paused does.

import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeAll, expect, test } from 'vitest';
import { connect } from '../../src/redis/connection.ts';
import { dataKey, formKey, workspaceKey } from '../../src/redis/names.ts';
import { dataVersion } from '../../src/scripts/layout.ts';
import { version } from '../../src/version.ts';
import { loadFixture, readFixture } from '../fixtures/data/make.ts';
import { forwardingRootKeyId, writeFormerMove } from '../support/formerMoves.ts';
import {
  build,
  cliFile,
  endAll,
  run,
  runServer,
  serverEnv,
  startRedis,
  startTollgate,
  temporaryDir,
} from '../support/processes.ts';
import { isThorough, thoroughTest } from '../support/testIf.ts';

beforeAll(build, 120_000);
afterEach(endAll);

const newer = { version: `${dataVersion + 1}`, release: '9.9.9' };
const sentence = `The data in Redis has version ${dataVersion + 1}, and Tollgate ${version} reads versions 4 to ${dataVersion}. Run Tollgate 9.9.9 or a later one: docs/upgrade.md.`;

async function redisWith(fill?: (redis: Awaited<ReturnType<typeof connect>>) => Promise<unknown>) {
  const { url } = await startRedis(temporaryDir());
  const client = await connect(url, { commandTimeoutMs: 5000 });
  await fill?.(client);
  return { url, client, env: { REDIS_URL: url } };
}

const cli = async (url: string, ...args: string[]) => {
  const program = run(process.execPath, [cliFile, ...args], { env: serverEnv({ REDIS_URL: url }) });
  return { code: await program.ended, out: program.out, err: program.err };
};

const workersTried = isThorough ? [1, 2] : [2];

test.each(workersTried)(
  'with %i workers, newer data ends the start with one sentence and exit code 78',
  async (workers) => {
    const { env, client } = await redisWith((redis) => redis.hset(dataKey, newer));
    const server = runServer({ ...env, WORKERS: `${workers}` });
    expect(await server.ended).toBe(78);
    expect(server.err).toBe(`tollgate: ${sentence}\n`);
    expect(server.out).not.toContain('listens');
    client.disconnect();
  },
);

test('so do commands, and data of version 3', async () => {
  const { url, client } = await redisWith((redis) => redis.hset(dataKey, newer));
  expect(await cli(url, 'workspace', 'list')).toEqual({ code: 78, out: '', err: `tollgate: ${sentence}\n` });
  await client.del(dataKey);
  await client.set(formKey, '3');
  const refused = await cli(url, 'migrate');
  expect([refused.code, refused.err]).toEqual([78, expect.stringContaining('version 3')]);
  client.disconnect();
});

test('data with a moved API ends servers and commands with exit code 78, and doctor says the same', async () => {
  const { url, env, client } = await redisWith();
  const move = { from: 'ws_1111111111111111', to: 'ws_2222222222222222', apiId: 'api_1AbCdEfGh2AbCdEf' };
  await writeFormerMove(client, move, 'ended');
  const places = `${forwardingRootKeyId} in ${move.to}, the API …h2AbCdEf in ${move.from}`;
  const found = `Redis has records of \`tollgate api move\`, which this release does not have: ${places}. With the commit`;
  for (const workers of workersTried) {
    const server = runServer({ ...env, WORKERS: `${workers}` });
    expect(await server.ended).toBe(78);
    expect(server.err).toContain(`tollgate: ${found}`);
    expect(server.out).not.toContain('listens');
  }
  // Data of an earlier version is not migrated, so that the commit that wrote it can end the move.
  await client.hset(dataKey, 'version', '6');
  expect(await cli(url, 'migrate')).toMatchObject({ code: 78, err: expect.stringContaining(found) });
  expect(await client.hget(dataKey, 'version')).toBe('6');
  const { code, out } = await cli(url, 'doctor', '--json');
  const finding = { check: 'scripts', status: 'fault', found: expect.stringContaining(found) };
  expect([code, JSON.parse(out)]).toEqual([1, expect.arrayContaining([expect.objectContaining(finding)])]);

  // What `api end-forwarding` and `root-key revoke` removed.
  const [before, after] = [workspaceKey(move.from), workspaceKey(move.to)];
  await client.del(`${before}:mv:h2AbCdEf`, `${before}:ms:h2AbCdEf`);
  expect((await cli(url, 'migrate')).err).toContain(`not have: ${forwardingRootKeyId} in ${move.to}. With`);
  for (const name of await client.keysBuffer(`${after}:rk*`)) await client.del(name);
  await startTollgate(env);
  client.disconnect();
});

test.each(workersTried)(
  'with %i workers, a server that was paused meanwhile ends with exit code 78',
  async (workers) => {
    const { env, client } = await redisWith();
    const server = await startTollgate({ ...env, WORKERS: `${workers}` });
    process.kill(server.child.pid!, 'SIGSTOP');
    await client.hset(dataKey, newer);
    process.kill(server.child.pid!, 'SIGCONT');
    expect(await server.ended).toBe(78);
    expect(server.err).toContain(sentence);
    client.disconnect();
  },
);

test('the command line describes the migration, does it, and has nothing to do then', async () => {
  const fixture = readFixture(4);
  const { url, client } = await redisWith((redis) => loadFixture(redis, fixture));
  const names = await client.dbsize();
  const described = await cli(url, 'migrate', '--dry-run');
  expect(described).toEqual({
    code: 0,
    err: '',
    out: expect.stringMatching(
      /^The stored data has version 4\. This release migrates it to version \d+:\n( {2}\d to \d: .*\n)+\d+ records in 3 workspaces: about 3 s\. .*\n$/,
    ),
  });
  // Only the version itself is written, as by each start.
  expect(await client.hgetall(dataKey)).toEqual({ moveless: '1', version: '4' });
  expect(await client.dbsize()).toBe(names + 1);
  const json = JSON.parse((await cli(url, 'migrate', '--dry-run', '--json')).out);
  expect(json).toMatchObject({
    version: 4,
    newest: dataVersion,
    workspaces: 3,
    blockers: { registered: [], unnamed: [] },
  });

  expect((await cli(url, 'migrate')).out).toMatch(/^The stored data has version \d+, after \d+ s\.\n$/);
  expect(await client.hget(dataKey, 'version')).toBe(`${dataVersion}`);
  expect((await cli(url, 'migrate')).out).toBe(
    `The stored data has version ${dataVersion}, the newest of this release.\n`,
  );
  client.disconnect();
});

thoroughTest('a server of version 4 that may run is named, and --force goes on', async () => {
  const fixture = readFixture(4);
  const { url, client } = await redisWith((redis) => loadFixture(redis, fixture));
  await client.client('SETNAME', '');
  // The last command of its connection may be any of those that it sends.
  for (const command of [() => client.get('any'), () => client.time(), () => client.zcard('any')]) {
    await command();
    const refused = await cli(url, 'migrate');
    expect([refused.code, refused.out]).toEqual([1, expect.stringMatching(/Connections without a name.*\n.*--force/s)]);
  }
  expect(await client.hget(dataKey, 'version')).toBe('4');
  expect((await cli(url, 'migrate', '--force')).code).toBe(0);
  client.disconnect();
});

thoroughTest('a migration by hand ends when Redis goes away', async () => {
  const redis = await startRedis(temporaryDir());
  const client = await connect(redis.url, { commandTimeoutMs: 5000 });
  await loadFixture(client, readFixture(4));
  await client.client('SETNAME', '');
  // Connections without a name block it, so it waits.
  const program = run(process.execPath, [cliFile, 'migrate', '--wait'], { env: serverEnv({ REDIS_URL: redis.url }) });
  await expect.poll(() => program.err).toContain('Migrating');
  client.disconnect();
  redis.admin.disconnect();
  await redis.stop('SIGKILL');
  expect(await program.ended).toBe(4);
  expect(program.err).toContain('tollgate: The store cannot be reached');
});

test('a server migrates by itself, is ready meanwhile, and says how far it is', async () => {
  const fixture = readFixture(4);
  const { env, client } = await redisWith((redis) => loadFixture(redis, fixture));
  const server = await startTollgate({ ...env, LOG_LEVEL: 'info' });
  const ready = async () => {
    const response = await fetch(`${server.url}/health/ready`);
    return { status: response.status, ...((await response.json()) as { data: { migration?: object } }).data };
  };
  const status = async () => {
    const authorization = `Bearer ${fixture.workspaces[0]!.rootKey}`;
    const headers = { authorization, 'content-type': 'application/json' };
    const response = await fetch(`${server.url}/v2/system.getStatus`, { method: 'POST', headers, body: '{}' });
    return ((await response.json()) as { data: { versions: { data: number }; migration?: object } }).data;
  };
  expect(await ready()).toMatchObject({ status: 200, dataVersion: 4 });
  expect((await status()).migration).toBeUndefined();
  // As of another process that migrates.
  const until = Date.now() + 9_000;
  await client.hset(dataKey, {
    target: 5,
    holder: 'another',
    until,
    started: 1,
    done: 5,
    total: 10,
    fence: 1,
    by: version,
  });
  await expect
    .poll(async () => (await ready()).migration)
    .toEqual({ from: 4, to: 5, done: 5, total: 10, startedAt: 1 });
  const { versions, migration } = await status();
  expect([versions.data, migration]).toEqual([4, { from: 4, to: 5, done: 5, total: 10, startedAt: 1 }]);
  await expect.poll(ready, { interval: 300 }).toMatchObject({ status: 200, dataVersion });
  expect((await ready()).migration).toBeUndefined();
  expect(await status()).not.toHaveProperty('migration');
  await expect.poll(() => server.printed()).toContain('Migrated the stored data.');
  client.disconnect();
});

thoroughTest('with MIGRATE=manual the data stays as it is until the command migrates it', async () => {
  const fixture = readFixture(4);
  const { url, env, client } = await redisWith((redis) => loadFixture(redis, fixture));
  const server = await startTollgate({ ...env, MIGRATE: 'manual', LOG_LEVEL: 'info' });
  const versionOf = async () => {
    const response = await fetch(`${server.url}/health/ready`);
    return ((await response.json()) as { data: { dataVersion: number } }).data.dataVersion;
  };
  await expect.poll(() => server.printed()).toContain('MIGRATE is manual');
  // A server that migrates by itself looks twice, every five seconds.
  await delay(12_000);
  expect(await versionOf()).toBe(4);
  expect((await cli(url, 'migrate')).code).toBe(0);
  await expect.poll(versionOf, { timeout: 10_000 }).toBe(dataVersion);
  client.disconnect();
});
