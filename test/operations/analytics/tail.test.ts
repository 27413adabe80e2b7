import { afterAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import type { Streaming } from '../../../src/operation.ts';
import { dayMs, harness, hourMs, type InputOf, requestTo } from '../../support/harness.ts';

const app = harness();
/** Another server on the same Redis. */
const other = harness();
const leasing = harness(undefined, { leaseMs: 2000, leaseAfter: 2, leaseNowMs: () => performance.now() });
const { ok, call, createKey, createRootKey, createWorkspace } = app;
const limited = { name: 'requests', limit: 1, duration: hourMs, autoApply: true };

type Input = InputOf<'analytics.tail'>;
interface Event {
  event: string;
  data: Record<string, unknown>;
}

const open: Heard[] = [];
afterAll(() => {
  for (const heard of open) heard.stream.stop();
});

class Heard {
  readonly stream: Streaming;
  text = '';
  isEnded = false;

  constructor(stream: Streaming) {
    this.stream = stream;
    stream.start({
      write: (text) => {
        this.text += text;
      },
      end: () => {
        this.isEnded = true;
      },
    });
    open.push(this);
  }

  get events(): Event[] {
    return [...this.text.matchAll(/^event: (\w+)\ndata: ([^\n]*)\n\n/gm)].map(([, event, data]) => ({
      event: event!,
      data: JSON.parse(data!),
    }));
  }

  /** The events, when there are this many. */
  async until(count: number): Promise<Event[]> {
    await expect.poll(() => this.events.length, { timeout: 5000, interval: 20 }).toBeGreaterThanOrEqual(count);
    return this.events;
  }
}

async function listen(input: Input = {}, rootKey = app.rootKey, server = app): Promise<Heard> {
  const response = await server.respond(requestTo('/v2/analytics.tail', rootKey, { body: JSON.stringify(input) }));
  expect(response, response.body).toMatchObject({ status: 200, contentType: 'text/event-stream' });
  return new Heard(response.stream!);
}

const outcomesOf = (events: Event[]) => events.map(({ data }) => data.outcome);

describe('analytics.tail: events', () => {
  test('of a verification and of a limit check have what was decided, and no secret', async () => {
    const heard = await listen();
    const name = 'a "name"\\\n\ndata: {}\u2028';
    const { key, keyId, apiId } = await createKey({
      name,
      meta: { name: 'no' },
      externalId: 'ada',
      ratelimits: [limited],
    });
    const tags = ['eu', 'a "quoted"\n\ndata: {}\u2028'];
    await ok('keys.verifyKey', { key, tags });
    await ok('keys.verifyKey', { key, ratelimits: [{ name: 'own', limit: 1, duration: hourMs, cost: 2 }] });
    await ok('keys.verifyKey', { key: 'unknown' });
    const check = { namespace: 'mails', identifier: 'ada\n\n', limit: 5, duration: hourMs, cost: 2 };
    await ok('ratelimits.limit', check);
    await ok('ratelimits.multiLimit', [{ ...check, cost: 9 }]);
    const events = await heard.until(5);
    const common = { time: app.clock.now, latencyMs: expect.any(Number), source: 'redis', sample: 1 };
    const of = { keyId, name, apiId, externalId: 'ada' };
    expect(events).toEqual([
      { event: 'verification', data: { ...common, ...of, outcome: 'VALID', tags } },
      { event: 'verification', data: { ...common, ...of, outcome: 'RATE_LIMITED', ratelimit: 'requests' } },
      { event: 'verification', data: { ...common, outcome: 'NOT_FOUND' } },
      {
        event: 'ratelimit',
        data: { ...common, namespace: 'mails', identifier: 'ada\n\n', passed: true, limit: 5, remaining: 3, cost: 2 },
      },
      {
        event: 'ratelimit',
        data: { ...common, namespace: 'mails', identifier: 'ada\n\n', passed: false, limit: 5, remaining: 3, cost: 9 },
      },
    ]);
    expect(heard.text).not.toContain(key);
    expect(events[0]!.data.latencyMs).toBeGreaterThan(0);
    heard.stream.stop();
  });

  test('a window that refuses is named before a concurrency limit that does', async () => {
    const heard = await listen({ outcome: 'RATE_LIMITED' });
    const jobs = { name: 'jobs', limit: 1, duration: hourMs, autoApply: true, type: 'concurrency' as const };
    const { key } = await createKey({ ratelimits: [jobs, { ...limited, limit: 5 }] });
    await ok('keys.verifyKey', { key });
    await ok('keys.verifyKey', { key });
    await ok('keys.verifyKey', { key, ratelimits: [{ name: limited.name, cost: 9 }] });
    const events = await heard.until(2);
    expect(events.map(({ data }) => data.ratelimit)).toEqual(['jobs', limited.name]);
    heard.stream.stop();
  });

  test('an ad hoc limit that refuses is named', async () => {
    const heard = await listen({ outcome: 'RATE_LIMITED' });
    const { key } = await createKey();
    await ok('keys.verifyKey', { key, ratelimits: [{ name: 'own', limit: 1, duration: hourMs, cost: 2 }] });
    const [event] = await heard.until(1);
    expect(event!.data.ratelimit).toBe('own');
    // The key has none.
    expect(event!.data).not.toHaveProperty('name');
    heard.stream.stop();
  });

  test('of another workspace are not heard', async () => {
    const theirs = await createWorkspace();
    const heard = await listen({}, theirs.rootKey);
    await ok('keys.verifyKey', { key: 'unknown' });
    await call('keys.verifyKey', { key: 'unknown' }, theirs.rootKey);
    await heard.until(1);
    await new Promise((resolve) => setTimeout(resolve, 250));
    expect(heard.events).toHaveLength(1);
    heard.stream.stop();
  });

  test('of another server are heard, once it has read the registry', async () => {
    const heard = await listen({ outcome: 'NOT_FOUND' });
    await other.store.tail.refresh();
    await other.call('keys.verifyKey', { key: 'unknown' }, app.rootKey);
    await ok('keys.verifyKey', { key: 'unknown' });
    const events = await heard.until(2);
    expect(outcomesOf(events)).toEqual(['NOT_FOUND', 'NOT_FOUND']);
    heard.stream.stop();
    await app.store.tail.refresh();
    await other.store.tail.refresh();
    expect([app.store.tail.isOpen, other.store.tail.isOpen]).toEqual([false, false]);
  });

  test('of leased decisions are heard', async () => {
    const heard = await listen({}, leasing.rootKey, leasing);
    const made = await leasing.createKey();
    await expect
      .poll(
        async () => {
          await leasing.ok('keys.verifyKey', { key: made.key });
          return heard.events.some(({ data }) => data.source === 'lease' && data.keyId === made.keyId);
        },
        { timeout: 10_000, interval: 20 },
      )
      .toBe(true);
    heard.stream.stop();
  });
});
describe('analytics.tail: filters', () => {
  test('apiId, keyId, externalId and outcome select verifications, namespace selects limit checks', async () => {
    const one = await createKey({ externalId: 'one' });
    const two = await createKey({ externalId: 'two', enabled: false });
    const inputs: Input[] = [
      { apiId: one.apiId },
      { keyId: two.keyId },
      { externalId: 'one' },
      { outcome: 'DISABLED' },
      { apiId: one.apiId, outcome: 'DISABLED' },
      { namespace: 'filtered' },
    ];
    const heard = [];
    for (const input of inputs) heard.push(await listen(input));
    for (const { key } of [one, two]) await ok('keys.verifyKey', { key });
    await ok('keys.verifyKey', { key: 'unknown' });
    for (const namespace of ['filtered', 'another'])
      await ok('ratelimits.limit', { namespace, identifier: 'a', limit: 1, duration: 1000 });
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(heard.map(({ events }) => events.map(({ data }) => data.keyId ?? data.namespace))).toEqual([
      [one.keyId],
      [two.keyId],
      [one.keyId],
      [two.keyId],
      [],
      ['filtered'],
    ]);
    for (const { stream } of heard) stream.stop();
  });

  test('of a namespace that is created meanwhile go on, by its name and its id', async () => {
    const heard = await listen({ namespace: 'created' });
    const check = { identifier: 'a', limit: 9, duration: 1000 };
    await ok('ratelimits.limit', { ...check, namespace: 'created' });
    await heard.until(1);
    const { id } = (await ok('ratelimits.listNamespaces', {})).find(({ name }) => name === 'created')!;
    // The root key is checked when another one changes.
    await createRootKey(['api.*.read_key']);
    await expect
      .poll(async () => {
        await ok('ratelimits.limit', { ...check, namespace: id });
        return heard.events.map(({ data }) => data.namespace);
      })
      .toContain(id);
    expect(heard.isEnded).toBe(false);
    heard.stream.stop();
  });

  test('a caller hears the APIs and namespaces of its grants, by any of their names', async () => {
    const mine = await createKey();
    const theirs = await createKey();
    const check = { identifier: 'a', limit: 9, duration: 1000 };
    for (const namespace of ['granted', 'withheld']) await ok('ratelimits.limit', { ...check, namespace });
    const granted = (await app.store.overrides.findNamespace(app.workspaceId, 'granted'))!;
    const rootKey = await createRootKey([`api.${mine.apiId}.read_analytics`, `ratelimit.${granted.id}.read_analytics`]);
    const [all, named, withheld] = [
      await listen({}, rootKey),
      await listen({ namespace: granted.id }, rootKey),
      await listen({ namespace: 'withheld' }, rootKey),
    ];
    for (const key of [mine.key, theirs.key, 'unknown']) await ok('keys.verifyKey', { key });
    for (const namespace of ['granted', granted.id, 'withheld']) await ok('ratelimits.limit', { ...check, namespace });
    await new Promise((resolve) => setTimeout(resolve, 300));
    const heard = (of: Heard) => of.events.map(({ data }) => data.keyId ?? data.namespace);
    expect(heard(all)).toEqual([mine.keyId, 'granted', granted.id]);
    expect(heard(named)).toEqual(['granted', granted.id]);
    expect(heard(withheld)).toEqual([]);
    for (const { stream } of [all, named, withheld]) stream.stop();
    const none = await createRootKey(['api.*.read_analytics']);
    expect(await call('analytics.tail', { namespace: 'granted' }, none)).toMatchObject({ status: 403 });
  });
});

describe('analytics.tail: bounds', () => {
  test('a flood is sampled, each event states how, and a rare outcome with a filter is not lost', async () => {
    const heard = await listen({ outcome: 'VALID' });
    const rare = await listen({ outcome: 'NOT_FOUND' });
    const { key } = await createKey();
    for (let round = 0; round < 40; round++) {
      const verifications = Array.from({ length: 50 }, () => ok('keys.verifyKey', { key }));
      await Promise.all([...verifications, round % 10 === 0 && ok('keys.verifyKey', { key: 'unknown' })]);
    }
    await rare.until(4);
    const samples = heard.events.map(({ data }) => data.sample as number);
    expect(samples[0]).toBe(1);
    expect(Math.max(...samples)).toBeGreaterThan(1);
    expect(samples.length).toBeLessThan(600);
    const sum = samples.reduce((sum, sample) => sum + sample, 0);
    expect(sum).toBeGreaterThan(1000);
    expect(sum).toBeLessThan(3000);
    heard.stream.stop();
    rare.stream.stop();
  });

  test('a workspace has at most ten listeners', async () => {
    const { rootKey } = await createWorkspace();
    const ten = [];
    for (let index = 0; index < 10; index++) ten.push(await listen({}, rootKey, index % 2 ? app : other));
    for (const server of [app, other])
      expect(await server.call('analytics.tail', {}, rootKey)).toMatchObject({
        status: 429,
        code: 'too_many_requests',
      });
    ten[0]!.stream.stop();
    await expect.poll(async () => (await call('analytics.tail', {}, rootKey)).status).toBe(200);
    for (const { stream } of ten) stream.stop();
  });

  test('ten workspaces with as many as they get leave places for others', async () => {
    const heard: Heard[] = [];
    async function opens(rootKey: string, wanted: number) {
      let count = 0;
      for (; count < wanted; count++) {
        const response = await app.respond(requestTo('/v2/analytics.tail', rootKey));
        if (response.status !== 200) break;
        heard.push(new Heard(response.stream!));
      }
      return count;
    }
    const alone = await opens((await createWorkspace()).rootKey, 11);
    expect(alone).toBe(10);
    for (const { stream } of heard.splice(0)) stream.stop();
    const ten = [];
    for (let index = 0; index < 10; index++) ten.push(await opens((await createWorkspace()).rootKey, 10));
    expect(Math.min(...ten)).toBeGreaterThanOrEqual(3);
    for (let index = 0; index < 20; index++) expect(await opens((await createWorkspace()).rootKey, 1)).toBe(1);
    for (const { stream } of heard) stream.stop();
  });

  test('nothing is offered when nobody listens any more', async () => {
    await expect
      .poll(async () => {
        for (const server of [app, other]) await server.store.tail.refresh();
        return [app.store.tail.isOpen, other.store.tail.isOpen];
      })
      .toEqual([false, false]);
  });
});

/** The clock of Redis decides, and leases are asked for no request. */
const real = harness(undefined, { leaseMs: 0, nowMs: () => undefined });

describe('analytics.tail: ends', () => {
  const permissions = ['api.*.read_analytics', 'ratelimit.*.read_analytics'];
  /** It has ended for this reason, and not because a heartbeat has found it. */
  async function hasEnded(heard: Heard, reason: string) {
    await expect.poll(() => heard.isEnded, { timeout: 8000, interval: 10 }).toBe(true);
    expect(heard.events.at(-1)).toEqual({ event: 'end', data: { reason } });
    expect(heard.text).not.toContain(': heartbeat');
  }

  describe.each([
    ['the same server', app],
    ['another server', other],
  ])('at once, when a root key of a listener of %s is', (_where, server) => {
    test.each<[string, (rootKeyId: string) => Promise<unknown>, string]>([
      ['deleted', (rootKeyId) => ok('rootKeys.deleteRootKey', { rootKeyId }), 'unauthorized'],
      ['disabled', (rootKeyId) => ok('rootKeys.updateRootKey', { rootKeyId, enabled: false }), 'root_key_disabled'],
      [
        'narrowed',
        (rootKeyId) => ok('rootKeys.updateRootKey', { rootKeyId, permissions: ['api.*.read_key'] }),
        'grants_changed',
      ],
      [
        'narrowed to an API',
        (rootKeyId) => ok('rootKeys.updateRootKey', { rootKeyId, permissions: ['api.api_1.read_analytics'] }),
        'grants_changed',
      ],
    ])('%s', async (_how, change, reason) => {
      const { rootKeyId, key } = await ok('rootKeys.createRootKey', { permissions });
      const heard = await listen({}, key, server);
      await expect.poll(() => heard.text).toContain(': connected');
      // Both servers decide for it.
      for (const decides of [app, other]) await decides.store.tail.refresh();
      await ok('keys.verifyKey', { key: 'unknown', tags: [`before ${rootKeyId}`] });
      await expect.poll(() => heard.text).toContain(`before ${rootKeyId}`);
      await change(rootKeyId);
      await ok('keys.verifyKey', { key: 'unknown', tags: [`after ${rootKeyId}`] });
      await hasEnded(heard, reason);
      expect(heard.text).not.toContain(`after ${rootKeyId}`);
    });
  });

  test('not when a root key is changed before the stream starts, which sends nothing until then', async () => {
    const { rootKeyId, key } = await ok('rootKeys.createRootKey', { permissions });
    const witness = await listen();
    const response = await app.respond(requestTo('/v2/analytics.tail', key, { body: '{}' }));
    await ok('rootKeys.updateRootKey', { rootKeyId, name: 'another name' });
    // What follows the change on the channel of the workspace has been heard, and so the change was.
    await ok('keys.verifyKey', { key: 'unknown' });
    await witness.until(1);
    const heard = new Heard(response.stream!);
    await expect.poll(() => heard.text).toContain(': connected');
    await ok('keys.verifyKey', { key: 'unknown', tags: ['after the start'] });
    await expect.poll(() => heard.text).toContain('after the start');
    expect(heard.isEnded).toBe(false);
    for (const { stream } of [witness, heard]) stream.stop();
  });

  test('not when another root key is changed, nor its name, and no event is lost', async () => {
    const [mine, another] = [
      await ok('rootKeys.createRootKey', { permissions }),
      await ok('rootKeys.createRootKey', { permissions }),
    ];
    const heard = await listen({ outcome: 'NOT_FOUND' }, mine.key);
    await ok('rootKeys.updateRootKey', { rootKeyId: another.rootKeyId, enabled: false });
    await ok('rootKeys.updateRootKey', { rootKeyId: mine.rootKeyId, name: 'another name' });
    await ok('keys.verifyKey', { key: 'unknown' });
    expect(await heard.until(1)).toMatchObject([{ event: 'verification' }]);
    heard.stream.stop();
  });

  test('when it expires', async () => {
    const { key } = await real.ok('rootKeys.createRootKey', { permissions, expires: Date.now() + 1500 });
    const heard = await listen({}, key, real);
    await hasEnded(heard, 'root_key_expired');
  });

  test('while its root key is checked: no timer is left, which would keep the request in memory', async () => {
    const { key } = await real.ok('rootKeys.createRootKey', { permissions, expires: Date.now() + 20 * dayMs });
    const [set, cleared] = [vi.spyOn(globalThis, 'setTimeout'), vi.spyOn(globalThis, 'clearTimeout')];
    onTestFinished(() => void vi.restoreAllMocks());
    const { stream } = await real.respond(requestTo('/v2/analytics.tail', key, { body: '{}' }));
    stream!.start({ write() {}, end() {} });
    stream!.stop();
    // A request of another root key is answered after the check.
    await real.ok('apis.listApis', {});
    const long = set.mock.results.filter((_, at) => (set.mock.calls[at]![1] ?? 0) > dayMs).map(({ value }) => value);
    const ended = cleared.mock.calls.map(([timer]) => timer);
    expect(long.filter((timer) => !ended.includes(timer))).toEqual([]);
  });

  test('when it was deleted before the stream began', async () => {
    const { rootKeyId, key } = await ok('rootKeys.createRootKey', { permissions });
    const request = requestTo('/v2/analytics.tail', key, { body: '{}' });
    const { stream } = await app.respond(request);
    await ok('rootKeys.deleteRootKey', { rootKeyId });
    await hasEnded(new Heard(stream!), 'unauthorized');
  });

  test.each<[string, object, string]>([
    ['a malformed keyId', { keyId: 'a b' }, 'body.keyId'],
    ['an unknown outcome', { outcome: 'valid' }, 'body.outcome'],
    ['namespace with a filter of verifications', { namespace: 'a', outcome: 'VALID' }, 'body.outcome'],
  ])('400 for %s', async (_title, input, location) => {
    const answer = await call('analytics.tail', input as never);
    expect(answer).toMatchObject({ status: 400, error: { errors: [{ location }] } });
  });
});
