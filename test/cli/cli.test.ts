// The command line on a data directory of its own, in this process and as a process.
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { loadConfig, storeSettings } from '../../src/config.ts';
import { digestOf } from '../../src/domain/keyString.ts';
import { presented } from '../../src/http/rootKey.ts';
import { type EmbeddedRedis, embeddedUrlIfRunning, startEmbedded } from '../../src/store/embedded.ts';
import { cliActor } from '../../src/store/rootKeys.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { runCli, runCliProcess, spawnCli } from '../support/cli.ts';
import { build } from '../support/processes.ts';

/** A test runs one process or several, on a machine that may be busy. */
vi.setConfig({ testTimeout: 60_000, hookTimeout: 120_000 });

const dataDir = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
let redis: EmbeddedRedis;
let store: Store;

const run = (args: string[], env: Record<string, string> = {}) => runCli(args, { TOLLGATE_DATA_DIR: dataDir, ...env });

async function json(...args: string[]) {
  const { code, out, err } = await run([...args, '--json']);
  expect(err).toBe('');
  expect(code).toBe(0);
  return JSON.parse(out);
}

test('as a process: results are on standard output, errors on standard error, and exit codes are 0 and 1', async () => {
  const ran = (args: string[]) => runCliProcess(args, { TOLLGATE_DATA_DIR: dataDir });
  const { workspaceId } = await store.workspaces.create('as a process');
  const listed = await ran(['workspace', 'list']);
  expect(listed).toEqual({ code: 0, out: expect.stringContaining(`${workspaceId}  `), err: '' });
  expect(await ran(['root-key', 'list', '--workspace', 'ws_nothing'])).toEqual({
    code: 1,
    out: '',
    err: expect.stringMatching(/^tollgate: There is no workspace ws_nothing\./),
  });
  expect(await ran(['inspect'])).toEqual({
    code: 1,
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
  rmSync(dataDir, { recursive: true });
});

test('--version prints the version of package.json, also for npm start', async () => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
  expect(await run(['--version'])).toMatchObject({ code: 0, out: `${version}\n`, err: '' });
  const start = (...words: string[]) => spawnSync(process.execPath, ['bin/start.mjs', ...words], { encoding: 'utf8' });
  expect(start('--version')).toMatchObject({ status: 0, stdout: `${version}\n`, stderr: '' });
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

describe('root-key', () => {
  let workspace: string[];
  let workspaceId: string;

  beforeAll(async () => {
    ({ workspaceId } = await store.workspaces.create('test'));
    workspace = ['--workspace', workspaceId];
  });

  const authenticate = (rootKey: string) => store.rootKeys.authenticate(presented(rootKey));

  test('create returns one that works, with its permissions in the stored spelling', async () => {
    const permissions = ['--permission', 'apis.*.verify_key', 'api.*.create_key'];
    const created = await json('root-key', 'create', ...workspace, ...permissions, '--name', 'gateway');

    expect(created).toMatchObject({ permissions: ['api.*.verify_key', 'api.*.create_key'] });
    expect(await authenticate(created.rootKey)).toMatchObject({ rootKeyId: created.rootKeyId });
  });

  test('create without --json prints the key once, on a line of its own', async () => {
    const { out } = await run(['root-key', 'create', ...workspace, '--permission', '*']);
    expect(out).toMatch(/^Created root key root_\w+\. It is printed only once:\nroot_\w{16}_\w+\n$/);
  });

  test.each([
    ['2099-12-31', 4_102_358_400_000],
    ['2099-12-31T12:00Z', 4_102_401_600_000],
    ['2099-12-31T12:00:00+02:00', 4_102_394_400_000],
  ])('--expires %s is that time', async (text, expires) => {
    const created = await json('root-key', 'create', ...workspace, '--permission', '*', '--expires', text);
    expect(created.expires).toBe(expires);
  });

  test.each([
    ['15m', 900_000],
    ['12h', 43_200_000],
    ['30d', 2_592_000_000],
  ])('--expires %s is that long from now', async (text, lengthMs) => {
    const beforeMs = Date.now();
    const created = await json('root-key', 'create', ...workspace, '--permission', '*', '--expires', text);
    expect(created.expires).toBeGreaterThanOrEqual(beforeMs + lengthMs);
    expect(created.expires).toBeLessThanOrEqual(Date.now() + lengthMs);
  });

  test('permissions of more than 65,536 bytes in all are refused', async () => {
    const permissions = Array.from({ length: 300 }, (_, index) => [
      '--permission',
      `api.${index}${'x'.repeat(240)}.read_key`,
    ]);
    const { code, out, err } = await run(['root-key', 'create', ...workspace, ...permissions.flat()]);
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toBe('tollgate: --permission: the grants of a root key must not exceed 65536 bytes.\n');
  });

  test.each(['soon', '30', '5w', '2099-12-31T12:00', '2101-01-01', '2020-01-01'])(
    '--expires %s is refused, and no root key is created',
    async (text) => {
      const before = await store.rootKeys.list(workspaceId, { count: 100 });
      const { code, out, err } = await run([
        'root-key',
        'create',
        ...workspace,
        '--permission',
        '*',
        '--expires',
        text,
      ]);
      expect({ code, out }).toEqual({ code: 1, out: '' });
      expect(err).toMatch(/^tollgate: --expires .*\n$/);
      expect(await store.rootKeys.list(workspaceId, { count: 100 })).toEqual(before);
    },
  );

  test('list prints the root keys, never their strings', async () => {
    const created = await json('root-key', 'create', ...workspace, '--permission', '*', '--name', 'listed');
    const { out } = await run(['root-key', 'list', ...workspace]);
    expect(out).toContain(`${created.rootKeyId}  ${created.rootKey.slice(0, 26)}…  enabled  listed  *\n`);
    expect(out).not.toContain(created.rootKey);
    expect(await json('root-key', 'list', ...workspace)).toContainEqual(
      expect.objectContaining({ rootKeyId: created.rootKeyId, name: 'listed', enabled: true, permissions: ['*'] }),
    );
  });

  test('list prints all, beyond the first page', async () => {
    const { workspaceId } = await store.workspaces.create('large');
    for (let i = 0; i < 101; i++) {
      const rootKey = { digest: digestOf(`${i}`), start: 'root_', permissions: ['*'] };
      await store.rootKeys.create(workspaceId, rootKey, cliActor);
    }
    expect(await json('root-key', 'list', '--workspace', workspaceId)).toHaveLength(101);
  });

  test('revoke applies from the next request on', async () => {
    await json('root-key', 'create', ...workspace, '--permission', '*');
    const { rootKeyId, rootKey } = await json('root-key', 'create', ...workspace, '--permission', '*');
    expect(await json('root-key', 'revoke', rootKeyId, ...workspace)).toEqual({ rootKeyId });
    expect(await authenticate(rootKey)).toEqual({ refused: 'unauthorized' });
  });

  test('revoke refuses the last one with every permission', async () => {
    const { workspaceId } = await store.workspaces.create('small');
    const own = ['--workspace', workspaceId];
    const { rootKeyId } = await json('root-key', 'create', ...own, '--permission', '*');
    const { code, err } = await run(['root-key', 'revoke', rootKeyId, ...own]);
    expect({ code, err }).toMatchObject({ code: 1, err: expect.stringContaining('is the last root key') });
    expect(await json('root-key', 'list', ...own)).toHaveLength(1);
  });

  test.each([
    [
      'an unknown workspace',
      ['list', '--workspace', 'ws_nothing'],
      /^tollgate: There is no workspace ws_nothing\..*\n$/,
    ],
    [
      'an unknown permission',
      ['create', '--workspace', 'ws_1', '--permission', 'api.*.fly'],
      /^tollgate: api\.\*\.fly is not .*\n$/,
    ],
    ['a missing option', ['create'], /^error: required option '--permission <grant...>' not specified\n/],
  ])('%s is one line on stderr', async (_, args, line) => {
    const { code, out, err } = await run(['root-key', ...args]);
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toMatch(line);
  });

  test('an unknown root key is one line on stderr', async () => {
    const { code, err } = await run(['root-key', 'revoke', 'root_1111111111111111', ...workspace]);
    expect(code).toBe(1);
    expect(err).toMatch(/^tollgate: There is no root key root_1111111111111111 in ws_\w+\..*\n$/);
  });
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
    expect(out).toMatch(onlyVisible);
    expect(out).toContain(`  enabled  ${escaped}  *\n`);
  });

  test('by an error', async () => {
    const { err } = await run(['root-key', 'list', '--workspace', '\u001b[2J\r\u009b']);
    expect(err).toBe(
      `tollgate: There is no workspace \\u001b[2J\\u000d\\u009b. \`tollgate workspace list\` prints all of them.\n`,
    );
  });
});

test.each([[['workspace', 'list']], [['workspace', 'list', '--json']], [['doctor']], [['workspace', '--help']]])(
  'a reader of %j that closes the pipe causes at most one line of error',
  async (args) => {
    const child = spawnCli(args, { TOLLGATE_DATA_DIR: dataDir });
    child.stdout.destroy();
    let err = '';
    child.stderr.on('data', (text) => (err += text));
    await once(child, 'close');
    expect(err).toMatch(/^(tollgate: The reader of the output has closed it\.\n)?$/);
  },
);

test('a wrong setting is an error that names it', async () => {
  const { code, err } = await run(['workspace', 'list'], { REDIS_URL: 'localhost' });
  expect({ code, err }).toMatchObject({ code: 1, err: expect.stringContaining('REDIS_URL=localhost must be') });
});

test('an unreachable Redis is an error, without a wait', async () => {
  const { code, err } = await run(['workspace', 'list'], { REDIS_URL: 'unix:/nowhere/redis.sock' });
  expect(code).toBe(1);
  expect(err).toMatch(/^tollgate: Cannot reach Redis: .*\n$/);
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
    const { code, err } = await run(args, env);
    expect({ code, err }).toEqual({
      code: 1,
      err: expect.stringContaining(
        `tollgate: There is no data of Tollgate in ${env.TOLLGATE_DATA_DIR}. Start the server`,
      ),
    });
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
    const { code, err } = await run(['root-key', 'list'], env);
    expect(code).toBe(1);
    expect(err).toMatch(
      new RegExp(
        `^tollgate: There are 2 workspaces\\. Name one with --workspace:\\n  ${workspaceId}  one\\n  ws_\\w+  two\\n$`,
      ),
    );
  } finally {
    await embedded.stop();
  }
});
