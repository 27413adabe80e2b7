// A change of many keys at once ends the leases of all of them, on every server, before it is answered.

import { expect, test } from 'vitest';
import { heldServers } from './heldServers.ts';

const held = heldServers(2);
const [changer, holder] = held.servers as [typeof held.first, typeof held.first];

test.each([
  ['disabled', { enabled: false }, 'DISABLED'],
  ['expired', { expires: 1 }, 'EXPIRED'],
  ['deleted', { deleted: true }, 'NOT_FOUND'],
] as const)('keys that are %s', async (_how, change, code) => {
  const { apiId } = await changer.ok('apis.createApi', { name: 'many' });
  const keys: { keyId: string; key: string }[] = [];
  for (let index = 0; index < 3; index++) keys.push(await changer.ok('keys.createKey', { apiId }));
  for (const { key } of keys)
    await held.untilGranted(holder, async () => (await holder.ok('keys.verifyKey', { key })).valid);
  const { changed } = await changer.ok('keys.changeKeys', { keyIds: keys.map(({ keyId }) => keyId), change });
  expect(changed).toHaveLength(3);
  for (const { key } of keys) expect(await holder.ok('keys.verifyKey', { key })).toMatchObject({ code });
});
