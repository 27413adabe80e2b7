// The command line on a data directory of its own, in this process and as a process.
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { versionSuffix } from '../../bin/prepare.mjs';
import { loadConfig, storeSettings } from '../../src/config.ts';
import { digestOf } from '../../src/domain/keyString.ts';
import { cliActor } from '../../src/records/rootKeys.ts';
import { type EmbeddedRedis, embeddedUrlIfRunning, startEmbedded } from '../../src/redis/embedded.ts';
import { openStore, type Store } from '../../src/store.ts';
import { buildVersion, version } from '../../src/version.ts';
import { refused, runCli, runCliProcess, spawnCli } from '../support/cli.ts';
import { dirOfFile } from '../support/ofFile.ts';
import { build } from '../support/processes.ts';

/** A test runs one process or several, on a machine that may be busy. */
const dataDir = dirOfFile();
let redis: EmbeddedRedis;
let store: Store;

const run = (args: string[], env: Record<string, string> = {}) => runCli(args, { TOLLGATE_DATA_DIR: dataDir, ...env });

async function json(...args: string[]) {
  const { code, out, err } = await run([...args, '--json']);
  expect(err).toBe('');
  expect(code).toBe(0);
  return JSON.parse(out);
}

test('as a process: results are on standard output, errors on standard error, and exit codes are 0, 2 and 3', async () => {
  const ran = (args: string[]) => runCliProcess(args, { TOLLGATE_DATA_DIR: dataDir });
  const { workspaceId } = await store.workspaces.create('as a process');
  const listed = await ran(['workspace', 'list']);
  expect(listed).toEqual({ code: 0, out: expect.stringContaining(`${workspaceId}  `), err: '' });
  expect(await ran(['root-key', 'list', '--workspace', 'ws_nothing'])).toEqual({
    code: 3,
    out: '',
    err: expect.stringMatching(/^tollgate: There is no workspace ws_nothing\./),
  });
  expect(await ran(['inspect'])).toEqual({
    code: 2,
    out: '',
    err: expect.stringMatching(/^error: missing required argument 'key'\n.*Add --help for help/s),
  });
});

/** One line of text without control characters. */
const onlyVisible = /^(?:[\u200c\u200d]|[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}])*\n$/u;

beforeAll(async () => {
  build();
  redis = await startEmbedded({ dataDir });
  store = await openStore({ ...storeSettings(loadConfig({})), url: redis.url });
});

afterAll(async () => {
  await store.close();
  await redis.stop();
});

test('--version prints the version of package.json and the commit, also for npm start', async () => {
  expect(await run(['--version'])).toMatchObject({ code: 0, out: `${buildVersion}\n`, err: '' });
  const start = (...words: string[]) => spawnSync(process.execPath, ['bin/start.mjs', ...words], { encoding: 'utf8' });
  expect(start('--version')).toMatchObject({ status: 0, stdout: `${version}${versionSuffix()}\n`, stderr: '' });
  expect(buildVersion).toMatch(/^\d+\.\d+\.\d+(\+unknown|\+g[0-9a-f]{7,}(\.dirty)?)?$/);
  expect(start('--port=1')).toMatchObject({ status: 1, stderr: expect.stringContaining('no argument --port=1') });
});

test('workspace create creates a workspace that workspace list prints', async () => {
  const { workspaceId } = await json('workspace', 'create', 'production');

  expect(await json('workspace', 'list')).toContainEqual({
    workspaceId,
    name: 'production',
    createdAt: expect.any(Number),
    records: 0,
  });
  await json('root-key', 'create', '--workspace', workspaceId, '--permission', '*');
  const { out } = await run(['workspace', 'list']);
  expect(out).toMatch(new RegExp(`${workspaceId}  20.*  production  1 records\n`));
});

describe('names with terminal escapes are printed escaped', () => {
  // Bidirectional marks, which reorder displayed text, and invisible characters, one of them beyond 16 bits.
  const name =
    'a\u001b[2Jb\r\nws_forged\u007f\u009b\u2028\u2029\t£\u202e\u2066\u200f\u061c\ufeff\u{e0041}क\u094d\u200dष';
  const escaped =
    'a\\u001b[2Jb\\u000d\\u000aws_forged\\u007f\\u009b\\u2028\\u2029\\u0009£\\u202e\\u2066\\u200f\\u061c\\ufeff\\udb40\\udc41क\u094d\u200dष';

  test('by workspace list', async () => {
    const { workspaceId } = await store.workspaces.create(name);
    const lines = (await run(['workspace', 'list'])).out.split('\n');
    expect(lines.find((line) => line.startsWith(workspaceId))?.split('  ')[2]).toBe(escaped);
    const { out } = await run(['workspace', 'list', '--json']);
    expect(out).toMatch(onlyVisible);
    expect(JSON.parse(out)).toContainEqual(expect.objectContaining({ workspaceId, name }));
  });

  test('by root-key list', async () => {
    const { workspaceId } = await store.workspaces.create('visible');
    const rootKey = { digest: digestOf(name), start: 'root_', name, permissions: ['*'] };
    await store.rootKeys.create(workspaceId, rootKey, cliActor);
    const { out } = await run(['root-key', 'list', '--workspace', workspaceId]);
    const [headings, line, ...others] = out.split(/(?<=\n)/);
    expect(headings).toMatch(/^ID +ROOT KEY .*\n$/);
    expect(line).toMatch(onlyVisible);
    expect(line).toContain(`  ${escaped}  enabled  `);
    expect(others).toEqual([]);
  });

  test('by an error', async () => {
    const { err } = await run(['root-key', 'list', '--workspace', '\u001b[2J\r\u009b']);
    expect(err).toBe(
      `tollgate: There is no workspace \\u001b[2J\\u000d\\u009b. \`tollgate workspace list\` prints all of them.\n`,
    );
  });
});

test.each([[['workspace', 'list']], [['workspace', 'list', '--json']], [['doctor']], [['workspace', '--help']]])(
  'a reader of %j that closes the pipe causes no line of error',
  async (args) => {
    const child = spawnCli(args, { TOLLGATE_DATA_DIR: dataDir });
    child.stdout.destroy();
    let err = '';
    child.stderr.on('data', (text) => (err += text));
    await once(child, 'close');
    expect(err).toBe('');
  },
);

test('a wrong setting is an error that names it', async () => {
  await refused(run(['workspace', 'list'], { REDIS_URL: 'localhost' }), 'REDIS_URL=localhost must be');
});

test('an unreachable Redis is an error, without a wait', async () => {
  await refused(
    run(['workspace', 'list'], { REDIS_URL: 'unix:/nowhere/redis.sock' }),
    /^tollgate: Cannot reach Redis: .*\n$/,
  );
});

test('without a running server, it starts the Redis of the data directory for the command', async () => {
  const env = { TOLLGATE_DATA_DIR: join(dataDir, 'other') };
  await (await startEmbedded({ dataDir: env.TOLLGATE_DATA_DIR })).stop();
  const { out, err } = await run(['workspace', 'create', 'alone', '--json'], env);
  expect(err).toBe('');
  expect(await embeddedUrlIfRunning(env.TOLLGATE_DATA_DIR)).toBeUndefined();
  expect(readdirSync(join(env.TOLLGATE_DATA_DIR, 'redis'))).not.toContain('redis.sock');
  expect(JSON.parse((await run(['workspace', 'list', '--json'], env)).out)).toEqual([
    { ...JSON.parse(out), records: 0 },
  ]);
});

test('where there is no data, it creates none, and states where it looked', async () => {
  const env = { TOLLGATE_DATA_DIR: join(dataDir, 'none') };
  for (const args of [['workspace', 'create', 'first'], ['workspace', 'list'], ['root-key', 'list'], ['export']]) {
    await refused(
      run(args, env),
      `tollgate: There is no data of Tollgate in ${env.TOLLGATE_DATA_DIR}. Start the server`,
    );
  }
  expect(existsSync(env.TOLLGATE_DATA_DIR)).toBe(false);
});

test('in any folder it uses the data of the folder of Tollgate', () => {
  const { stderr, status } = spawnSync(process.execPath, [resolve('bin/tollgate.mjs'), 'workspace', 'list'], {
    cwd: dataDir,
    env: { PATH: process.env.PATH, TOLLGATE_DATA_DIR: 'no-such-data' },
    encoding: 'utf8',
  });
  expect({ status, stderr }).toMatchObject({
    status: 1,
    stderr: expect.stringContaining(` ${resolve('no-such-data')}.`),
  });
  expect(readdirSync(dataDir)).not.toContain('no-such-data');
});

test('--workspace is not needed where there is one; several are listed', async () => {
  const env = { TOLLGATE_DATA_DIR: join(dataDir, 'single') };
  const embedded = await startEmbedded({ dataDir: env.TOLLGATE_DATA_DIR });
  try {
    expect((await run(['root-key', 'list'], env)).err).toBe(
      'tollgate: There is no workspace. `tollgate workspace create <name>` creates one.\n',
    );
    const { workspaceId } = JSON.parse((await run(['workspace', 'create', 'one', '--json'], env)).out);
    const created = await run(['root-key', 'create', '--permission', '*', '--json'], env);
    expect(JSON.parse(created.out).rootKey).toMatch(new RegExp(`^root_${workspaceId.slice('ws_'.length)}_`));
    expect((await run(['root-key', 'list'], env)).out).toContain(JSON.parse(created.out).rootKeyId);
    expect((await run(['export'], env)).code).toBe(0);
    await run(['workspace', 'create', 'two'], env);
    await refused(
      run(['root-key', 'list'], env),
      new RegExp(
        `^tollgate: There are 2 workspaces\\. Name one with --workspace:\\n  ${workspaceId}  one\\n  ws_\\w+  two\\n$`,
      ),
    );
  } finally {
    await embedded.stop();
  }
});
