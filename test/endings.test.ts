// Root keys that end: what is listed, watched, logged and checked.

import { pino } from 'pino';
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { dayMs, hourMs } from '../src/domain/time.ts';
import { checkRootKeys, openGatewayRootKey, watchRootKeys } from '../src/endings.ts';
import { openStore } from '../src/store.ts';
import { harness, testSettings } from './support/harness.ts';
import { ownRedis } from './support/ownRedis.ts';
import { openRedisProcess } from './support/processes.ts';
import { thoroughTest } from './support/testIf.ts';

const own = ownRedis();
const tollgate = harness(() => own.url);
const { call, clock, createWorkspace } = tollgate;
const minute = 60_000;
const waiting = { timeout: 30_000, interval: 20 };

// What another test made has ended long ago.
beforeEach(() => clock.advance(30 * dayMs));

interface Made {
  rootKeyId: string;
  key: string;
}

async function create(rootKey: string, expires: number | undefined, more: { name?: string } = {}): Promise<Made> {
  const input = { permissions: ['api.*.verify_key'], ...(expires !== undefined && { expires }), ...more };
  return (await call('rootKeys.createRootKey', input, rootKey)).data;
}

const use = ({ key }: Made) => call('keys.verifyKey', { key: 'unknown' }, key);
const endingOf = async (rootKey: string, input: { limit?: number; cursor?: string } = {}) =>
  call('rootKeys.listRootKeys', { ending: true, ...input }, rootKey);

/** A watch that looks every 20 ms, with its log. */
function watch(rootKey = '', store = tollgate.store) {
  const lines: { level: string; msg: string; check?: string }[] = [];
  const formatters = { level: (level: string) => ({ level }) };
  const log = pino({ level: 'warn', formatters }, { write: (line: string) => lines.push(JSON.parse(line)) });
  const watching = watchRootKeys({ store, gateway: openGatewayRootKey(store, rootKey), log, intervalMs: 20 });
  onTestFinished(() => watching.stop());
  return { ...watching, lines };
}

describe('rootKeys.listRootKeys with `ending`', () => {
  test('lists those in use that end, and those that ended in use, of the workspace only', async () => {
    const { rootKey } = await createWorkspace();
    const theirs = await createWorkspace();
    const ended = await create(rootKey, clock.now + hourMs);
    const replaced = await create(rootKey, clock.now + hourMs);
    const soon = await create(rootKey, clock.now + 3 * dayMs);
    const unused = await create(rootKey, clock.now + 3 * dayMs);
    const late = await create(rootKey, clock.now + 20 * dayMs);
    const other = await create(theirs.rootKey, clock.now + 3 * dayMs);
    for (const made of [replaced, soon, late, other]) await use(made);
    clock.advance(55 * minute);
    await use(ended);
    clock.advance(dayMs / 2);
    const { data } = await endingOf(rootKey);
    expect(data.map(({ rootKeyId }) => rootKeyId)).toEqual([ended.rootKeyId, soon.rootKeyId]);
    // A call with a root key that has ended is no use of it.
    expect((await use(ended)).code).toBe('root_key_expired');
    clock.advance(dayMs / 2 + hourMs);
    expect((await endingOf(rootKey)).data.map(({ rootKeyId }) => rootKeyId)).toEqual([soon.rootKeyId]);
    expect((await call('rootKeys.listRootKeys', {}, rootKey)).data).toHaveLength(6);
    expect(unused.rootKeyId).toBeDefined();
  });

  test('of 1,100 root keys a request reads 1,000, and pages have each once', async () => {
    const { rootKey } = await createWorkspace();
    for (let hundred = 0; hundred < 11; hundred++) {
      const expires = hundred === 10 ? clock.now + dayMs : undefined;
      await Promise.all(Array.from({ length: 97 }, () => create(rootKey, undefined)));
      for (let number = 0; number < 3; number++) await use(await create(rootKey, expires));
    }
    const pages: string[][] = [];
    let cursor: string | undefined;
    do {
      const { data, pagination } = await endingOf(rootKey, { limit: 2, ...(cursor && { cursor }) });
      pages.push(data.map(({ rootKeyId }) => rootKeyId));
      cursor = pagination.cursor;
    } while (cursor !== undefined);
    expect(pages.map(({ length }) => length)).toEqual([0, 2, 1]);
    expect(new Set(pages.flat()).size).toBe(3);
  }, 120_000);
});

describe('the watch', () => {
  test('reports the first end by use, of all workspaces, and logs it once with ids and names', async () => {
    const made: Made[] = [];
    for (let number = 0; number < 3; number++) {
      const { rootKey } = await createWorkspace();
      made.push(await create(rootKey, clock.now + (3 - number) * dayMs, { name: `server ${number}` }));
    }
    const ofJobs = await create(tollgate.rootKey, clock.now + 2 * dayMs);
    await use(ofJobs);
    clock.advance(hourMs);
    for (const one of made) await use(one);
    const { first, lines } = watch();
    await vi.waitFor(
      () => expect(first()).toEqual({ callers: clock.now - hourMs + dayMs, jobs: clock.now - hourMs + 2 * dayMs }),
      waiting,
    );
    await vi.waitFor(() => expect(lines).toHaveLength(1), waiting);
    const { level, msg } = lines[0]!;
    expect(level).toBe('warn');
    expect(msg).toContain(`in use: ${made[2]!.rootKeyId} (server 2) of ws_`);
    expect(msg).toMatch(/ends 20\d\d-/);
    expect(msg).toContain('in 23 hours');
    for (const { rootKeyId, key } of made) {
      expect(msg).toContain(rootKeyId);
      expect(msg).not.toContain(key);
    }
    // Later looks do not log again on the same day.
    clock.advance(4 * dayMs);
    await vi.waitFor(() => expect(first()).toEqual({}), waiting);
    expect(lines).toHaveLength(1);
  });

  test('a workspace that cannot be read keeps what was found, and delays no other', async () => {
    const broken = await createWorkspace();
    const expires = clock.now + dayMs;
    await use(await create(broken.rootKey, expires));
    const { first, lines } = watch();
    await vi.waitFor(() => expect(first().callers).toBe(expires), waiting);
    const list = `tg:{${broken.workspaceId}}:rks`;
    await own.redis.rename(list, `${list}.kept`);
    await own.redis.set(list, 'no list');
    const later = await createWorkspace();
    await use(await create(later.rootKey, expires - hourMs));
    await vi.waitFor(() => expect(first().callers).toBe(expires - hourMs), waiting);
    expect(lines.some(({ msg }) => msg.startsWith('Cannot check which root keys end.'))).toBe(true);
    await call(
      'rootKeys.deleteRootKey',
      { rootKeyId: (await endingOf(later.rootKey)).data[0]!.rootKeyId },
      later.rootKey,
    );
    await vi.waitFor(() => expect(first().callers).toBe(expires), waiting);
    await own.redis.rename(`${list}.kept`, list);
  });

  thoroughTest('while Redis is away it keeps what it found, and continues afterwards', async () => {
    const redis = await openRedisProcess();
    const settings = { ...testSettings, commandTimeoutMs: 3000, url: redis.url, nowMs: () => clock.now };
    const store = await openStore(settings);
    onTestFinished(async () => {
      redis.signal('SIGCONT');
      await store.close();
      await redis.close();
    });
    const { rootKey } = (await store.workspaces.createFirst('first'))!;
    const { state, read } = openGatewayRootKey(store, rootKey)!;
    expect(await state()).toBe('accepted');
    const { first, lines } = watch(rootKey, store);
    redis.signal('SIGSTOP');
    await vi.waitFor(() => expect(lines.length).toBeGreaterThan(0), waiting);
    expect(lines[0]!.msg).toMatch(/^Cannot check which root keys end\./);
    await vi.waitFor(async () => expect(await state()).toBe('unknown'), waiting);
    redis.signal('SIGCONT');
    await vi.waitFor(async () => expect((await read()).state).toBe('accepted'), waiting);
    expect(first()).toEqual({});
  });
});

describe('GATEWAY_ROOT_KEY', () => {
  test('each state, without recording a use', async () => {
    const { rootKey } = await createWorkspace();
    const { rootKeyId, key } = await create(rootKey, clock.now + 20 * dayMs);
    const finding = () => openGatewayRootKey(tollgate.store, key)!.finding();
    const update = (changes: object) => call('rootKeys.updateRootKey', { rootKeyId, ...changes }, rootKey);
    expect(openGatewayRootKey(tollgate.store, '')).toBeUndefined();
    expect(await finding()).toMatchObject({
      status: 'ok',
      found: expect.stringMatching(/^ends 20\d\d-\d\d-\d\d \d\d:\d\d UTC, in 20 days$/),
    });
    await update({ expires: null });
    expect(await finding()).toMatchObject({ status: 'ok', found: 'accepted, does not end' });
    await update({ permissions: ['api.*.read_key'] });
    expect(await finding()).toMatchObject({ status: 'fault', found: 'lacks the grant api.*.verify_key' });
    await update({ permissions: ['api.api_one.verify_key'], expires: clock.now + hourMs });
    expect(await finding()).toMatchObject({ status: 'warning', found: expect.stringMatching(/^ends .*, in 1 hour$/) });
    await update({ enabled: false });
    expect(await finding()).toMatchObject({ status: 'fault', found: 'is disabled' });
    await update({ enabled: true });
    clock.advance(3 * hourMs);
    expect(await finding()).toMatchObject({ status: 'fault', found: expect.stringMatching(/^ended .*, 2 hours ago$/) });
    expect(await openGatewayRootKey(tollgate.store, key)!.state()).toBe('root_key_expired');
    const listed = (await call('rootKeys.listRootKeys', {}, rootKey)).data.find((one) => one.rootKeyId === rootKeyId);
    expect(listed!.lastUsedAt).toBeUndefined();
    await call('rootKeys.deleteRootKey', { rootKeyId }, rootKey);
    expect(await finding()).toMatchObject({ status: 'fault', found: expect.stringMatching(/^no such root key/) });
    const findings = await checkRootKeys(tollgate.store, key);
    expect(findings.map(({ check, status }) => [check, status])).toContainEqual(['GATEWAY_ROOT_KEY', 'fault']);
    expect(JSON.stringify(findings)).not.toContain(key);
  });

  test('what ends is logged as an error once it has ended', async () => {
    const { rootKey } = await createWorkspace();
    const { key } = await create(rootKey, clock.now + minute);
    clock.advance(2 * minute);
    const { first, lines } = watch(key);
    await vi.waitFor(() => expect(lines.some(({ check }) => check === 'GATEWAY_ROOT_KEY')).toBe(true), waiting);
    expect(lines.find(({ check }) => check === 'GATEWAY_ROOT_KEY')).toMatchObject({ level: 'error' });
    expect(first().gateway).toBe(clock.now - minute);
  });
});
