// analytics.tail with a Redis of several processes: a listener of one server hears the decisions of another, also when
// the Redis process to which its subscription is connected hangs.

import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest';
import type { PresentedRootKey } from '../../src/domain/caller.ts';
import { createRootKeyString, digestOf, digestTextOf } from '../../src/domain/keyString.ts';
import { cliActor } from '../../src/records/rootKeys.ts';
import { tailChannel } from '../../src/redis/names.ts';
import { openStore, type Store } from '../../src/store.ts';
import { testSettings } from '../support/harness.ts';
import { type RedisNode, redisNodes, until } from '../support/redisNodes.ts';
import { longTest } from '../support/testIf.ts';
import { startRig } from './rig.ts';

let redis: ReturnType<typeof redisNodes>;
let stores: Store[];
beforeEach(() => {
  redis = redisNodes();
  stores = [];
});
afterEach(async () => {
  await Promise.all(stores.map((store) => store.close()));
  await redis.stop();
});

async function openServer(url: string) {
  const store = await openStore({ ...testSettings, commandTimeoutMs: 1000, url });
  store.tail.watch();
  stores.push(store);
  return store;
}

/**
 * Two servers, of which one has a listener. `isHeard` decides on the other one, and returns whether the listener heard
 * of it.
 */
async function openServers(url: string) {
  const [listening, deciding] = [await openServer(url), await openServer(url)];
  const { workspaceId } = await deciding.workspaces.create('tailed');
  const { key, start } = createRootKeyString(workspaceId);
  const digest = digestOf(key);
  await deciding.rootKeys.create(workspaceId, { digest, start, permissions: ['*'] }, cliActor);
  const presented: PresentedRootKey = { workspaceId, digest, digestText: digestTextOf(key) };
  let heard = '';
  await listening.tail.listen(
    workspaceId,
    { verifications: { apiIds: true } },
    {
      take: (events) => {
        heard += events;
      },
      rootKeysChanged: () => {},
    },
  );
  let count = 0;
  async function isHeard() {
    const tag = `"tag${++count}"`;
    await deciding.decide.verifications
      .prepare(presented, {
        digest: digestTextOf('unknown'),
        cost: 1,
        tags: [tag.slice(1, -1)],
      })
      .decide();
    await new Promise((resolve) => setTimeout(resolve, 150));
    return heard.includes(tag);
  }
  await until('the decision is heard', 5000, isHeard);
  return { isHeard, workspaceId };
}

longTest(
  'the master of Sentinels hangs, and the connection of the subscription stays open',
  async () => {
    const { url, master } = await redis.startSentinels();
    const { isHeard } = await openServers(url);
    master.process.kill('SIGSTOP');
    await until('decisions are heard again', 20_000, isHeard);
  },
  60_000,
);

longTest(
  'the node of a Cluster that has the subscription hangs',
  async () => {
    const { url, masters, replicas } = await redis.startCluster({ replicasEach: 1 });
    const { isHeard, workspaceId } = await openServers(url);
    const channelsOf = ({ admin }: RedisNode) =>
      admin.pubsub('CHANNELS', tailChannel(workspaceId)) as Promise<string[]>;
    const nodes = [...masters, ...replicas];
    const channels = await Promise.all(nodes.map(channelsOf));
    const subscribed = nodes.filter((_, index) => channels[index]!.length > 0);
    expect(subscribed).toHaveLength(1);
    subscribed[0]!.process.kill('SIGSTOP');
    await until('decisions are heard again', 20_000, isHeard);
  },
  60_000,
);

test('a listener of one worker hears the decisions of all workers', async () => {
  const rig = await startRig({ env: { WORKERS: '2' } });
  onTestFinished(() => rig.stop());
  const post = (operation: string, body: object) =>
    fetch(`http://127.0.0.1:${rig.port}/v2/${operation}`, {
      method: 'POST',
      // Another connection each time, which any worker may accept.
      headers: { authorization: `Bearer ${rig.rootKey}`, 'content-type': 'application/json', connection: 'close' },
      body: JSON.stringify(body),
    });
  const stream = await post('analytics.tail', { outcome: 'NOT_FOUND' });
  let heard = '';
  void (async () => {
    for await (const chunk of stream.body!.pipeThrough(new TextDecoderStream())) heard += chunk;
  })().catch(() => {});
  // The other worker reads every two seconds what is wanted.
  await new Promise((resolve) => setTimeout(resolve, 2500));
  for (let index = 0; index < 40; index++) await post('keys.verifyKey', { key: 'unknown', tags: [`tag${index}`] });
  await expect.poll(() => heard.split('event: verification').length - 1, { timeout: 5000 }).toBe(40);
  expect(heard.match(/"sample":1}/g)).toHaveLength(40);
});
