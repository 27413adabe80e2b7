import { describe, expect, test } from 'vitest';
import { packId, unpackId } from '../../../src/domain/keyString.ts';
import { harness } from '../../support/harness.ts';
import { onlyInvalidAt } from '../../support/invalid.ts';

const app = harness();
const { call, ok } = app;

describe('apis.createApi: 200', () => {
  test('creates an API, which can be read, and in which keys can be created, immediately', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'payments' });
    expect(apiId).toMatch(/^api_[1-9A-HJ-NP-Za-km-z]{16}$/);
    expect(await ok('apis.getApi', { apiId })).toMatchObject({ id: apiId, name: 'payments', keyCount: 0 });
    expect((await call('keys.createKey', { apiId })).status).toBe(200);
  });

  test('the same name again creates another API', async () => {
    const [first, second] = [
      await ok('apis.createApi', { name: 'twice' }),
      await ok('apis.createApi', { name: 'twice' }),
    ];
    expect(second.apiId).not.toBe(first.apiId);
  });

  test('an imported API whose number is next keeps its keys', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'first' });
    const actor = { rootKeyId: 'cli', operation: 'cli.import', requestId: '' };
    const imported: string[] = [];
    for (const more of [1, 2]) {
      const id = packId(apiId.slice('api_'.length));
      id.writeUIntBE(id.readUIntBE(6, 6) + more, 6, 6);
      imported.push(`api_${unpackId(id)}`);
      const again = { apiId: imported.at(-1)!, name: `imported ${more}` };
      expect(await app.store.apis.createAgain(app.workspaceId, again, actor)).toBe(true);
    }
    const { apiId: made } = await ok('apis.createApi', { name: 'second' });
    expect(imported.map((id) => id.slice(-8))).not.toContain(made.slice(-8));
    for (const [at, id] of imported.entries())
      expect(await ok('apis.getApi', { apiId: id })).toMatchObject({ name: `imported ${at + 1}` });
  });

  test('ids ascend, also within one millisecond', async () => {
    const ids = await Promise.all(Array.from({ length: 50 }, () => ok('apis.createApi', { name: 'many' })));
    const apiIds = ids.map(({ apiId }) => apiId);
    expect(new Set(apiIds).size).toBe(50);
    expect([...apiIds].sort()).toEqual(apiIds);
  });

  test.each(['abc', 'a'.repeat(256), '\u{1f511}'.repeat(3), '\u{1f511}'.repeat(256), 'a b\n"\u0000\u2028{}'])(
    'the name %j comes back as it is',
    async (name) => {
      const { apiId } = await ok('apis.createApi', { name });
      expect((await ok('apis.getApi', { apiId })).name).toBe(name);
    },
  );
});

describe('apis.createApi: 400', () => {
  test.each([
    'ab',
    '',
    'a'.repeat(257),
    // Lengths are in characters, here of two UTF-16 units each.
    '\u{1f511}'.repeat(2),
    '\u{1f511}'.repeat(257),
  ])('the name %j', async (name) => {
    expect(await call('apis.createApi', { name })).toMatchObject(onlyInvalidAt('body.name'));
  });
});
