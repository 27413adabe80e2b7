// A storm of refusals on a real server with two workers and leases: no customer who is refused once meanwhile is left
// out, and every refusal is counted.

import { expect, onTestFinished, test } from 'vitest';
import type { OperationName } from '../../src/operations/index.ts';
import type { Called, InputOf, OutputOf } from '../support/harness.ts';
import { startRig } from './rig.ts';

/** Keys of the storm, connections, and customers who are refused once. */
const [stormKeys, connections, customers] = [300, 24, 20];

test('of two workers: each of 20 customers is listed, and the counts are those of the answers', async () => {
  const rig = await startRig({ env: { WORKERS: '2' } });
  onTestFinished(() => rig.stop());
  async function call<Name extends OperationName>(name: Name, input: InputOf<Name>) {
    const response = await fetch(`http://127.0.0.1:${rig.port}/v2/${name}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${rig.rootKey}`, 'content-type': 'application/json' },
      body: JSON.stringify(input),
    });
    expect([name, response.status]).toEqual([name, 200]);
    return (await response.json()) as Pick<Called<OutputOf<Name>>, 'data' | 'pagination'>;
  }
  const { apiId } = (await call('apis.createApi', { name: 'storm' })).data;
  const create = async (count: number, input: (index: number) => object) => {
    const keys: { keyId: string; key: string }[] = [];
    while (keys.length < count) keys.push((await call('keys.createKey', { apiId, ...input(keys.length) })).data);
    return keys;
  };
  const storm = await create(stormKeys, () => ({}));
  const once = await create(customers, (index) => ({ externalId: `customer_${index}` }));

  let answers = 0;
  let isOver = false;
  const refuse = async ({ key }: { key: string }) => {
    const { data } = await call('keys.verifyKey', { key, permissions: 'documents.write' });
    expect(data.code).toBe('INSUFFICIENT_PERMISSIONS');
    answers++;
  };
  const floods = Array.from({ length: connections }, async (_, first) => {
    for (let index = first; !isOver; index += 7) await refuse(storm[index % stormKeys]!);
  });
  for (const customer of once) {
    const before = answers;
    await refuse(customer);
    // The storm goes on between two customers.
    while (answers < before + 200) await new Promise((resolve) => setImmediate(resolve));
  }
  isOver = true;
  await Promise.all(floods);

  for (const { keyId } of once) {
    const { data } = await call('analytics.listRefusals', { keyId });
    expect(data).toMatchObject([{ keyId, count: 1, permissions: 'documents.write' }]);
  }
  // What leases decided is settled a moment later. The storm may have crossed the end of an hour.
  const counted = async () => {
    const hours = new Map<number, number>();
    let cursor: string | undefined;
    do {
      const { pagination } = await call('analytics.listRefusals', { apiId, limit: 1000, ...(cursor && { cursor }) });
      for (const { time, refused } of pagination.counted!) hours.set(time, refused!);
      ({ cursor } = pagination);
    } while (cursor);
    return [...hours.values()].reduce((sum, refused) => sum + refused, 0);
  };
  await expect.poll(counted, { timeout: 10_000 }).toBe(answers);
  expect(answers).toBeGreaterThan(customers * 200);
});
