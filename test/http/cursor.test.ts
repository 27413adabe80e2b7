// Invalid cursors are refused with 400: those of another list, and those with other content than an id.

import { beforeAll, expect, test } from 'vitest';
import { type OperationName, operations } from '../../src/operations/index.ts';
import { harness } from '../support/harness.ts';
import { random, seed } from '../support/random.ts';

const tollgate = harness();
const { ok, send, createKey } = tollgate;

const base58 = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';
const encoded = (text: string) => Buffer.from(text).toString('base64url');

/** For every list: an input, and the length of its ids after their prefix, or the kind of ids without one. */
const lists: {
  operation: OperationName;
  input: object;
  prefix: string;
  length: number | 'stream' | 'row' | 'refusal';
}[] = [];
beforeAll(async () => {
  const { apiId } = await createKey({ externalId: 'ada' });
  await ok('ratelimits.setOverride', { namespace: 'email', identifier: 'ada', limit: 1, duration: 1000 });
  lists.push(
    { operation: 'apis.listKeys', input: { apiId }, prefix: 'key_', length: 24 },
    { operation: 'apis.listKeys', input: { apiId, externalId: 'ada' }, prefix: 'key_', length: 24 },
    { operation: 'apis.listApis', input: {}, prefix: 'api_', length: 16 },
    { operation: 'apis.listApis', input: { order: 'desc', search: 'a' }, prefix: 'api_', length: 16 },
    { operation: 'ratelimits.listNamespaces', input: {}, prefix: 'rlns_', length: 16 },
    { operation: 'keys.listKeys', input: {}, prefix: 'key_', length: 24 },
    { operation: 'keys.listKeys', input: { apiId, order: 'desc', search: 'a' }, prefix: 'key_', length: 24 },
    { operation: 'identities.listIdentities', input: {}, prefix: 'id_', length: 16 },
    { operation: 'identities.listIdentities', input: { search: 'a' }, prefix: 'id_', length: 16 },
    { operation: 'permissions.listPermissions', input: {}, prefix: 'perm_', length: 16 },
    { operation: 'permissions.listRoles', input: {}, prefix: 'role_', length: 16 },
    { operation: 'ratelimits.listOverrides', input: { namespace: 'email' }, prefix: 'rlor_', length: 16 },
    { operation: 'rootKeys.listRootKeys', input: {}, prefix: 'root_', length: 16 },
    { operation: 'audit.listEvents', input: { order: 'asc' }, prefix: '', length: 'stream' },
    { operation: 'audit.listEvents', input: { order: 'desc' }, prefix: '', length: 'stream' },
    { operation: 'analytics.getVerifications', input: { granularity: 'total' }, prefix: '', length: 'row' },
    { operation: 'analytics.listRefusals', input: { apiId, limit: 1 }, prefix: '', length: 'refusal' },
  );
});

const statusOf = async (operation: OperationName, input: object, cursor: string) =>
  (await send(`/v2/${operation}`, { body: JSON.stringify({ ...input, cursor }) })).status;

/** The name of a list in its cursors. */
function nameOf({ operation, input }: (typeof lists)[number]): string {
  const found = operations.find(({ name }) => name === operation)! as { list?: (input: object) => string };
  return found.list!(input);
}

test('a cursor with an id in another format is 400; one with an unknown id is accepted', async () => {
  const streams = ['0-1', '1-0', '1700000000000-0', '1700000000000-12', '999999999999999-999999999999999'];
  const rows = [`489900-489924_3_0_${'a'.repeat(64)}`, `9999999-0_0_4102444800000_${'0'.repeat(64)}`];
  const refusals = ['489900_12', '0_0', '9999999_999999999'];
  for (const list of lists) {
    const isStream = list.length === 'stream';
    const isRow = list.length === 'row';
    const isRefusal = list.length === 'refusal';
    const name = nameOf(list);
    const ofKind = { stream: streams.slice(1), row: rows, refusal: refusals };
    const good = typeof list.length === 'number' ? [`${list.prefix}${'1'.repeat(list.length)}`] : ofKind[list.length];
    for (const id of good) {
      expect(await statusOf(list.operation, list.input, encoded(`${name} ${id}`)), `${name} ${id}`).toBe(200);
    }
    const bad = [
      '0-0',
      '00-00',
      '01-1',
      '1-01',
      '-',
      '+',
      '1',
      '18446744073709551615-18446744073709551615',
      '99999999999999999999999-1',
      '1-99999999999999999999999',
      ...(isStream ? [] : streams),
      ...['key_', 'id_', 'perm_', 'role_', 'rlor_', 'rlns_', 'root_', 'api_', 'x_', ''].flatMap((prefix) =>
        Array.from({ length: 30 }, (_, length) => length)
          .filter((length) => prefix !== list.prefix || length !== list.length)
          .map((length) => prefix + '1'.repeat(length)),
      ),
      ...(typeof list.length === 'number' ? [`${list.prefix}${'0'.repeat(list.length)}`] : []),
      ...(isRefusal ? ['1_', '_1', '1_1_1', '12345678_1', '1_1234567890', '1_-1'] : refusals),
      ...(isRow ? [] : rows),
      ...rows
        .flatMap((row) => [row.slice(0, -1), `${row}0`, row.replace('_', '-'), row.replace('a', 'g').slice(1)])
        .slice(0, 3),
    ];
    for (const id of bad) {
      expect(await statusOf(list.operation, list.input, encoded(`${name} ${id}`)), `${name} ${id}`).toBe(400);
    }
  }
});

test(`random cursors never cause a 500 (SEED=${seed})`, async () => {
  const pick = random(seed);
  const from = (characters: string, least: number, most: number) =>
    Array.from({ length: pick(least, most) }, () => characters[pick(0, characters.length - 1)]).join('');
  const makers = [
    () => `${from('0123456789', 1, 25)}-${from('0123456789', 1, 25)}`,
    () => from(`${base58}_`, 1, 40),
    () => `${['key', 'id', 'perm', 'role', 'rlor', 'root'][pick(0, 5)]}_${from(base58, 10, 30)}`,
    () => from('\0\n \u00ff\u{1f511}-+([0', 0, 20),
  ];
  for (const list of lists) {
    for (let round = 0; round < 300; round++) {
      const id = makers[pick(0, makers.length - 1)]!();
      const status = await statusOf(list.operation, list.input, encoded(`${nameOf(list)} ${id}`) || 'x');
      expect([200, 400], `${nameOf(list)} ${JSON.stringify(id)}`).toContain(status);
    }
  }
});
