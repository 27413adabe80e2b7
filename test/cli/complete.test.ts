// A complete export, and its import into an empty Redis: every read operation responds as before. The two have a Redis
// each. The command line uses Redis's clock, so the records are made in the past and read now.

import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { createId } from '../../src/domain/keyString.ts';
import { createPipeline } from '../../src/http/pipeline.ts';
import { operations } from '../../src/operations/index.ts';
import { cliActor } from '../../src/records/rootKeys.ts';
import { connect } from '../../src/redis/connection.ts';
import { type EmbeddedRedis, startEmbedded } from '../../src/redis/embedded.ts';
import { workspacesKey } from '../../src/redis/names.ts';
import { openStore, type Store } from '../../src/store.ts';
import { refused, runCli, spawnCli } from '../support/cli.ts';
import { type Call, everyRead, type Read } from '../support/everyRead.ts';
import { makeThings, type Things } from '../support/examples.ts';
import {
  dayMs,
  harness,
  hourMs,
  jsonOf,
  logOfCauses,
  type OutputOf,
  requestTo,
  testSettings,
} from '../support/harness.ts';
import { jsonLinesOf, textOf } from '../support/jsonLines.ts';
import { namesIn } from '../support/keyspace.ts';
import { dirOfFile } from '../support/ofFile.ts';
import { build, cliFile } from '../support/processes.ts';
import { isThorough, thorough, thoroughTest } from '../support/testIf.ts';

vi.setConfig({ testTimeout: 120_000, hookTimeout: 240_000 });

const dir = dirOfFile();
let source: EmbeddedRedis;
let count = 0;

beforeAll(async () => {
  source = await startEmbedded({ dataDir: join(dir, 'source') });
  build();
});
afterAll(() => source.stop());

const tollgate = harness(() => source.url);
const { clock, ok } = tollgate;
/** The end of the test, on Redis's clock. */
const now = Date.now();
const period = { start: now - 60 * dayMs, end: now + hourMs };
const week = { ...period, start: now - 7 * dayMs };

const newFile = () => join(dir, `export${++count}.jsonl`);
type Line = Record<string, unknown> & { kind: string };
const linesOf = jsonLinesOf<Line>;

/** An empty Redis for a test. */
const opened: (() => Promise<void>)[] = [];
async function emptyRedis(): Promise<EmbeddedRedis> {
  const redis = await startEmbedded({ dataDir: join(dir, `target${++count}`) });
  opened.push(() => redis.stop());
  return redis;
}
afterEach(async () => {
  for (const close of opened.splice(0).reverse()) await close();
});

/** A server on this Redis with the clock of the test. */
async function serverOn(url: string) {
  const store = await openStore({ ...testSettings, url, nowMs: () => clock.now });
  opened.push(() => store.close());
  const answer = createPipeline(operations, { store, log: logOfCauses(new Map()), metaBytesMax: 10_240 });
  const callAs =
    (rootKey: string): Call =>
    async (name, input) => {
      const requestId = createId('req', clock.now);
      const request = requestTo(`/v2/${name}`, rootKey, { requestId, body: JSON.stringify(input) });
      const response = await answer(request);
      return { status: response.status, ...jsonOf(response, requestId) };
    };
  return { store, callAs };
}

/** With leases each command on a new Redis would wait 1.4 seconds for those of servers before it. There are none. */
const cli = (args: readonly string[], url: string, input?: string | Buffer) =>
  runCli(args, { REDIS_URL: url, LEASE_MS: '0' }, input);

async function exportTo(file: string, ...options: string[]) {
  const { code, out, err } = await cli(['export', file, ...options], source.url);
  expect({ code, out }, err).toMatchObject({ code: 0, out: expect.stringMatching(/^Exported /) });
  return readFileSync(file, 'utf8');
}

interface Summary {
  created: Record<string, number>;
  existed: Record<string, number>;
  refused: number;
  [other: string]: unknown;
}

async function importInto(url: string, text: string | Buffer, ...options: string[]): Promise<Summary> {
  const { code, out, err } = await cli(['import', '-', '--json', ...options], url, text);
  expect({ code, out }, err).toEqual({ code: 0, out: '' });
  return JSON.parse(err.trimEnd().split('\n').at(-1)!);
}

interface Reads {
  keys: string[];
  alsoKeys: string[];
  alsoIdentities: string[];
  perKindMax?: number;
  period?: typeof period;
}

/** Everything that a server responds with, apart from the events of imports. */
async function readAll(call: Call, options: Reads) {
  // The import adds one event to each workspace.
  const reads = await everyRead(call, { period, ...options, omit: { 'system.getStatus': ['auditEvents'] } });
  return reads.map((read) =>
    read.name === 'audit.listEvents'
      ? { ...read, data: (read.data as { operation: string }[]).filter(({ operation }) => operation !== 'cli.import') }
      : read,
  );
}

/** Compares one by one: a whole difference would be megabytes. */
function expectSame(after: readonly Read[], before: readonly Read[]) {
  for (const [index, read] of before.entries())
    expect.soft(after[index], `${read.name} ${JSON.stringify(read.input)}`).toEqual(read);
  expect(after.length).toBe(before.length);
}

const sweep = async (store: Store, workspaceId: string) => {
  while (await store.sweep.holds(workspaceId));
  while (await store.sweep.refill(workspaceId));
  while (await store.sweep.purge(workspaceId));
  while (await store.sweep.rollUp(workspaceId));
};

const identifiers = ['one', 'two', 'né:2p'];
/** What is left in windows of ten days. */
let left: { remaining: number }[];
const check = { namespace: 'daily', limit: 5, duration: 10 * dayMs, cost: 0 };
/** A quota of a year, of which each day has used one. */
const yearly = { name: 'yearly', limit: 1000, period: 'year' as const, anchor: Date.UTC(2024, 1, 29), autoApply: true };
const yearlyCheck = { namespace: 'yearly', identifier: 'yearly one', limit: 50, period: 'year' as const };
let yearlyLeft: { remaining: number };

/** The limits of a key in the last answer about it. */
let dailyLimits: OutputOf<'keys.verifyKey'>['ratelimits'];

/** Three keys on one balance: the first two were rotated. */
let rotated: { keyId: string; key: string }[];
/** What every test compares. */
let things: Things[];
let dailyKey: string;
let other: { workspaceId: string; rootKey: string };
let before: Read[];
let otherBefore: Read[];
let options: Reads;
/** All lists, but requests of their own for few of the records, and counts of a week. */
let sampled: Reads;
let sampledBefore: Read[];
/** The other workspace was used today only. */
const nothingMore = { keys: [], alsoKeys: [], alsoIdentities: [], period: week };
let exported: string;

beforeAll(async () => {
  things = [];
  clock.now = now - 20 * dayMs;
  const me = { origins: ['https://app.example'], meta: ['tier'] };
  const prices = {
    currency: 'EUR',
    decimals: 2,
    rules: [{ unit: 'credit' as const, steps: [{ from: 0, price: '0.01' }] }],
  };
  await ok('workspace.updateSettings', { protectApis: true, me, prices });
  const { apiId } = await ok('apis.createApi', { name: 'daily' });
  const limits = [{ name: 'monthly', limit: 1000, duration: 28 * dayMs, autoApply: true }];
  await ok('identities.createIdentity', { externalId: 'owner', ratelimits: [...limits, yearly] });
  ({ key: dailyKey } = await ok('keys.createKey', {
    apiId,
    prefix: 'daily',
    externalId: 'owner',
    ratelimits: [
      { ...limits[0]!, name: 'own monthly', limit: 40 },
      { ...yearly, name: 'own yearly' },
    ],
    credits: { remaining: 500, refill: { interval: 'monthly', amount: 100, refillDay: 31 } },
  }));
  rotated = [await ok('keys.createKey', { apiId, credits: { remaining: 50 } })];
  for (let n = 0; n < 2; n++) {
    const { keyId } = rotated[n]!;
    rotated.push(await ok('keys.rerollKey', { keyId, expiration: 60 * dayMs, credits: 'move' }));
  }
  const indebted = await ok('keys.createKey', { apiId, credits: { remaining: 3 } });
  const { hold } = await ok('keys.verifyKey', { key: indebted.key, hold: { ttl: dayMs } });
  await ok('keys.settleHold', { holdId: hold!.id, credits: { cost: 10 } });
  expect((await ok('keys.getKey', { keyId: indebted.keyId })).credits).toEqual({ remaining: 0, debt: 7 });
  const refill = { interval: 'monthly', amount: 60, refillDay: 31 } as const;
  await ok('identities.createIdentity', { externalId: 'prepaid', credits: { remaining: 90, refill } });
  await ok('identities.createIdentity', { externalId: 'indebted', credits: { remaining: 3 } });
  const inDebt = await ok('keys.createKey', { apiId, externalId: 'indebted' });
  const { hold: shared } = await ok('keys.verifyKey', { key: inDebt.key, hold: { ttl: dayMs } });
  await ok('keys.settleHold', { holdId: shared!.id, credits: { cost: 10 } });
  expect((await ok('identities.getIdentity', { identity: 'indebted' })).credits).toEqual({ remaining: 0, debt: 7 });
  const erased = await ok('keys.createKey', { apiId, externalId: 'gone' });
  for (let day = 20; day > 0; day--) {
    clock.now = now - day * dayMs;
    for (const tags of [['path=/a', 'né'], ['path=/b']]) await ok('keys.verifyKey', { key: dailyKey, tags });
    await ok('keys.verifyKey', { key: erased.key, tags: ['erased'] });
    for (const identifier of identifiers)
      await ok('ratelimits.limit', { namespace: 'daily', identifier, limit: 5, duration: 10 * dayMs });
    await ok('ratelimits.limit', yearlyCheck);
    if (day % 5 === 0) things.push(await makeThings(tollgate.call, tollgate.rootKey));
    if (day === 12) await ok('identities.deleteIdentity', { identity: 'gone' });
    await sweep(tollgate.store, tollgate.workspaceId);
  }
  await ok('ratelimits.setOverride', { ...yearlyCheck, identifier: 'two', anchor: yearly.anchor });
  await ok('keys.deleteKey', { keyId: erased.keyId, permanent: true });
  await ok('rootKeys.createRootKey', { permissions: ['api.*.verify_key'], name: 'gateway', expires: now + dayMs });
  const { rootKeyId } = await ok('rootKeys.createRootKey', { permissions: ['api.*.read_key'] });
  await ok('rootKeys.updateRootKey', { rootKeyId, enabled: false });
  clock.now = now - 5 * hourMs;
  ({ ratelimits: dailyLimits } = await ok('keys.verifyKey', { key: dailyKey }));
  await ok('keys.updateKey', { keyId: things[0]!.keyId, enabled: false });
  await ok('keys.verifyKey', { key: things[0]!.key, tags: ['refused'] });
  other = await tollgate.createWorkspace();
  await makeThings(tollgate.call, other.rootKey);
  clock.now = now;
  // Deleted APIs and identities are not exported.
  for (const rootKey of [tollgate.rootKey, other.rootKey]) {
    for (const { id: apiId, name } of (await tollgate.call('apis.listApis', { deleted: true }, rootKey)).data) {
      await tollgate.call('apis.restoreApi', { apiId }, rootKey);
      await tollgate.call('apis.deleteApi', { apiId, confirm: name, permanent: true }, rootKey);
    }
    const { data } = await tollgate.call('identities.listIdentities', { deleted: true }, rootKey);
    for (const { id } of data) {
      await tollgate.call('identities.restoreIdentity', { identityId: id }, rootKey);
      await tollgate.call('identities.deleteIdentity', { identity: id, permanent: true }, rootKey);
    }
  }
  // An export has open holds as given back.
  for (const { workspaceId } of [tollgate, other]) await sweep(tollgate.store, workspaceId);
  left = [];
  for (const identifier of identifiers) left.push(await ok('ratelimits.limit', { ...check, identifier }));
  yearlyLeft = await ok('ratelimits.limit', { ...yearlyCheck, cost: 0 });
  options = {
    keys: [dailyKey, ...things.map(({ key }) => key)],
    alsoKeys: [erased.keyId, ...things.map(({ deletedKeyId }) => deletedKeyId)],
    alsoIdentities: ['gone'],
    ...(!isThorough && { perKindMax: 4 }),
  };
  before = await readAll(tollgate.call as Call, options);
  sampled = { ...options, keys: [dailyKey, things[3]!.key], perKindMax: 2, period: week };
  sampledBefore = await readAll(tollgate.call as Call, sampled);
  otherBefore = await readAll(
    (name, input) => tollgate.call(name as never, input as never, other.rootKey) as ReturnType<Call>,
    nothingMore,
  );
  exported = await exportTo(newFile());
});

const sumsOf = (counts: Record<string, number>) => Object.values(counts).reduce((sum, each) => sum + each, 0);
const verify = (call: Call, key: string) => call('keys.verifyKey', { key });

describe('into an empty Redis', () => {
  test('every read operation responds as before, in all workspaces, and a second import changes nothing', async () => {
    const redis = await emptyRedis();
    const dry = await importInto(redis.url, exported, '--dry-run');
    const first = await importInto(redis.url, exported);
    expect(dry.created).toEqual(first.created);
    const { callAs, store } = await serverOn(redis.url);
    // Its keys may read themselves there, too.
    expect(await store.holders.workspaces()).toEqual([tollgate.workspaceId]);
    expectSame(await readAll(callAs(tollgate.rootKey), options), before);
    expectSame(await readAll(callAs(other.rootKey), nothingMore), otherBefore);
    // One event for each workspace.
    const { data } = await callAs(tollgate.rootKey)('audit.listEvents', { operation: 'cli.import' });
    expect(data).toMatchObject([{ resource: { type: 'workspace', id: tollgate.workspaceId } }]);

    const second = await importInto(redis.url, exported);
    expect(sumsOf(second.created)).toBe(0);
    expect(sumsOf(second.existed) + Number(second.auditEventsNotImported)).toBe(sumsOf(first.created));
    expectSame(await readAll(callAs(tollgate.rootKey), sampled), sampledBefore);
    await expectWhole(redis.url);
  });

  test('the server goes on with the data: keys, root keys, credits, usage, refills and deleted keys', async () => {
    const redis = await emptyRedis();
    // A refill of this key came due after the export.
    const dueId = things[3]!.keyId;
    const credits = { remaining: 1, refill: { interval: 'daily', amount: 9 } };
    const due = linesOf(exported).map((line) =>
      line.kind === 'key' && line.keyId === dueId ? { ...line, credits, refillAt: now - 1000 } : line,
    );
    await importInto(redis.url, textOf(due));
    const { store, callAs } = await serverOn(redis.url);
    const call = callAs(tollgate.rootKey);
    expect((await call('keys.getKey', { keyId: dueId })).data.credits.remaining).toBe(9);
    // The units of windows of weeks are carried: 40 a month, of which 20 days used 2 each, and one more.
    const refused = (await verify(call, dailyKey)).data;
    expect(refused).toMatchObject({ valid: false, code: 'RATE_LIMITED' });
    // Those of quotas, too.
    expect(refused.ratelimits).toEqual(dailyLimits);
    expect(dailyLimits!.find(({ name }) => name === 'own yearly')!.remaining).toBeLessThan(1000);
    expect((await call('ratelimits.limit', { ...yearlyCheck, cost: 0 })).data).toEqual(yearlyLeft);
    expect(yearlyLeft.remaining).toBeLessThan(50);
    const leftThere = [];
    for (const identifier of identifiers)
      leftThere.push((await call('ratelimits.limit', { ...check, identifier })).data);
    expect(leftThere).toEqual(left);
    expect(left.every(({ remaining }) => remaining < 5)).toBe(true);
    expect((await call('ratelimits.limit', { ...check, identifier: 'other' })).data).toMatchObject({ remaining: 5 });
    const { data: key } = await call('keys.getKey', { keyId: things[1]!.keyId });
    expect((await verify(call, things[1]!.key)).data).toMatchObject({
      valid: true,
      credits: key.credits.remaining - 1,
    });
    const countsOf = async (where: Call) =>
      (await where('analytics.getVerifications', { ...period, granularity: 'total', keyId: things[1]!.keyId })).data;
    const had = await countsOf(tollgate.call as Call);
    expect(await countsOf(call)).toEqual(
      had.map((row: { outcome: string; count: number; spentCredits: number }) =>
        row.outcome === 'VALID' ? { ...row, count: row.count + 1, spentCredits: row.spentCredits + 1 } : row,
      ),
    );

    const deleted = things[2]!.deletedKeyId;
    expect((await call('keys.restoreKey', { keyId: deleted })).status).toBe(200);
    expect((await call('keys.getKey', { keyId: deleted })).data).toMatchObject({ externalId: things[2]!.name });

    // New ids follow those of the file, also with a clock that is behind.
    const { data: created } = await call('apis.createApi', { name: 'new' });
    const { data: apis } = await call('apis.listApis', {});
    expect(apis.at(-1).id).toBe(created.apiId);

    const top = { ...period, of: 'keys', by: 'count', limit: 100 };
    const idsOf = (data: unknown) => [...JSON.stringify(data).matchAll(/"keyId":"(\w+)"/g)].map(([, id]) => id).sort();
    const ranked = idsOf(((await tollgate.call('analytics.getTop', top as never)) as { data: unknown }).data);
    expect(ranked.length).toBeGreaterThan(8);

    // Days later the sweeper refills, rolls up and changes no count.
    const before = await countsOf(call);
    const begun = clock.now;
    clock.now += 9 * dayMs;
    try {
      await sweep(store, tollgate.workspaceId);
      expect(await countsOf(call)).toEqual(before);
      expect((await call('keys.getKey', { keyId: things[1]!.keyId })).data.credits.remaining).toBe(9);
      expect(idsOf((await call('analytics.getTop', top)).data)).toEqual(ranked);
    } finally {
      clock.now = begun;
    }
    for (const [spent, { key }] of rotated.entries())
      expect((await verify(call, key)).data).toMatchObject({ valid: true, credits: 49 - spent });
  });

  thoroughTest('an import that is killed again and again is finished by the same command', async () => {
    const redis = await emptyRedis();
    const lines = exported.trimEnd().split('\n');
    for (const part of [0.1, 0.5, 0.9]) {
      const child = spawnCli(['import', '-'], { REDIS_URL: redis.url });
      child.stdin.on('error', () => {});
      const sent = lines.slice(0, Math.floor(part * lines.length));
      // More than a step, and a line that is not complete.
      const filler =
        '\n'.repeat(3) +
        `{"kind":"position","workspaceId":"${tollgate.workspaceId}","section":"x","after":"","counts":{}}\n`.repeat(
          250,
        );
      child.stdin.write(`${sent.join('\n')}\n${filler}{"kind":`);
      const { store } = await serverOn(redis.url);
      const wanted = linesOf(sent.join('\n')).filter(({ kind }) => kind === 'apiUsage').length;
      await vi.waitFor(
        async () => {
          const ids = await store.workspaces.ids();
          expect(ids.length).toBeGreaterThan(0);
          let days = 0;
          const since = { first: Math.floor(now / dayMs) - 60, last: Math.floor(now / dayMs) };
          const api8 = String(apiIdOf(lines)).slice(-8);
          for await (const _ of store.usageExport.totals(tollgate.workspaceId, 'api', api8, since)) days++;
          if (wanted > 0) expect(days).toBeGreaterThan(0);
        },
        { timeout: 30_000, interval: 50 },
      );
      child.kill('SIGKILL');
      await once(child, 'close');
    }
    await importInto(redis.url, exported);
    const { callAs } = await serverOn(redis.url);
    expectSame(await readAll(callAs(tollgate.rootKey), sampled), sampledBefore);
    expectSame(await readAll(callAs(other.rootKey), nothingMore), otherBefore);
    await expectWhole(redis.url);
  });

  thoroughTest('counts by tag in many parts are stored once, also after the sweeper has moved some', async () => {
    const redis = await emptyRedis();
    const records = linesOf(exported);
    const usage = records.find(({ kind }) => kind === 'tagUsage')!;
    const place = records.indexOf(usage);
    const [first] = usage.counts as unknown[][];
    const partsOf = (number: number) => ({ ...usage, part: number, counts: [first!.with(2, `tag ${number}`)] });
    const three = [partsOf(1), partsOf(2), partsOf(3)];
    const file = records.toSpliced(place, 1, ...three);
    const end = {
      ...file.at(-1)!,
      counts: {
        ...(file.at(-1)!.counts as object),
        tagUsage: records.filter(({ kind }) => kind === 'tagUsage').length + 2,
      },
    };
    const text = textOf(file.with(-1, end));
    // The import ends after the second part. Its end is missing.
    const cut = textOf(file.slice(0, place + 2));
    expect((await cli(['import', '-'], redis.url, cut)).code).toBe(1);
    const { store } = await serverOn(redis.url);
    await sweep(store, tollgate.workspaceId);
    expect((await importInto(redis.url, text)).created.tagUsage).toBe(
      (end.counts as unknown as Record<string, number>).tagUsage! - 2,
    );
    const stored = await store.usageExport.tags(tollgate.workspaceId, String(usage.apiId).slice(-8), Number(usage.day));
    const ofTags = stored.filter(({ tag }) => tag.startsWith('tag '));
    expect(ofTags.map(({ tag, count }) => [tag, count]).sort()).toEqual(
      [1, 2, 3].map((number) => [`tag ${number}`, first![5]]),
    );
  });

  thoroughTest(
    'usage of a key in several parts is stored whole; a part without the one before it is rejected',
    async () => {
      const redis = await emptyRedis();
      const records = linesOf(exported);
      const at = records.findIndex(({ kind, days }) => kind === 'keyUsage' && (days as unknown[]).length > 3);
      const usage = records[at]!;
      const days = usage.days as unknown[];
      const parts = [days.slice(0, 2), days.slice(2, 3), days.slice(3)].map((some, index) => ({
        ...usage,
        part: index + 1,
        days: some,
      }));
      const { counts } = records.at(-1)! as unknown as { counts: Record<string, number> };
      const end = { kind: 'end', counts: { ...counts, keyUsage: counts.keyUsage! + 2 } };
      const inParts = (some: object[]) => textOf([...records.slice(0, at), ...some, ...records.slice(at + 1, -1), end]);
      const [one, two, three] = parts;
      const { code, out } = await cli(['import', '-'], redis.url, inParts([one!, three!, two!]));
      expect(code).toBe(1);
      expect(linesOf(out)).toMatchObject([{ line: at + 2, errors: [{ field: 'part' }] }]);
      const whole = await emptyRedis();
      const dry = await importInto(whole.url, inParts(parts), '--dry-run');
      const { created } = await importInto(whole.url, inParts(parts));
      expect([dry.created.keyUsage, created.keyUsage]).toEqual([end.counts.keyUsage, end.counts.keyUsage]);
      await expectWhole(whole.url);

      // Counts by tag whose totals were rejected.
      const none = await emptyRedis();
      const totals = records.findIndex(
        ({ kind }, index) => kind === 'apiUsage' && records[index + 1]!.kind === 'tagUsage',
      );
      const without = records.with(totals, { ...records[totals]!, day: 'x' });
      const lost = await cli(['import', '-'], none.url, textOf(without));
      expect(linesOf(lost.out)).toMatchObject([
        { line: totals + 1, errors: [{ field: 'day' }] },
        { line: totals + 2, errors: [{ field: 'part' }] },
      ]);
    },
  );

  test('one of another installation is refused', async () => {
    const redis = await emptyRedis();
    const { store } = await serverOn(redis.url);
    const { workspaceId } = await store.workspaces.create('first');
    const { code, err } = await cli(['import', '-'], redis.url, exported);
    expect(code).toBe(1);
    expect(err).toContain(`This Redis is not empty: it has the workspace ${workspaceId}, which is not in the file.`);
    expect(err).toContain('Import before the first start of the server');
    expect(await store.workspaces.ids()).toEqual([workspaceId]);
  });

  test('a data directory is created', async () => {
    const dataDir = join(dir, 'new');
    const { code, err } = await runCli(['import', '-'], { TOLLGATE_DATA_DIR: dataDir }, exported);
    expect({ code, err }).toEqual({ code: 0, err: expect.stringContaining('Imported 16 keys') });
    const list = await runCli(['workspace', 'list'], { TOLLGATE_DATA_DIR: dataDir });
    expect(list.out).toContain(tollgate.workspaceId);
  });
});

/** The other way round: an export of the copy has the same records. It costs a tenth of all read operations. */
async function expectWhole(url: string) {
  const file = newFile();
  expect((await cli(['export', file], url)).code).toBe(0);
  expect(recordsIn(readFileSync(file, 'utf8'))).toEqual(recordsIn(exported));
}

const apiIdOf = (lines: readonly string[]) => linesOf(lines.join('\n')).find(({ kind }) => kind === 'apiUsage')!.apiId;
/** The records of an export, without what differs by nature: the event of the import. */
const recordsIn = (text: string) =>
  linesOf(text)
    .filter(({ kind, operation }) => !['header', 'position', 'end'].includes(kind) && operation !== 'cli.import')
    .map((line) => (line.kind === 'workspace' ? { ...line, sequence: 0 } : line))
    // Windows are in no order.
    .sort((a, b) => (a.kind === 'window' && b.kind === 'window' ? (String(a.name) < String(b.name) ? -1 : 1) : 0));

describe('an import that was interrupted and is not repeated', () => {
  /** All but the last 30 lines: the first workspace is complete, and the second one is not. */
  const cut = () => `${exported.trimEnd().split('\n').slice(0, -30).join('\n')}\n`;
  /** The same records in an export with another id. */
  const another = () => exported.replace(/"exportId":"[^"]+"/, '"exportId":"another-one"');

  async function interrupted() {
    const redis = await emptyRedis();
    expect((await cli(['import', '-'], redis.url, cut())).code).toBe(1);
    const { out } = await cli(['workspace', 'list', '--json'], redis.url);
    const listed = JSON.parse(out) as { workspaceId: string; importing?: true }[];
    const unfinished = listed.filter(({ importing }) => importing).map(({ workspaceId }) => workspaceId);
    expect(listed).toHaveLength(2);
    expect(unfinished).toHaveLength(1);
    return { redis, workspaceId: unfinished[0]!, complete: listed.find(({ importing }) => !importing)!.workspaceId };
  }

  test('is listed, and an export of it states that it is incomplete', async () => {
    const { redis, workspaceId, complete } = await interrupted();
    const { out } = await cli(['workspace', 'list'], redis.url);
    const lineOf = (id: string) => out.split('\n').find((line) => line.startsWith(id));
    expect(lineOf(workspaceId)).toMatch(/records {2}import not finished$/);
    expect(lineOf(complete)).toMatch(/records$/);
    const note = `The export of ${workspaceId} is incomplete, as its import is not finished.`;
    expect((await cli(['export', '-', '--json'], redis.url)).err).toContain(note);
    expect((await cli(['export', '-', '--workspace', complete], redis.url)).err).not.toContain('incomplete');
  });

  thoroughTest('the import of another export is refused, as its root keys and events would be left out', async () => {
    const { redis, workspaceId } = await interrupted();
    for (const options of [[], ['--dry-run']]) {
      await refused(
        cli(['import', '-', ...options], redis.url, another()),
        `The workspace ${workspaceId} was created by an import of another export`,
      );
    }
  });

  thoroughTest('it is discarded, also when that was interrupted, and nothing of it stays', async () => {
    const { redis, workspaceId, complete } = await interrupted();
    const { store } = await serverOn(redis.url);
    const client = await connect(redis.url, { commandTimeoutMs: 5000 });
    opened.push(async () => client.disconnect());
    // As if a first call ended before it removed the workspace's own record.
    await client.zrem(workspacesKey, workspaceId);
    const { code, out } = await cli(['workspace', 'end-import', workspaceId, '--discard'], redis.url);
    expect({ code, out }).toEqual({ code: 0, out: `Removed ${workspaceId}.\n` });
    expect(await store.workspaces.ids()).toEqual([complete]);
    expect((await namesIn(client)).filter((name) => name.includes(workspaceId))).toEqual([]);
    const again = await cli(['workspace', 'end-import', workspaceId, '--discard'], redis.url);
    expect(again).toMatchObject({ code: 3, err: expect.stringContaining(`There is no workspace ${workspaceId}.`) });
    // Now any export can be imported, with all root keys.
    const summary = await importInto(redis.url, another());
    expect(summary.created).toMatchObject({ workspace: 1 });
    await expectWhole(redis.url);
  });

  test('it is ended with what it has created; a workspace that is complete is not removed', async () => {
    const { redis, workspaceId, complete } = await interrupted();
    const refused = await cli(['workspace', 'end-import', complete, '--discard'], redis.url);
    expect(refused).toMatchObject({
      code: 1,
      err: expect.stringContaining(`No import of ${complete} was interrupted`),
    });
    const { out } = await cli(['workspace', 'end-import', workspaceId], redis.url);
    expect(out).toBe(`Kept what the import has created in ${workspaceId}.\n`);
    expect((await cli(['workspace', 'list'], redis.url)).out).not.toContain('import not finished');
    // From now on it is one that exists: a file adds no root keys.
    const { rootKeysNotImported } = await importInto(redis.url, exported);
    expect(rootKeysNotImported).toBeGreaterThan(0);
  });
});

describe('into a workspace that exists', () => {
  const own = () =>
    textOf(
      linesOf(exported)
        .filter((line, index, all) => {
          const next = all.findLastIndex(({ kind }) => kind === 'workspace');
          return index < next && line.kind !== 'position';
        })
        .map((line) => (line.kind === 'header' ? { ...line, workspaces: [tollgate.workspaceId] } : line)),
    );
  const complete = () => {
    const lines = linesOf(own());
    const counts: Record<string, number> = {};
    for (const { kind } of lines.slice(1)) counts[kind] = (counts[kind] ?? 0) + 1;
    return textOf([...lines, { kind: 'end', counts }]);
  };

  test('no root key and no audit event is imported, unless the operator asks for it', async () => {
    const redis = await emptyRedis();
    const { store, callAs } = await serverOn(redis.url);
    await store.workspaces.import(
      {
        workspaceId: tollgate.workspaceId,
        name: 'mine',
        createdAt: 1,
        protectApis: false,
        sequence: 1,
        importId: 'another',
      },
      false,
    );
    await store.workspaces.endImport(tollgate.workspaceId, [], {
      rootKeyId: 'cli',
      operation: 'cli.import',
      requestId: '',
    });
    const text = complete();
    const dry = await importInto(redis.url, text, '--dry-run');
    const summary = await importInto(redis.url, text);
    expect(summary.created.rootKey).toBe(0);
    expect(summary.rootKeysNotImported).toBeGreaterThan(3);
    expect(dry.rootKeysNotImported).toBe(summary.rootKeysNotImported);
    expect(summary.created.auditEvent).toBe(0);
    expect((await callAs(tollgate.rootKey)('apis.listApis', {}).catch((error) => error)).status).toBe(401);
    expect((await store.rootKeys.list(tollgate.workspaceId, { count: 10 })).rootKeys).toEqual([]);
    const { items } = await store.audit.list(tollgate.workspaceId, { order: 'asc', count: 1000 });
    expect(new Set(items.map(({ operation }) => operation))).toEqual(new Set(['cli.import']));
    expect((await store.workspaces.settings(tollgate.workspaceId)).name).toBe('mine');

    const printed = await cli(['import', '-'], redis.url, text);
    expect(printed.err).toContain('root keys, because the workspace existed before.');
    const asked = await importInto(redis.url, text, '--with', 'root-keys');
    expect(asked).toMatchObject({ created: { rootKey: summary.rootKeysNotImported }, adminRootKeys: 1 });
    expect((await callAs(tollgate.rootKey)('apis.listApis', {})).status).toBe(200);
  });

  thoroughTest('of another id: records keep their ids, and root keys are of no use', async () => {
    const redis = await emptyRedis();
    const { store } = await serverOn(redis.url);
    const { workspaceId } = await store.workspaces.create('other');
    const text = complete();
    const summary = await importInto(redis.url, text, '--workspace', workspaceId, '--with', 'root-keys');
    expect(summary).toMatchObject({ created: { key: 14, api: 5, deletedKey: 4, rootKey: 0, workspace: 0 } });
    expect(summary.rootKeysOfOtherWorkspace).toBeGreaterThan(3);
    const { items } = await store.apis.list(workspaceId, { count: 10 });
    expect(items.map(({ id }) => id)).toEqual(
      linesOf(text)
        .filter(({ kind }) => kind === 'api')
        .map(({ apiId }) => apiId),
    );
    const file = newFile();
    await cli(['export', file, '--workspace', workspaceId, '--without', 'audit'], redis.url);
    const comparable = (all: Line[]) =>
      all.filter(({ kind }) => !['workspace', 'auditEvent', 'rootKey'].includes(kind));
    expect(comparable(recordsIn(readFileSync(file, 'utf8')))).toEqual(comparable(recordsIn(text)));
    const refused = await cli(['import', '-', '--workspace', workspaceId], redis.url, exported);
    expect(refused.err).toContain('The file has 2 workspaces. Import it without --workspace.');
  });

  thoroughTest('a temporary override that has ended since: the former one, or none', async () => {
    const redis = await emptyRedis();
    const isTemporary = ({ kind, until }: Line) => kind === 'override' && until !== undefined;
    const lines = linesOf(exported);
    const temporary = lines.filter(isTemporary);
    const kept = temporary.filter(({ former }) => former !== undefined);
    expect(kept.length).toBeGreaterThan(0);
    expect(temporary.length).toBe(2 * kept.length);
    const text = textOf(lines.map((line) => (isTemporary(line) ? { ...line, until: now - dayMs } : line)));
    const all = lines.filter(({ kind }) => kind === 'override').length;
    for (const more of [['--dry-run'], []]) {
      const { created, existed } = await importInto(redis.url, text, ...more);
      expect([created.override, existed.override]).toEqual([all - kept.length, kept.length]);
    }
    const call = (await serverOn(redis.url)).callAs(tollgate.rootKey);
    const { name } = things[0]!;
    const { data } = await call('ratelimits.listOverrides', { namespace: name, limit: 100 });
    const overrides = (data as { overrides: object[] }).overrides;
    expect(overrides).toEqual([
      expect.objectContaining({ identifier: name, limit: 5 }),
      expect.objectContaining({ identifier: 'user_*' }),
    ]);
    for (const override of overrides) {
      expect(override).not.toHaveProperty('until');
      expect(override).not.toHaveProperty('former');
    }
  });

  thoroughTest('existing records and counts stay as they are', async () => {
    const redis = await emptyRedis();
    await importInto(redis.url, exported);
    const { callAs } = await serverOn(redis.url);
    const call = callAs(tollgate.rootKey);
    const { name, keyId, roleId, identityId } = things[1]!;
    await call('keys.updateKey', { keyId, name: 'changed' });
    await call('identities.updateIdentity', { identity: identityId, meta: { changed: true } });
    await call('ratelimits.setOverride', { namespace: name, identifier: name, limit: 77, duration: 5000 });
    await verify(call, things[1]!.key);
    const changed = await readAll(call, sampled);
    await importInto(redis.url, exported, '--with', 'root-keys');
    expectSame(await readAll(call, sampled), changed);
    expect((await call('permissions.getRole', { role: roleId })).status).toBe(200);
  });
});

test('an export looks through all names once, with any number of workspaces', async () => {
  const redis = await emptyRedis();
  await importInto(redis.url, exported);
  const { store, callAs } = await serverOn(redis.url);
  const client = await connect(redis.url, { commandTimeoutMs: 5000 });
  opened.push(async () => client.disconnect());
  const callsOf = async () => {
    await client.config('RESETSTAT');
    expect((await cli(['export', newFile()], redis.url)).code).toBe(0);
    const stats = await client.info('commandstats');
    const sum = (name: string) =>
      [...stats.matchAll(new RegExp(`cmdstat_${name}:calls=(\\d+)`, 'g'))].reduce(
        (all, [, calls]) => all + Number(calls),
        0,
      );
    return { scans: sum('scan'), scripts: sum('eval(?:sha)?') };
  };
  const limit = async (count: number) => {
    const checks = Array.from({ length: count }, (_, index) => ({ ...check, cost: 1, identifier: `new ${index}` }));
    expect((await callAs(tollgate.rootKey)('ratelimits.multiLimit', checks)).status).toBe(200);
  };
  await limit(1);
  const before = await callsOf();
  // Nor does it need a call to learn what each window belongs to.
  await limit(20);
  expect(await callsOf()).toEqual(before);
  for (let number = 0; number < 20; number++) await store.workspaces.create(`tenant ${number}`);
  expect((await callsOf()).scans).toBe(before.scans);

  // The windows are the same with an index, without one, and with one that is full; and after any place.
  const { workspaceId } = tollgate;
  const windowsOf = async (...args: Parameters<Store['windows']['export']>) => {
    const pages = [];
    for await (const page of store.windows.export(...args)) pages.push(page);
    const windows = pages.flatMap((page) => page.windows.map((window) => JSON.stringify(window)));
    return { windows: [...new Set(windows)].sort(), last: pages.at(-1)?.after };
  };
  const index = await store.windows.index();
  const { windows } = await windowsOf(workspaceId, undefined);
  expect(windows.length).toBeGreaterThan(2);
  const { last, ...indexed } = await windowsOf(workspaceId, undefined, index);
  expect(indexed.windows).toEqual(windows);
  expect((await windowsOf(workspaceId, last, index)).windows).toEqual([]);
  for (const given of [index, undefined])
    expect((await windowsOf(workspaceId, 'again', given)).windows).toEqual(windows);
  const full = await store.windows.index(2);
  expect(full.get(workspaceId)).toBeUndefined();
  expect((await windowsOf(workspaceId, undefined, full)).windows).toEqual(windows);
  expect((await windowsOf(other.workspaceId, undefined, full)).windows).toEqual(
    (await windowsOf(other.workspaceId, undefined)).windows,
  );
});

describe('a part', () => {
  test('--without leaves parts out of the file, and of an import', async () => {
    const parts = ['--without', 'root-keys,usage,audit'];
    const kindsOf = (text: string) => new Set(linesOf(text).map(({ kind }) => kind));
    const file = await exportTo(newFile(), ...parts);
    expect([...kindsOf(file)].filter((kind) => /usage|refusals|rootKey|audit/i.test(kind))).toEqual([]);
    const redis = await emptyRedis();
    const { created } = await importInto(redis.url, exported, ...parts);
    expect(
      Object.entries(created).filter(([kind, count]) => count > 0 && /usage|refusals|rootKey|audit/i.test(kind)),
    ).toEqual([]);
    expect(created).toMatchObject({ key: 16, workspace: 2 });
    await refused(
      cli(['export', '-', '--without', 'everything'], source.url),
      '--without takes root-keys, usage, audit',
    );
  });

  test('--api has the keys and the usage of an API, and no root keys and events', async () => {
    const text = await exportTo(newFile(), '--workspace', tollgate.workspaceId, '--api', things[0]!.apiId);
    const found = linesOf(text);
    const kindsFound = new Set(found.map(({ kind }) => kind));
    for (const kind of [
      'api',
      'key',
      'deletedKey',
      'keyUsage',
      'apiUsage',
      'tagUsage',
      'identity',
      'permission',
      'role',
    ])
      expect(kindsFound).toContain(kind);
    for (const kind of ['rootKey', 'auditEvent', 'namespace', 'override', 'refusals'])
      expect(kindsFound).not.toContain(kind);
    const all = linesOf(exported).filter(({ kind, apiId }) => kindsFound.has(kind) && apiId === things[0]!.apiId);
    expect(found.filter(({ apiId }) => apiId !== undefined)).toEqual(all);
  });

  thoroughTest('--resume continues after any place of the file, also within a line', async () => {
    const bytes = Buffer.from(exported);
    const withoutId = (text: string) => text.replace(/"exportId":"[^"]+"|"exportedAt":\d+/g, '');
    for (const part of [0.001, 0.03, 0.2, 0.4, 0.6, 0.8, 0.97, 0.9999]) {
      const file = newFile();
      writeFileSync(file, bytes.subarray(0, Math.floor(part * bytes.length)));
      const { code, err } = await cli(['export', file, '--resume'], source.url);
      expect({ code, err }).toMatchObject({ code: 0 });
      expect(withoutId(readFileSync(file, 'utf8')) === withoutId(exported), `cut at ${part}`).toBe(true);
    }
    // A disk that is full.
    const short = newFile();
    const limited = `trap '' XFSZ; ulimit -f 8; exec "$0" "$@"`;
    const { status, stderr } = spawnSync('sh', ['-c', limited, process.execPath, cliFile, 'export', short], {
      env: { PATH: process.env.PATH, REDIS_URL: source.url },
      encoding: 'utf8',
    });
    expect(status).toBe(1);
    expect(stderr).toMatch(
      /The export stopped after [\d,]+ records: EFBIG.*\. The same command with --resume continues it\.\n$/,
    );
    expect(await cli(['export', short, '--resume'], source.url)).toMatchObject({ code: 0 });
    expect(withoutId(readFileSync(short, 'utf8')) === withoutId(exported)).toBe(true);
    const file = newFile();
    writeFileSync(file, exported);
    expect((await cli(['export', file, '--resume'], source.url)).out).toBe(`${file} is complete.\n`);
    expect(readFileSync(file, 'utf8')).toBe(exported);
  });
});

describe('a file that is not what an export writes', () => {
  test('a cut or damaged file is noticed, and finished by the whole one', async () => {
    const redis = await emptyRedis();
    const lines = exported.trimEnd().split('\n');
    const cut = await cli(['import', '-'], redis.url, `${lines.slice(0, -30).join('\n')}\n`);
    expect(cut).toMatchObject({ code: 1, err: expect.stringContaining('The file ends early: it has no end line.') });
    const damaged = lines.filter((line) => !line.includes('"kind":"deletedKey"'));
    const missing = await cli(['import', '-', '--json'], redis.url, `${damaged.join('\n')}\n`);
    expect(missing).toMatchObject({
      code: 1,
      err: expect.stringContaining('The file is damaged: its end line counts'),
    });
    await importInto(redis.url, exported);
    await expectWhole(redis.url);
  });

  describe('no record gets into another workspace', () => {
    /** The file with another line in place of that of the second workspace. */
    const withSecond = (change: (line: string) => string) => {
      const lines = exported.trimEnd().split('\n');
      const at = lines.findLastIndex((line) => line.startsWith('{"kind":"workspace"'));
      return `${lines.with(at, change(lines[at]!)).join('\n')}\n`;
    };
    const damages: [string, (line: string) => string][] = [
      ['that is not JSON', (line) => line.slice(0, -3)],
      ['of another kind', (line) => line.replace('"workspace"', '"workspacf"')],
      ['without a kind', (line) => line.replace('"kind"', '"kinf"')],
      ['of an id that the file does not have', (line) => line.replace(/ws_\w+/, `ws_${'3'.repeat(16)}`)],
      ['that lacks a field', (line) => line.replace(/"protectApis":\w+,/, '')],
    ];
    test.each(thorough(damages, damages.slice(0, 1)))('after a line %s', async (_, change) => {
      const redis = await emptyRedis();
      const second = linesOf(exported).findLast(({ kind }) => kind === 'workspace')!.workspaceId;
      const { code, out } = await cli(['import', '-'], redis.url, withSecond(change));
      expect(code).toBe(1);
      const rejected = linesOf(out) as unknown as { line: number; errors: { message: string }[] }[];
      expect(rejected[1]!.errors[0]!.message).toBe(
        `is of an unknown workspace: line ${rejected[0]!.line} was not accepted, and may begin one`,
      );
      expect(rejected).toHaveLength(exported.split('\n').length - 2 - rejected[0]!.line + 1 - positionsAfter(second));
      const { callAs, store } = await serverOn(redis.url);
      expect(await store.workspaces.ids()).toHaveLength(1);
      const first = second === other.workspaceId ? [tollgate.rootKey, sampledBefore] : [other.rootKey, otherBefore];
      const reads = second === other.workspaceId ? sampled : nothingMore;
      expectSame(await readAll(callAs(first[0] as string), reads), first[1] as Read[]);
      // The whole file finishes both.
      await importInto(redis.url, exported);
      expect((await store.workspaces.list()).map(({ isImporting }) => isImporting)).toEqual([false, false]);
      await expectWhole(redis.url);
    });
    const positionsAfter = (workspaceId: unknown) =>
      linesOf(exported).filter((line) => line.kind === 'position' && line.workspaceId === workspaceId).length;

    test('after a damaged line of a page: the rest of the page is rejected, and the next one is imported', async () => {
      const redis = await emptyRedis();
      const lines = exported.trimEnd().split('\n');
      const at = lines.findIndex((line) => line.startsWith('{"kind":"auditEvent"'));
      const next = lines.findIndex((line, index) => index > at && line.startsWith('{"kind":"position"'));
      const damaged = lines.with(at, lines[at]!.slice(1));
      const { code, out } = await cli(['import', '-'], redis.url, `${damaged.join('\n')}\n`);
      expect(code).toBe(1);
      expect(linesOf(out).map(({ line }) => line)).toEqual(Array.from({ length: next - at }, (_, row) => at + 1 + row));
      await importInto(redis.url, exported);
    });

    test('of two files in one, and of a file without its first line', async () => {
      const redis = await emptyRedis();
      const { store } = await serverOn(redis.url);
      const lines = exported.trimEnd().split('\n');
      const twice = await cli(['import', '-'], redis.url, `${exported}${exported}`);
      expect(twice.code).toBe(1);
      expect(linesOf(twice.out)).toHaveLength(
        lines.length - positionsAfter(tollgate.workspaceId) - positionsAfter(other.workspaceId),
      );
      const { workspaceId } = await store.workspaces.create('bystander');
      const apis = () => store.apis.list(workspaceId, { count: 10 });
      for (const args of [[], ['--workspace', workspaceId]]) {
        const headless = [lines[0]!.slice(1), ...lines.slice(1)].join('\n');
        await refused(
          cli(['import', '-', ...args], redis.url, `${headless}\n`),
          'Line 2 begins a workspace, and the first line of the file is missing or damaged.',
        );
        expect((await apis()).items).toEqual([]);
      }
      const api = await store.apis.create(workspaceId, 'own', cliActor);
      const mixed = await cli(['import', '-', '--workspace', workspaceId, '--api', api], redis.url, exported);
      expect(mixed.err).toContain('The file has 2 workspaces. Import it without --');
    });
  });

  test('a newer format is refused in one sentence, and an older one is imported', async () => {
    const redis = await emptyRedis();
    const [first, ...rest] = linesOf(exported);
    const newer = textOf([{ ...first!, format: 3, release: '9.1.0' }, ...rest]);
    const refused = await cli(['import', '-'], redis.url, newer);
    expect(refused.code).toBe(1);
    expect(refused.err).toContain('The file has format 3 and was written by Tollgate 9.1.0; this Tollgate (');
    const { store } = await serverOn(redis.url);
    expect(await store.workspaces.ids()).toEqual([]);

    // As the first version wrote it: no header, ids only of APIs and keys.
    const { workspaceId } = await store.workspaces.create('old');
    const [apiId, keyId] = [`api_${'2'.repeat(16)}`, `key_${'2'.repeat(24)}`];
    const old = [
      { kind: 'permission', slug: 'docs.read', name: 'Read' },
      { kind: 'role', name: 'reader', permissions: ['docs.read'] },
      {
        kind: 'identity',
        externalId: 'ada',
        ratelimits: [{ name: 'tokens', limit: 5, duration: 60_000, autoApply: true }],
      },
      { kind: 'api', apiId, name: 'payments', createdAt: 1_700_000_000_000 },
      {
        kind: 'key',
        apiId,
        keyId,
        hash: Buffer.alloc(32, 1).toString('base64'),
        byteLength: 16,
        enabled: true,
        createdAt: 1_700_000_000_000,
        externalId: 'ada',
        roles: ['reader'],
        credits: { remaining: 5 },
      },
    ];
    const summary = await importInto(redis.url, textOf(old), '--workspace', workspaceId);
    expect(summary.created).toMatchObject({ permission: 1, role: 1, identity: 1, api: 1, key: 1 });
    expect(await store.keys.find(workspaceId, keyId)).toMatchObject({ key: { externalId: 'ada', roles: ['reader'] } });
  });

  test('a file with secrets of other parties is for its owner only, and has digests, no key strings', async () => {
    const file = newFile();
    const text = await exportTo(file);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    for (const secret of [tollgate.rootKey, other.rootKey, dailyKey, ...things.map(({ key }) => key)])
      expect(text).not.toContain(secret.slice(-20));
  });
});

describe('hostile lines', () => {
  thoroughTest('a script does a bounded part of the work, whatever the lines have', async () => {
    const redis = await emptyRedis();
    const client = await connect(redis.url, { commandTimeoutMs: 5000 });
    opened.push(async () => client.disconnect());
    const [header, settings] = linesOf(exported);
    const apiId = `api_${'2'.repeat(16)}`;
    const hash = (at: number) => Buffer.alloc(32, `costly ${at}`).toString('base64');
    const list = <Item>(length: number, itemOf: (at: number) => Item) => Array.from({ length }, (_, at) => itemOf(at));
    const limits = list(50, (at) => ({ name: `limit ${at}`, limit: 100, duration: 20 * dayMs, autoApply: true }));
    const used = list(200, (at) => [now - dayMs + at * 1000, 1 + at]);
    const window = { kind: 'window', owner: `key_${'2'.repeat(24)}`, duration: 20 * dayMs, used };
    const rootKey = { kind: 'rootKey', start: 'x', enabled: true, createdAt: 1 };
    const rootKeyId = (at: number) => `root_${'2'.repeat(13)}${100 + at}`.replaceAll('0', 'z');
    const costly: object[][] = [
      list(240, (at) => ({ kind: 'identity', externalId: `costly${at}`, ratelimits: limits })),
      list(240, (at) => ({ ...window, name: `window ${at}` })),
      list(240, (at) => ({ kind: 'key', apiId, hash: hash(at), permissions: list(100, (n) => `p.${at}.${n}`) })),
      list(240, (at) => ({ kind: 'key', apiId, hash: hash(1000 + at), ratelimits: limits })),
      list(240, (at) => {
        const permissions = list(150, (n) => `api.api_${'2'.repeat(13)}${100 + n}.verify_key`.replaceAll('0', 'z'));
        return { ...rootKey, rootKeyId: rootKeyId(at), hash: hash(at), permissions };
      }),
    ];
    const callsOf = async (lines: readonly object[]) => {
      await client.config('RESETSTAT');
      const text = textOf([header!, settings!, { kind: 'api', apiId, name: 'costly' }, ...lines]);
      const { err } = await cli(['import', '-', '--json'], redis.url, text);
      const summary = JSON.parse(err.trimEnd().split('\n').at(-1)!) as Summary;
      expect(summary).toMatchObject({ refused: 0 });
      return Number(/cmdstat_fcall:calls=(\d+)/.exec(await client.info('commandstats'))![1]);
    };
    await callsOf([]);
    const overhead = await callsOf([]);
    // All 240 in one script, or two, would block Redis for tens of ms, or for seconds.
    for (const lines of costly) expect(await callsOf(lines)).toBeGreaterThan(overhead + 8);
  });

  const hostile = [
    -1,
    2 ** 60,
    1e308,
    1.5,
    '9'.repeat(5000),
    '',
    null,
    true,
    [],
    {},
    [[]],
    '../..',
    'ws_1',
    '\u0000',
    'tg:{x}',
  ];

  test('every field of every kind is checked: no value ends the import or is stored', async () => {
    const redis = await emptyRedis();
    await importInto(redis.url, exported);
    const { callAs } = await serverOn(redis.url);
    const call = callAs(tollgate.rootKey);
    const ofKinds = new Map(
      linesOf(exported)
        .filter(({ kind }) => !['header', 'end', 'position'].includes(kind))
        .map((line) => [line.kind, line]),
    );
    expect(ofKinds.size).toBe(19);
    // A workspace line is the beginning of another workspace.
    const inOrder = [...ofKinds.values()].sort(
      (a, b) => Number(a.kind === 'workspace') - Number(b.kind === 'workspace'),
    );
    const lines = inOrder.flatMap((line) =>
      Object.keys(line)
        .filter((field) => field !== 'kind')
        .flatMap((field) => hostile.map((value) => ({ ...line, [field]: value }))),
    );
    const [header] = linesOf(exported);
    const settings = linesOf(exported).find(({ kind }) => kind === 'workspace')!;
    const { code, out, err } = await cli(
      ['import', '-', '--json', '--with', 'root-keys'],
      redis.url,
      textOf([header!, settings, ...lines]),
    );
    expect(code).toBe(1);
    const summary = JSON.parse(err.trimEnd().split('\n').at(-1)!) as Summary;
    expect(summary.refused).toBeGreaterThan(lines.length * 0.6);
    expect(out).not.toContain('Infinity');
    // The server reads all of it: 5xx would throw.
    await readAll(call, options);
    const survived = await readAll(callAs(other.rootKey), nothingMore);
    expectSame(survived, otherBefore);
  });

  test('times in the future, grants that do not exist, ids of other workspaces and long lines', async () => {
    const redis = await emptyRedis();
    const all = linesOf(exported);
    const of = (kind: string) => all.find((line) => line.kind === kind)!;
    const bad: [string, object][] = [
      ['eventId', { ...of('auditEvent'), eventId: `${now + 40 * dayMs}-0` }],
      ['changes', { ...of('auditEvent'), changes: '{"field":1}' }],
      ['permissions[0]', { ...of('rootKey'), permissions: ['api.*.become_admin'] }],
      ['hash', { ...of('rootKey'), hash: 'AAAA' }],
      ['day', { ...of('apiUsage'), day: 60_000 }],
      ['apiId', { ...of('apiUsage'), apiId: `api_${'3'.repeat(16)}` }],
      ['counts', { ...of('tagUsage'), counts: [[`key_${'3'.repeat(24)}`, '', 'tag', '--', 1, 1, 0]] }],
      ['keyId', { ...of('keyUsage'), keyId: `key_${'3'.repeat(24)}` }],
      ['rows', { ...of('refusals'), rows: Buffer.alloc(300, 7).toString('base64') }],
      ['namespaceId', { ...of('namespaceUsage'), namespaceId: `rlns_${'3'.repeat(16)}` }],
      ['workspaceId', { ...of('workspace'), workspaceId: `ws_${'3'.repeat(16)}` }],
      [
        'ratelimits[0].used',
        {
          ...of('key'),
          keyId: undefined,
          hash: Buffer.alloc(32, 9).toString('base64'),
          ratelimits: [
            {
              name: 'used',
              limit: 5,
              duration: dayMs,
              used: [
                [now, 1],
                [now, 1],
              ],
            },
          ],
        },
      ],
      [
        'ratelimits[0].former.period',
        {
          ...of('key'),
          keyId: undefined,
          hash: Buffer.alloc(32, 10).toString('base64'),
          ratelimits: [
            {
              name: 'slots',
              limit: 5,
              duration: hourMs,
              type: 'concurrency',
              until: now,
              former: { limit: 5, duration: hourMs, period: 'hour', autoApply: false },
            },
          ],
        },
      ],
      ['', { kind: 'key', name: 'x'.repeat(10 * 1024 * 1024) }],
    ];
    const text = textOf([...all.slice(0, -1), ...bad.map(([, line]) => line)]);
    const { code, out } = await cli(['import', '-'], redis.url, text);
    expect(code).toBe(1);
    expect(linesOf(out).map((line) => (line.errors as unknown as { field: string }[])[0]!.field)).toEqual(
      bad.map(([field]) => field),
    );
    await importInto(redis.url, exported);
    await expectWhole(redis.url);
  });
});

test('open holds are exported as at their expiry, and a debt is one afterwards', async () => {
  const { apiId } = await ok('apis.createApi', { name: 'holds' });
  const ratelimits = [{ name: 'daily', limit: 1000, duration: 2 * dayMs, autoApply: true }, yearly];
  await ok('identities.createIdentity', { externalId: 'holding', credits: { remaining: 200 } });
  const owned = { apiId, externalId: 'holding' };
  const { key, keyId } = await ok('keys.createKey', { ...owned, credits: { remaining: 100 }, ratelimits });
  const held = (cost: number, onExpiry: 'release' | 'charge') =>
    ok('keys.verifyKey', {
      key,
      credits: { cost },
      ratelimits: ['daily', 'yearly'].map((name) => ({ name, cost: 10 * cost })),
      hold: { ttl: hourMs, onExpiry },
    });
  const { hold } = await held(20, 'release');
  await held(30, 'charge');
  const text = await exportTo(newFile());
  // The key that was exported still holds.
  expect((await ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 50 });
  const redis = await emptyRedis();
  await importInto(redis.url, text);
  const call = (await serverOn(redis.url)).callAs(tollgate.rootKey);
  expect(await call('keys.settleHold', { holdId: hold!.id })).toMatchObject({ status: 404 });
  expect((await call('keys.verifyKey', { key })).data).toMatchObject({
    credits: 69,
    identity: { credits: 169 },
    ratelimits: [{ remaining: 699 }, { remaining: 699 }],
  });
});

describe('temporary limits that have ended', () => {
  const anchor = now - 10 * dayMs;
  const monthly = { period: 'month', anchor, autoApply: true } as const;
  const formers = [
    { name: 'same', limit: 100, ...monthly },
    { name: 'weekly', limit: 100, period: 'week', anchor, autoApply: true },
    { name: 'window', limit: 100, duration: 10 * dayMs, autoApply: true },
    { name: 'wider', limit: 100, duration: 10 * dayMs, autoApply: true },
    { name: 'slots', limit: 5, duration: hourMs, type: 'concurrency' },
  ] as const;
  const temporary = [
    { name: 'same', limit: 500, ...monthly },
    { name: 'weekly', limit: 500, ...monthly },
    { name: 'window', limit: 500, duration: 10 * dayMs, autoApply: true },
    { name: 'wider', limit: 500, duration: 20 * dayMs, autoApply: true },
    { name: 'slots', limit: 9, duration: 2 * hourMs, type: 'concurrency' },
    // Of these the plan has one.
    { name: 'requests', limit: 500, ...monthly },
    { name: 'extra', limit: 500, duration: 10 * dayMs, autoApply: true },
  ] as const;

  /** A workspace with a key that has these limits and a plan, and one whose identity has them, until a time. */
  async function makeOwners(until: number) {
    const { workspaceId, rootKey } = await tollgate.createWorkspace();
    const make = (async (name: never, input: never) =>
      (await tollgate.call(name, input, rootKey)).data) as unknown as typeof ok;
    await make('plans.createPlan', { planId: 'pro', ratelimits: [{ name: 'requests', limit: 50, ...monthly }] });
    const { apiId } = await make('apis.createApi', { name: 'ended' });
    const given = { planId: 'pro', ratelimits: [...formers] };
    await make('identities.createIdentity', { externalId: 'acme', ...given });
    const ofIdentity = await make('keys.createKey', { apiId, externalId: 'acme' });
    const ofKey = await make('keys.createKey', { apiId, ...given });
    const verifyEach = async (times: number) => {
      for (let n = 0; n < times; n++)
        for (const { key } of [ofKey, ofIdentity])
          expect(await make('keys.verifyKey', { key })).toMatchObject({ valid: true });
    };
    await verifyEach(4);
    const ratelimits = temporary.map((limit) => ({ ...limit, until }));
    await make('keys.updateKey', { keyId: ofKey.keyId, ratelimits });
    await make('identities.updateIdentity', { identity: 'acme', ratelimits });
    await verifyEach(3);
    return { workspaceId, rootKey, ofKey, ofIdentity };
  }

  test.each([
    ['before the export', -hourMs],
    ['between export and import', hourMs],
  ])('%s: the former ones and the plan are in force, and counts stay', async (_when, ends) => {
    clock.now = now - 2 * hourMs;
    const { workspaceId, rootKey, ofKey, ofIdentity } = await makeOwners(now + ends);
    const text = await exportTo(newFile(), '--workspace', workspaceId);
    expect(text.includes('"until"')).toBe(ends > 0);
    const redis = await emptyRedis();
    const ended = text.replaceAll(`"until":${now + ends}`, `"until":${now - 1000}`);
    expect(await importInto(redis.url, ended)).toMatchObject({ refused: 0, created: { key: 2, identity: 1, plan: 1 } });
    const imported = (await serverOn(redis.url)).callAs(rootKey);
    clock.now = now + 2 * hourMs;
    const here = tollgate.call as unknown as (name: string, input: object, rootKey: string) => ReturnType<Call>;
    try {
      for (const call of [imported, (name: string, input: object) => here(name, input, rootKey)] as Call[]) {
        const { ratelimits: ofRecord } = (await call('identities.getIdentity', { identity: 'acme' })).data;
        expect((await call('keys.getKey', { keyId: ofKey.keyId })).data.ratelimits).toMatchObject(formers);
        expect(ofRecord).toMatchObject(formers);
        for (const { key } of [ofKey, ofIdentity])
          expect((await call('keys.verifyKey', { key })).data.ratelimits).toMatchObject([
            { name: 'same', limit: 100, remaining: 92 },
            { name: 'weekly', limit: 100, remaining: 95 },
            { name: 'window', limit: 100, remaining: 92 },
            { name: 'wider', limit: 100, remaining: 95 },
            { name: 'requests', limit: 50, remaining: 42 },
          ]);
        // The count of a limit that is added again continues.
        const extra = { name: 'extra', limit: 500, duration: 10 * dayMs, autoApply: true };
        await call('identities.updateIdentity', { identity: 'acme', ratelimit: extra });
        expect((await call('keys.verifyKey', { key: ofIdentity.key })).data.ratelimits).toContainEqual(
          expect.objectContaining({ name: 'extra', remaining: 496 }),
        );
      }
    } finally {
      clock.now = now;
    }
  });
});
