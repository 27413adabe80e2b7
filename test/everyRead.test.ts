// test/support/everyRead.ts, by which stored data is compared before and after a change of its form.

import { expect, test } from 'vitest';
import { type Call, everyRead, reads } from './support/everyRead.ts';
import { makeThings } from './support/examples.ts';
import { dayMs, harness } from './support/harness.ts';
import { thoroughTest } from './support/testIf.ts';

const tollgate = harness();
const { call, clock, ok } = tollgate;
const send = call as Call;
const periodOf = () => ({ start: clock.now - 30 * dayMs, end: clock.now + 30 * dayMs });

test('two runs are equal, and have a response of every operation', async () => {
  const things = await makeThings(call, tollgate.rootKey);
  const options = { keys: [things.key], period: periodOf() };
  const first = await everyRead(send, options);
  expect(await everyRead(send, options)).toEqual(first);
  const succeeded = new Set(first.filter(({ status }) => status === 200).map(({ name }) => name));
  expect([...succeeded].sort()).toEqual(reads.map(({ name }) => name).sort());
  expect(JSON.stringify(first)).not.toContain(things.key);
});

thoroughTest('a changed record, balance, count and a record that was deleted are a difference', async () => {
  const things = await makeThings(call, tollgate.rootKey);
  const { apiId, keyId, key, name, roleId } = things;
  let before = await everyRead(send, { period: periodOf() });
  const changes: [string, () => Promise<unknown>][] = [
    ['name', () => ok('keys.updateKey', { keyId, name: 'another' })],
    ['balance', () => ok('keys.updateCredits', { keyId, operation: 'set', value: 5 })],
    ['count', () => ok('keys.verifyKey', { key, tags: ['new'] })],
    ['check', () => ok('ratelimits.limit', { namespace: name, identifier: 'counted', limit: 5, duration: 1000 })],
    ['override', () => ok('ratelimits.setOverride', { namespace: name, identifier: name, limit: 6, duration: 1000 })],
    ['role', () => ok('permissions.deleteRole', { role: roleId })],
    ['deleted', () => ok('keys.deleteKey', { keyId: things.keyId })],
    ['name of the API', () => ok('apis.updateApi', { apiId, name: 'renamed' })],
    ['api', () => ok('apis.deleteApi', { apiId, confirm: 'renamed' })],
  ];
  for (const [what, change] of changes) {
    await change();
    // Without what every change writes, so that the record itself is compared.
    const after = await everyRead(send, { period: periodOf() });
    const compared = (all: typeof after) => all.filter((read) => !/^(audit|system)\./.test(read.name));
    expect(compared(after), what).not.toEqual(compared(before));
    before = after;
  }
});

// The last test, because every read of its keys takes long.
test('reads all pages, and every record that they have', async () => {
  const { apiId } = await ok('apis.createApi', { name: 'pages' });
  const created: string[] = [];
  for (let count = 0; count < 130; count++) created.push((await ok('keys.createKey', { apiId })).keyId);
  const found = await everyRead(send, { period: periodOf() });
  const idsOf = (name: string, input: object) =>
    found
      .filter((read) => read.name === name && JSON.stringify(read.input) === JSON.stringify(input))
      .flatMap(({ data }) => data as { keyId: string }[])
      .map(({ keyId }) => keyId);
  expect(idsOf('keys.listKeys', { apiId })).toEqual(created);
  expect(created.flatMap((keyId) => idsOf('keys.getKey', { keyId }))).toEqual(created);
});
