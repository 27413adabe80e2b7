// Commands that change many keys, `find`, exit codes, and errors as JSON.

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { refused, runCli, runCliProcess, spawnCli } from '../support/cli.ts';
import { cellsOf, describeWays, served } from '../support/cliWays.ts';
import { dayMs, harness } from '../support/harness.ts';
import { build } from '../support/processes.ts';
import { freePort } from '../support/redisNodes.ts';

const app = harness();
const url = served(app);
const unknown = `key_${'1'.repeat(24)}`;

async function makeKeys(count: number) {
  const { apiId } = await app.ok('apis.createApi', { name: 'bulk' });
  const keyIds: string[] = [];
  for (let index = 0; index < count; index++) keyIds.push((await app.ok('keys.createKey', { apiId })).keyId);
  return { apiId, keyIds };
}
const stateOf = async (keyId: string) => (await app.call('keys.getKey', { keyId })).data;

describeWays(app, url, ({ run, lines, json }, way) => {
  test('keys are disabled, enabled, deleted and restored together', async () => {
    const { apiId, keyIds } = await makeKeys(3);
    await app.ok('keys.updateKey', { keyId: keyIds[1]!, enabled: false });
    expect(await lines('key', 'disable', ...keyIds)).toEqual([
      `Disabled ${keyIds[0]}.`,
      `Disabled ${keyIds[2]}.`,
      `${keyIds[1]} is unchanged: it was so before.`,
    ]);
    expect(await json('key', 'enable', ...keyIds)).toEqual({
      changed: keyIds.map((keyId) => ({ keyId, before: { enabled: false }, after: { enabled: true } })),
      unchanged: [],
      failed: [],
    });
    expect(await lines('key', 'delete', ...keyIds)).toEqual(keyIds.map((keyId) => `Deleted ${keyId}.`));
    expect(await app.ok('apis.listKeys', { apiId })).toEqual([]);
    expect(await lines('key', 'restore', ...keyIds)).toEqual(keyIds.map((keyId) => `Restored ${keyId}.`));
    expect(await app.ok('apis.listKeys', { apiId })).toHaveLength(3);
    const events = await app.ok('audit.listEvents', { operation: 'keys.changeKeys', order: 'desc', limit: 4 });
    expect(events.map(({ changes }) => changes?.[0]?.keyIds?.length)).toEqual([3, 3, 3, 2]);
    expect((await lines('audit', '--operation', 'keys.changeKeys', '--limit', '1'))[1]).toMatch(
      /deleted: true → false \(3 keys\)$/,
    );
  });

  test('keys get an expiry and a plan, which are the last argument', async () => {
    const { keyIds } = await makeKeys(2);
    const planId = `bulk-${way.replace(' ', '')}`;
    await app.ok('plans.createPlan', { planId });
    expect(await lines('key', 'plan', ...keyIds, planId)).toEqual(keyIds.map((id) => `${id} has the plan ${planId}.`));
    expect(await lines('key', 'plan', ...keyIds, 'none')).toEqual(keyIds.map((id) => `${id} has no plan.`));
    const [line] = await lines('key', 'expire', ...keyIds, '30d');
    expect(line).toMatch(new RegExp(`^${keyIds[0]} expires 20\\d\\d-\\S+\\.$`));
    const { expires } = await stateOf(keyIds[1]!);
    expect(Math.abs(expires! - Date.now() - 30 * dayMs)).toBeLessThan(60_000);
    expect(await lines('key', 'expire', ...keyIds, 'none')).toEqual(keyIds.map((id) => `${id} does not expire.`));
    expect(await stateOf(keyIds[1]!)).not.toHaveProperty('expires');
    for (const args of [
      ['expire', keyIds[0]!],
      ['plan', keyIds[0]!],
    ]) {
      const { code, err } = await run(['key', ...args]);
      expect([code, err]).toEqual([2, expect.stringMatching(/^error: missing required argument '(when|planId)'\n/)]);
    }
    for (const when of ['soon', '2020-01-01', '30'])
      expect(await run(['key', 'expire', keyIds[0]!, when])).toMatchObject({ code: 2, out: '' });
    expect(await run(['key', 'plan', keyIds[0]!, 'nowhere'])).toMatchObject({
      code: 3,
      err: 'tollgate: There is no plan "nowhere".\n',
    });
  });

  test('ids come from standard input, each once, in steps of a hundred', async () => {
    const { keyIds } = await makeKeys(120);
    const input = `${keyIds.join('\n')}\n ${keyIds[0]} \r\n`;
    const { code, out, err } = await run(['key', 'disable', '-'], input);
    expect({ code, err }).toEqual({ code: 0, err: '' });
    expect(out.trimEnd().split('\n')).toEqual(keyIds.map((keyId) => `Disabled ${keyId}.`));
    const { code: again, out: printed } = await run(['key', 'enable', keyIds[0]!, '-'], keyIds[1]);
    expect([again, printed]).toEqual([0, `Enabled ${keyIds[0]}.\nEnabled ${keyIds[1]}.\n`]);
    for (const [bad, message] of [
      ['', 'tollgate: Standard input has no ids of keys.\n'],
      ['pay_secret', /^tollgate: Line 1 of standard input is not the id of a key/],
      ['key_1 '.repeat(200_000), /^tollgate: Standard input is too long\./],
    ] as const) {
      const outcome = run(['key', 'disable', '-'], bad);
      await refused(outcome, message);
      expect((await outcome).code).toBe(2);
      expect((await outcome).err).not.toContain('secret');
    }
  });

  test('a word that is not an id is refused before anything is changed', async () => {
    const { keyIds } = await makeKeys(101);
    const wrong = 'is not the id of a key, which is key_ and 24 letters and digits';
    const hint = '`tollgate key find` prints ids.';
    for (const [args, input, message] of [
      [['-'], `${keyIds.join('\n')}\n\nkey_prod_eu\n`, `Line 103 of standard input ${wrong}: key_prod…. ${hint}`],
      [['-'], `${keyIds[0]}\nkey_7sEcReTsEcReTsEcReTsEcReTs`, `Line 2 of standard input ${wrong}: key_7sEc…. ${hint}`],
      [[...keyIds, '-', 'pay_secret'], keyIds[0], `Argument 103 ${wrong}. ${hint}`],
      [[keyIds[0]!, 'key_prod'], '', `Argument 2 ${wrong}: key_prod…. ${hint}`],
    ] as const)
      expect(await run(['key', 'disable', ...args], input)).toEqual({
        code: 2,
        out: '',
        err: `tollgate: ${message}\n`,
      });
    expect(await stateOf(keyIds[0]!)).toMatchObject({ enabled: true });
  });

  test('of several keys some are changed, and the exit code says that others were not', async () => {
    const { keyIds } = await makeKeys(1);
    const { code, out, err } = await run(['key', 'disable', unknown, ...keyIds]);
    expect({ code, out, err }).toEqual({
      code: 3,
      out: `Disabled ${keyIds[0]}.\n`,
      err: `tollgate: ${unknown}: There is no such key.\n`,
    });
    expect(await run(['key', 'disable', unknown])).toEqual({
      code: 3,
      out: '',
      err: 'tollgate: There is no such key.\n',
    });
    const asJson = await run(['key', 'disable', unknown, ...keyIds, '--json']);
    expect(JSON.parse(asJson.out)).toMatchObject({ unchanged: keyIds, failed: [{ keyId: unknown }] });
    expect(JSON.parse(asJson.err)).toEqual({
      error: { message: `${unknown}: There is no such key.`, code: 'key_not_found', status: 404, exitCode: 3 },
    });
  });

  test('--permanent takes one key, and its name', async () => {
    const { keyIds } = await makeKeys(2);
    const { code, err } = await run(['key', 'delete', ...keyIds, '--permanent', '--confirm', 'a']);
    expect([code, err]).toEqual([2, 'tollgate: --permanent takes one key at a time.\n']);
    await refused(
      run(['key', 'delete', keyIds[0]!, '--permanent']),
      `tollgate: This deletes ${keyIds[0]}. To confirm it, add --confirm "${keyIds[0]}".\n`,
    );
    expect(await lines('key', 'delete', keyIds[0]!, '--permanent', '--confirm', keyIds[0]!)).toEqual([
      `Deleted ${keyIds[0]}.`,
    ]);
    expect(await run(['key', 'restore', keyIds[0]!])).toMatchObject({ code: 3 });
  });

  test('find prints what a text is', async () => {
    const name = `found ${way}`;
    const { apiId } = await app.ok('apis.createApi', { name });
    const { keyId, key } = await app.ok('keys.createKey', { apiId, prefix: 'fnd', externalId: `of.${apiId}` });
    const [heading, row, ...others] = await lines('find', keyId);
    expect(heading).toMatch(/^KIND +ID +NAME +KEY +CUSTOMER +API$/);
    expect(cellsOf(row!)).toEqual(['key', keyId, expect.stringMatching(/^fnd_/), `of.${apiId}`, apiId]);
    expect(others).toEqual([]);
    expect(await json('find', name)).toEqual([{ kind: 'api', id: apiId, name, exact: true }]);
    const whole = await run(['find', '-', '--json'], `${key}\n`);
    expect(JSON.parse(whole.out)).toMatchObject([{ kind: 'key', id: keyId, exact: true }]);
    expect(whole.out).not.toContain(key);
    await app.ok('keys.deleteKey', { keyId });
    expect(cellsOf((await lines('find', keyId))[1]!).slice(0, 2)).toEqual(['key, deleted', keyId]);
    expect(await lines('find', 'nothing like this')).toEqual(['Nothing found.']);
    expect(await run(['find', ''])).toMatchObject({
      code: 2,
      err: expect.stringContaining('<text> must have at least'),
    });
  });
});

describe('a change in steps', () => {
  beforeAll(build);

  /** The server behind a proxy. Before a response it calls `answering`, and without its true the connection is lost. */
  async function behind(answering: (step: number, path: string) => Promise<boolean>) {
    let step = 0;
    const proxy = createServer(async (request, response) => {
      const body = Buffer.concat(await request.toArray());
      const headers = { Authorization: request.headers.authorization!, 'Content-Type': 'application/json' };
      const answered = await fetch(`${url()}${request.url}`, { method: 'POST', headers, body });
      const text = await answered.text();
      step += 1;
      if (!(await answering(step, request.url!))) return request.socket.destroy();
      response.writeHead(answered.status, { 'Content-Type': 'application/json' }).end(text);
    });
    await once(proxy.listen(0, '127.0.0.1'), 'listening');
    onTestFinished(() => void proxy.close());
    const address = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
    return { TOLLGATE_URL: address, TOLLGATE_ROOT_KEY: app.rootKey };
  }

  test('what is done, what failed and what is unknown is printed when a later step fails', async () => {
    const { keyIds } = await makeKeys(250);
    const ids = [unknown, ...keyIds];
    const env = async () => behind(async (step) => step === 1);
    const { code, out, err } = await runCliProcess(['key', 'disable', '-'], await env(), ids.join('\n'));
    expect({ code, out: out.trimEnd().split('\n') }).toEqual({
      code: 4,
      out: keyIds.slice(0, 99).map((keyId) => `Disabled ${keyId}.`),
    });
    expect(err.trimEnd().split('\n')).toEqual([
      `tollgate: ${unknown}: There is no such key.`,
      ...keyIds.slice(99, 199).map((keyId) => `${keyId}: It may have been changed.`),
      expect.stringMatching(/^The server at TOLLGATE_URL cannot be reached: /),
      `The 51 ids after ${keyIds[198]} were not tried.`,
    ]);
    expect(await stateOf(keyIds[198]!)).toMatchObject({ enabled: false });
    expect(await stateOf(keyIds[199]!)).toMatchObject({ enabled: true });

    const asJson = await runCliProcess(['key', 'enable', '-', '--json'], await env(), ids.join('\n'));
    const { changed, failed } = JSON.parse(asJson.out);
    expect([changed.length, failed.length, failed[100]]).toEqual([
      99,
      101,
      { keyId: keyIds[198], code: 'unknown', message: 'It may have been changed.' },
    ]);
    expect(JSON.parse(asJson.err)).toMatchObject({ error: { status: 503, exitCode: 4 } });
  });

  test('a limit of a key of an identity may have been changed, too', async () => {
    const { apiId } = await app.ok('apis.createApi', { name: 'lost' });
    const requests = { name: 'requests', limit: 100, duration: 60_000 };
    await app.ok('identities.createIdentity', { externalId: 'lost', ratelimits: [requests] });
    const { keyId } = await app.ok('keys.createKey', { apiId, externalId: 'lost', ratelimits: [requests] });
    const env = await behind(async (_step, path) => path !== '/v2/keys.updateKey');
    const { code, out } = await runCli(['identity', 'limit', 'lost', 'requests', '20', '--keys'], env);
    expect([code, out]).toEqual([1, expect.stringContaining(`\n${keyId} may have been changed: The server at `)]);
    expect((await stateOf(keyId)).ratelimits).toMatchObject([{ limit: 20 }]);
  });

  test('a server that gets no request has changed nothing', async () => {
    const env = { TOLLGATE_URL: `http://127.0.0.1:${await freePort()}`, TOLLGATE_ROOT_KEY: app.rootKey };
    const { code, err } = await runCli(['key', 'disable', unknown], env);
    expect([code, err]).toEqual([
      4,
      expect.stringMatching(/^tollgate: The server at TOLLGATE_URL cannot be reached: .*\n$/),
    ]);
  });

  test('each step is printed when it is answered, and a closed output hides no failure', async () => {
    const { keyIds } = await makeKeys(150);
    let printed = '';
    const env = await behind(async (step) => {
      if (step === 2) {
        await vi.waitFor(() => expect(printed).toContain(keyIds[99]!));
        await once(child.stdout.destroy(), 'close');
      }
      return true;
    });
    const child = spawnCli(['key', 'disable', '-'], env);
    let err = '';
    child.stdout.on('data', (text) => (printed += text));
    child.stderr.on('data', (text) => (err += text));
    child.stdin.end([...keyIds.slice(0, 100), unknown, ...keyIds.slice(100)].join('\n'));
    const [code] = await once(child, 'close');
    expect(printed).toBe(
      keyIds
        .slice(0, 100)
        .map((keyId) => `Disabled ${keyId}.\n`)
        .join(''),
    );
    expect([code, err]).toEqual([3, `tollgate: ${unknown}: There is no such key.\n`]);
    expect(await stateOf(keyIds[149]!)).toMatchObject({ enabled: false });
  });
});

describe('exit codes', () => {
  const env = (more: Record<string, string> = {}) => ({ TOLLGATE_URL: url(), TOLLGATE_ROOT_KEY: app.rootKey, ...more });

  test.each<[string, number, string[], (() => Promise<Record<string, string>>)?]>([
    ['help', 0, ['key', '--help']],
    ['an unknown command', 2, ['nothing']],
    ['an unknown option', 2, ['key', 'list', '--nothing']],
    ['a missing argument', 2, ['key', 'get']],
    ['an argument that cannot be read', 2, ['key', 'list', '--unused', 'soon']],
    ['an argument that the server refuses', 2, ['api', 'create', 'a']],
    ['an unknown shell', 2, ['completion', 'csh']],
    ['a record that is not there', 3, ['key', 'get', unknown]],
    [
      'no grant',
      4,
      ['api', 'list'],
      async () => ({ TOLLGATE_ROOT_KEY: await app.createRootKey(['api.*.verify_key']) }),
    ],
    ['a wrong root key', 4, ['api', 'list'], async () => ({ TOLLGATE_ROOT_KEY: 'root_1111111111111111_1' })],
    ['no server', 4, ['api', 'list'], async () => ({ TOLLGATE_URL: 'http://127.0.0.1:1' })],
    ['no Redis', 4, ['api', 'list'], async () => ({ TOLLGATE_URL: '', REDIS_URL: 'unix:/nowhere/redis.sock' })],
    ['a setting that is missing', 1, ['api', 'list'], async () => ({ TOLLGATE_ROOT_KEY: '' })],
  ])('%s: %i', async (_what, expected, args, more = async () => ({})) => {
    const { code, err } = await runCli(args, env(await more()));
    expect(code, err).toBe(expected);
    if (expected === 0) return;
    const asJson = await runCli([...args, '--json'], env(await more()));
    expect({ code: asJson.code, out: asJson.out }).toEqual({ code: expected, out: '' });
    expect(JSON.parse(asJson.err)).toMatchObject({ error: { message: expect.any(String), exitCode: expected } });
    expect(asJson.err.trimEnd()).not.toContain('\n');
  });
});
