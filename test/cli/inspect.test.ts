// `tollgate inspect` on a redis-server whose commands are monitored.

import { beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { digestOf } from '../../src/domain/keyString.ts';
import { workspaceKey } from '../../src/redis/names.ts';
import { refused, runCli, runCliProcess } from '../support/cli.ts';
import { dayMs, harness } from '../support/harness.ts';
import { monitorOf } from '../support/monitor.ts';
import { ownRedis } from '../support/ownRedis.ts';
import { build } from '../support/processes.ts';

/** A test runs one process or several, on a machine that may be busy. */
beforeAll(build);
const own = ownRedis();

const app = harness(() => own.url);
const { ok, createKey } = app;
// The command uses Redis's clock.
beforeEach(() => {
  app.clock.now = Date.now();
});

function run(key: string, { args = [] as string[], input = '', workspace = app.workspaceId, url = own.url } = {}) {
  return runCli(['inspect', key, '--workspace', workspace, ...args], { REDIS_URL: url }, input);
}

async function json(key: string) {
  const { code, out, err } = await run(key, { args: ['--json'] });
  expect({ code, err }).toEqual({ code: 0, err: '' });
  return JSON.parse(out);
}

const time = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`;
/** Lines in which `<time>` is any time, `<id>` 16 characters of an id and `<n>` a number. */
const linesLike = (lines: readonly string[]) =>
  new RegExp(
    `^${lines
      .join('\n')
      .replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
      .replaceAll('<time>', time)
      .replaceAll('<id>', '\\w{16}')
      .replaceAll('<n>', '\\d+')}\n$`,
  );

const daily = { name: 'daily', limit: 10, duration: dayMs, autoApply: true };
const byRequest = { name: 'request', limit: 1000, duration: dayMs, autoApply: false };

async function usedKey(externalId: string) {
  await ok('identities.createIdentity', { externalId, ratelimits: [{ ...daily, name: 'shared', limit: 2000 }] });
  const created = await createKey({
    externalId,
    name: 'used\u001b[2J',
    meta: { a: 1 },
    credits: { remaining: 1234, refill: { interval: 'monthly', amount: 5000, refillDay: 31 } },
    ratelimits: [daily, byRequest],
  });
  const { key } = created;
  await ok('keys.verifyKey', { key });
  await ok('keys.verifyKey', { key });
  app.clock.advance(5);
  await ok('keys.verifyKey', { key, ratelimits: [{ name: 'adhoc', limit: 7, duration: dayMs, cost: 3 }] });
  await ok('keys.verifyKey', { key, ratelimits: [{ name: 'daily', cost: 8 }] });
  return created;
}

test('a limited key that was used is printed field by field', async () => {
  const { key, keyId, apiId } = await usedKey('user_1');
  const { code, out, err } = await run(keyId);
  expect({ code, err }).toEqual({ code: 0, err: '' });
  expect(out).toMatch(
    linesLike([
      `Key ${keyId} of ${app.workspaceId}`,
      '  as of       <time> by the clock of Redis',
      `  API         ${apiId} test`,
      '',
      'State, <n> bytes',
      '  version     <n>, number <n>',
      '  flags       enabled, limited, refilled',
      '  expires     never',
      '  identity    id_<id> user_1',
      '  balance     1,231 credits',
      '  refill      to 5,000 monthly on day 31, next <time>',
      '  last used   <time>',
      '  usage       not in the history yet: <time>  3 VALID, 1 RATE_LIMITED; 3 credits spent',
      '',
      'Limits of the key',
      '  daily  10 per 86,400,000 ms, autoApply  rl_<id>',
      '    3 counted, 7 remaining, next reset <time>',
      '    window of <n> bytes: kind 1, base <time>, step 1 ms, sum 3',
      '      until <time>  2',
      '      until <time>  1',
      '  request  1,000 per 86,400,000 ms, if the request names it  rl_<id>',
      '    0 counted, 1,000 remaining; empty window',
      '',
      'Identity',
      '  id          id_<id>',
      '  externalId  user_1',
      '  version     <n>, number <n>',
      '',
      'Limits of the identity, shared by its keys',
      '  shared  2,000 per 86,400,000 ms, autoApply  rl_<id>',
      '    3 counted, 1,997 remaining, next reset <time>',
      '    window of 22 bytes: kind 1, base <time>, step 1,350,000 ms, sum 3',
      '      until <time>  3',
      '',
      'Counters next to the key',
      '  adhoc  ad hoc or former limit per 86,400,000 ms, expires in <n>,<n>,<n> ms',
      '    3 counted, next reset <time>',
      '    window of 22 bytes: kind 1, base <time>, step 1 ms, sum 3',
      '      until <time>  3',
      '',
      'Other fields of the record',
      `  start       ${key.slice(0, 4)}`,
      '  name        used\\u001b[2J',
      '  meta        {"a":1}',
      '',
      'Usage history',
      '  log   nothing',
      '  days  nothing',
    ]),
  );
});

test('--json prints what the store returns', async () => {
  const { keyId } = await usedKey('user_2');
  const found = await app.store.keys.inspect(app.workspaceId, { keyId });
  if (found.outcome !== 'found') throw new Error(found.outcome);
  const printed = await json(keyId);
  const { now, counters, ...stored } = JSON.parse(JSON.stringify(found.inspection));
  expect(printed).toMatchObject(stored);
  expect(printed.now).toBeGreaterThanOrEqual(now - 1000);
  expect(printed.counters).toMatchObject({
    count: counters.count,
    counters: [{ name: 'adhoc', window: { counted: 3 } }],
  });
});

/** The commands that Redis receives while `act` runs. */
async function commandsDuring(work: () => Promise<void>): Promise<string[]> {
  const commands: string[] = [];
  const stop = await monitorOf(own.url, (words) => commands.push(words.join(' ')));
  await work();
  stop();
  return commands;
}

test('a key string is read from standard input or the argument, and neither sent nor printed', async () => {
  const { key, keyId } = await createKey({ name: 'secret' });
  const commands = await commandsDuring(async () => {
    for (const outcome of [
      await runCliProcess(['inspect', '-', '--workspace', app.workspaceId], { REDIS_URL: own.url }, `${key}\r\n`),
      await run('-', { input: key }),
      await run('-', { input: keyId }),
      await run(key),
      await run(key, { args: ['--json'] }),
    ]) {
      expect(outcome).toMatchObject({ code: 0, err: '' });
      expect(outcome.out).toContain(keyId);
      expect(outcome.out).not.toContain(key);
    }
    const unknown = await run(`${key}x`);
    expect(unknown).toMatchObject({
      code: 1,
      out: '',
      err: expect.stringMatching(/No key of ws_\w+ has this string\./),
    });
    expect(unknown.err).not.toContain(key);
  });
  expect(commands.some((command) => command.includes(keyId))).toBe(true);
  expect(commands.filter((command) => command.includes(key))).toEqual([]);
});

test('a key that looks like an id is found by its string, and not sent', async () => {
  const { apiId } = await createKey();
  const key = `key_${'Z'.repeat(24)}`;
  await ok('keys.migrateKeys', {
    migrationId: 'elsewhere',
    apiId,
    keys: [{ hash: digestOf(key).toString('base64'), name: 'imported' }],
  });
  const commands = await commandsDuring(async () => {
    expect((await run(key)).out).toContain('  name        imported\n  migration   elsewhere\n');
  });
  expect(commands.some((command) => command.includes(app.workspaceId))).toBe(true);
  expect(commands.filter((command) => command.includes(key))).toEqual([]);
});

test('of an expired key, and one whose identity was deleted', async () => {
  const { keyId } = await createKey({ externalId: 'leaver', expires: Date.now() + 60_000 });
  await ok('keys.updateKey', { keyId, enabled: false });
  await ok('keys.rerollKey', { keyId, expiration: 0 });
  await ok('identities.deleteIdentity', { identity: 'leaver' });
  const { out } = await run(keyId);
  expect(out).toMatch(new RegExp(`\n  flags       not enabled\n  expires     ${time}, expired\n`));
  expect(out).toMatch(/\nIdentity\n {2}id {10}id_\w{16}, deleted\n {2}externalId {2}leaver\n\nOther/);
  await ok('identities.createIdentity', { externalId: 'leaver' });
  expect((await run(keyId)).out).toContain(', deleted; another identity has its externalId now\n');
});

test('of a deleted API', async () => {
  const { keyId, apiId } = await createKey();
  await ok('apis.deleteApi', { apiId });
  expect(await run(keyId)).toMatchObject({
    code: 0,
    out: expect.stringContaining('  API         deleted: every verification is NOT_FOUND\n'),
  });
});

test('of a long log the last hours', async () => {
  const { keyId } = await createKey();
  const hour = Math.floor(Date.UTC(new Date().getUTCFullYear(), new Date().getUTCMonth(), 1) / 3_600_000) - 1;
  const entries = Array.from({ length: 30 }, (_, index) => {
    const entry = Buffer.alloc(10);
    entry.writeUInt32BE(hour - 29 + index, 0);
    entry[4] = 1;
    entry.writeUInt32BE(index + 1, 5);
    return entry;
  });
  await own.redis.set(`${workspaceKey(app.workspaceId)}:uk:${keyId.slice(4)}`, Buffer.concat(entries));
  const { out } = await run(keyId);
  const lines = out.split('\n');
  const at = lines.indexOf('  log   30 hours, 300 bytes');
  expect(lines[at + 1]).toBe('    6 earlier hours omitted: --json prints all');
  expect(lines[at + 2]).toMatch(new RegExp(`^    ${time}  7 VALID; 0 credits spent$`));
  expect(lines[at + 25]).toMatch(new RegExp(`^    ${time}  30 VALID; 0 credits spent$`));
  expect((await json(keyId)).history.log.hours).toHaveLength(30);
});

test('a record that cannot be decoded is printed as hex with the field, and the exit code is 1', async () => {
  const { key, keyId } = await createKey({ name: 'damaged' });
  const record = Buffer.concat([Buffer.from(`${workspaceKey(app.workspaceId)}:k:`), digestOf(key)]);
  const state = (await own.redis.hgetBuffer(record, 'state'))!.subarray(0, 40);
  await own.redis.hset(record, 'state', state);
  const { code, out, err } = await run(keyId);
  expect({ code, err }).toEqual({ code: 1, err: '' });
  expect(out).toContain(
    `\nState, 40 bytes\n  cannot be decoded: field refillAmount at byte 39 of 40 does not fit\n  ${state.toString('hex')}\n`,
  );
  expect(out).toContain('\n  name        damaged\n');
  const printed = await run(key, { args: ['--json'] });
  expect(printed.code).toBe(1);
  expect(JSON.parse(printed.out)).toMatchObject({
    fault: { field: 'refillAmount', offset: 39, bytes: 40, hex: state.toString('hex') },
  });
  expect((await run(key)).out).toMatch(/^Key \(id not readable\) of ws_/);
});

test('a damaged window, and a damaged state of an identity', async () => {
  const { key, keyId } = await usedKey('damaged');
  const record = `${workspaceKey(app.workspaceId)}:i:damaged`;
  const state = (await own.redis.hgetBuffer(record, 'state'))!;
  await own.redis.hset(record, 'state', state.subarray(0, 20));
  const identity = await run(keyId);
  expect(identity.code).toBe(1);
  expect(identity.out).toContain('  state\n  cannot be decoded: field identity at byte 0 of 20 does not fit\n  ');
  // Its window has 22 bytes, which its length of 2 bytes follows.
  state[state.length - 24] = 9;
  await own.redis.hset(record, 'state', state);
  const window = await run(keyId);
  expect(window.code).toBe(1);
  expect(window.out).toContain('    window\n    cannot be decoded: field kind at byte 0 of 22 does not fit\n    09');
  await own.redis.set(`${workspaceKey(app.workspaceId)}:w:${keyId.slice(4)}:${dayMs}:adhoc`, Buffer.of(9));
  await ok('identities.deleteIdentity', { identity: 'damaged' });
  const counter = await run(key);
  expect(counter.code).toBe(1);
  expect(counter.out).toContain('    cannot be decoded: field kind at byte 0 of 1 does not fit\n    09\n');
});

describe('an error in one line', () => {
  const id = `key_${'2'.repeat(24)}`;

  test.each([
    ['an unknown id', id, {}, /^ws_\w+ has no key with this id, and none was deleted within the usage retention\. /],
    ['an unknown key', 'abc_defg', {}, /^No key of ws_\w+ has this string\. /],
    ['a malformed id', 'key_12', {}, /^This is not a key id, which is key_ and 24 letters and digits, and no key of /],
    ['a root key', 'root_1pAKSSJpyfjsR6px_GmXZ7mc98moN52x8cr1EdJ52mBCB', {}, /^This is a root key\. /],
    ['no key', '', {}, /^The key is empty\.$/],
    ['an empty input', '-', {}, /^The key is empty\.$/],
    ['an input of two lines', '-', { input: 'a\nb\n' }, /^Standard input must have one line: /],
    ['an input that is too long', '-', { input: 'a'.repeat(100_000) }, /^Standard input must have one line: /],
    ['an unknown workspace', id, { workspace: 'ws_x' }, /^There is no workspace ws_x\. /],
    ['a Redis that is away', id, { url: 'unix:/nowhere/redis.sock' }, /^Cannot reach Redis: /],
  ])('%s', async (_, key, options, message) => {
    const { code, out, err } = await run(key, options);
    expect(out).toBe('');
    expect([1, 3, 4]).toContain(code);
    expect(err).toMatch(/^tollgate: .*\n$/);
    expect(err.slice('tollgate: '.length, -1)).toMatch(message);
  });

  test('a key of another workspace', async () => {
    const { key, keyId } = await createKey();
    const { workspaceId } = await app.createWorkspace();
    for (const wanted of [key, keyId]) {
      await refused(run(wanted, { workspace: workspaceId }), `${workspaceId} has `);
    }
  });

  test('a deleted key', async () => {
    const { key, keyId } = await createKey();
    await ok('keys.deleteKey', { keyId });
    const deleted = `tollgate: ${keyId} was deleted in the hour from ${time}.`;
    expect((await run(keyId)).err).toMatch(new RegExp(`^${deleted}\n$`));
    await refused(run(key), new RegExp(`^${deleted} Its record is removed after ${time}\\.\n$`));
  });

  test('no workspace, where there are two', async () => {
    await refused(runCli(['inspect', id], { REDIS_URL: own.url }), 'Name one with --workspace:');
  });
});

test('its help describes how to keep a key out of the process list', async () => {
  const { out } = await runCli(['inspect', '--help'], {});
  expect(out.replace(/\s+/g, ' ')).toContain(
    '- reads it from standard input, so that no process list or history has it',
  );
});
