// The slot of a large workspace moves in one step from one node of a Cluster to another, which Valkey 9 can: under
// load, with as many stored keys as take seconds name by name.

import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { workspaceKey } from '../../src/redis/names.ts';
import { type RedisNode, redisNodes, until } from '../support/redisNodes.ts';
import { valkey9 } from '../support/valkey.ts';
import { report } from './report.ts';
import { confirmed, expectAnswered, firstSuccessAfter, limit, openTenants, type Tenant } from './tenants.ts';

const keys = 20_000;
const commandTimeoutMs = 10_000;
/** The first slots after those of each master. */
const bounds = [5461, 10_923, 16_384];
const valkey = valkey9();
const missing = 'missing' in valkey ? valkey.missing : undefined;
if (missing) console.warn(`Valkey 9 is not tested: ${missing}`);

/** The word after a name, as `GETSLOTMIGRATIONS` lists a move. */
const wordAfter = (words: unknown[], name: string) => words[words.indexOf(name) + 1];

describe.skipIf(missing)(`a Cluster of Valkey 9${missing ? ` (SKIPPED: ${missing})` : ''}`, () => {
  const nodes = redisNodes('program' in valkey ? valkey.program : undefined);
  let masters: RedisNode[];
  let url: string;
  beforeAll(async () => {
    ({ masters, url } = await nodes.startCluster({ configuration: ['--appendonly', 'yes'] }));
  });
  afterAll(nodes.stop);

  /** Those of the slot on a node. */
  const storedOn = ({ admin }: RedisNode, slot: number) => admin.cluster('COUNTKEYSINSLOT', slot) as Promise<number>;

  const lastMove = async ({ admin }: RedisNode) =>
    wordAfter(((await admin.call('CLUSTER', 'GETSLOTMIGRATIONS')) as unknown[][])[0]!, 'state');

  async function startMove(slot: number, from: RedisNode, to: RedisNode): Promise<void> {
    const toId = (await to.admin.cluster('MYID')) as string;
    await from.admin.call('CLUSTER', 'MIGRATESLOTS', 'SLOTSRANGE', slot, slot, 'NODE', toId);
  }
  async function move(slot: number, from: RedisNode, to: RedisNode): Promise<void> {
    await startMove(slot, from, to);
    await until('the move', 60_000, async () => (await lastMove(from)) === 'success');
  }

  /** A workspace with many keys, its slot, the node that has it, and the next one. */
  async function openMoved() {
    // A long timeout: no request times out, so a request with 503 was not charged.
    const tenants = await openTenants(url, commandTimeoutMs);
    const moved = await tenants.createTenant();
    const { rootKey, apiId } = moved;
    const slot = (await masters[0]!.admin.cluster('KEYSLOT', workspaceKey(moved.workspaceId))) as number;
    const at = bounds.findIndex((bound) => slot < bound);
    for (let made = 0; made < keys; made += 100) {
      const some = Array.from({ length: 100 }, () => tenants.ok('keys.createKey', rootKey, { apiId }));
      await Promise.all(some);
    }
    return { tenants, moved, slot, from: masters[at]!, to: masters[(at + 1) % 3]! };
  }

  const wellAfter = (atMs: number, { verified }: Tenant) =>
    until('well again', 20_000, async () => firstSuccessAfter(atMs, verified) !== undefined);
  const usedUp = ({ limited, checked }: Tenant) =>
    until('the limits are used up', 20_000, async () => [limited, checked].every(({ length }) => length > limit + 100));

  test('a slot of many keys moves there and back in one step, under load', async () => {
    const { tenants, moved, slot, from, to } = await openMoved();
    const names = await storedOn(from, slot);
    expect(names).toBeGreaterThan(keys);

    const load = tenants.load(moved);
    const loaded = (atLeast: number) => until('load', 20_000, async () => moved.verified.length > atLeast);
    await loaded(60);
    const movingAtMs = performance.now();
    await move(slot, from, to);
    const movedAtMs = performance.now();
    expect(await storedOn(to, slot)).toBeGreaterThanOrEqual(names);
    await wellAfter(movedAtMs, moved);
    await loaded(moved.verified.length + 60);
    await move(slot, to, from);
    const backAtMs = performance.now();
    await wellAfter(backAtMs, moved);
    await usedUp(moved);
    await load.stop();

    const { answered, refused, longestMs } = expectAnswered(moved, commandTimeoutMs);
    expect(await tenants.stored(moved)).toEqual({ ...confirmed(moved), limited: limit, checked: limit });
    expect((await tenants.ok('apis.createApi', moved.rootKey, { name: 'after' })).apiId).toMatch(/^api_/);
    await tenants.close();
    report({
      order: '5.3c',
      fault:
        'Valkey 9 moves the slot of a large workspace in one step (`CLUSTER MIGRATESLOTS`), there and back, under load',
      expected: 'responses of 200 are correct and charged once, those of 503 are not charged',
      measured: `${names} names moved in ${Math.round(movedAtMs - movingAtMs)} ms: ${answered} answered, ${refused} refused, none after ${longestMs} ms`,
    });
  }, 180_000);

  test.each([
    ['receives', '5.3d'],
    ['sends', '5.3e'],
  ] as const)(
    'the node that %s the slot is killed in the middle: all of the slot is on one node',
    async (side, order) => {
      const { tenants, moved, slot, from, to } = await openMoved();
      const killed = side === 'sends' ? from : to;
      const names = await storedOn(from, slot);
      const load = tenants.load(moved);
      await until('load', 20_000, async () => moved.verified.length > 60);
      await startMove(slot, from, to);
      // It takes some hundred milliseconds: mostly, only a part has arrived.
      await delay(50);
      killed.process.kill('SIGKILL');
      killed.restart();
      const killedAtMs = performance.now();
      await until('the nodes agree', 30_000, async () => {
        const states = await Promise.all(masters.map(({ admin }) => admin.cluster('INFO') as Promise<string>));
        return states.every((state) => state.includes('cluster_state:ok'));
      });
      await wellAfter(killedAtMs, moved);
      await usedUp(moved);
      await load.stop();

      const there = await Promise.all([from, to].map((node) => storedOn(node, slot)));
      const hasStayed = there[1] === 0;
      expect(there[hasStayed ? 0 : 1]).toBeGreaterThanOrEqual(names);
      expect(there[hasStayed ? 1 : 0]).toBe(0);
      const { answered, refused, longestMs } = expectAnswered(moved, commandTimeoutMs);
      const stored = await tenants.stored(moved);
      await tenants.close();
      // A node that is killed may lose its last second.
      if (side === 'receives' && hasStayed)
        expect(stored).toEqual({ ...confirmed(moved), limited: limit, checked: limit });
      const backMs = Math.round(firstSuccessAfter(killedAtMs, moved.verified)! - killedAtMs);
      report({
        order,
        fault: `The node that ${side} the slot is killed (kill -9) in the middle of such a move, and started again`,
        expected: 'all of the slot is on one node; responses of 200 are correct',
        measured: `${names} names, on the ${hasStayed ? 'old' : 'new'} node: ${answered} answered, ${refused} refused, none after ${longestMs} ms; first success ${backMs} ms after the kill`,
      });
    },
    180_000,
  );
});
