// Invalid cursors are refused with 400: those of another list, and those with other content than an id.

import { beforeAll, expect, test } from 'vitest';
import { type RecordName, records } from '../../src/domain/records.ts';
import type { ListedIds } from '../../src/operation.ts';
import { type OperationName, operations } from '../../src/operations/index.ts';
import { exampleOf, makeThings } from '../support/examples.ts';
import { harness } from '../support/harness.ts';
import { random, seed } from '../support/random.ts';

const tollgate = harness();
const { call, send } = tollgate;

const base58 = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';
const encoded = (text: string) => Buffer.from(text).toString('base64url');

interface List {
  operation: OperationName;
  input: object;
  prefix: string;
  /** Of the ids after their prefix, or the kind of ids without one. */
  length: number | 'stream' | 'row' | 'customer' | 'refusal' | 'hold' | 'temporary';
}
/** Of every operation that is a list: its example, and inputs of other lists. */
let lists: List[];
beforeAll(async () => {
  const things = await makeThings(call, tollgate.rootKey);
  const others: { [Name in OperationName]?: object[] } = {
    'apis.listKeys': [{ apiId: things.apiId }],
    'keys.listKeys': [{}, { apiId: things.apiId, order: 'desc', search: 'a' }],
    'audit.listEvents': [{ order: 'desc' }],
    'analytics.getVerifications': [{ granularity: 'total' }],
  };
  lists = operations.flatMap((each) => {
    const operation: OperationName = each.name;
    const declared = 'listedIds' in each ? each.listedIds : undefined;
    if (!declared) return [];
    return [exampleOf(operation).input(things), ...(others[operation] ?? [])].map((input) => {
      const listedIds: ListedIds = typeof declared === 'function' ? declared(input as never) : declared;
      const kind = records[listedIds as RecordName] as { prefix: string; idLength?: number } | undefined;
      const { prefix, length } = kind
        ? { prefix: `${kind.prefix}_`, length: kind.idLength ?? 16 }
        : { prefix: '', length: listedIds as Exclude<List['length'], number> };
      return { operation, input, prefix, length };
    });
  });
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
  const customers = ['489900-489924-0123456789ab', '0-9999999-0123456789ab.', '1-2-0123456789ab.a.b-c_D'];
  const refusals = ['489900_12', '0_0', '9999999_999999999'];
  const holds = ['1700000000000_.1', '0_.999999999999999', '1700000000000__own-1'];
  const temporary = [`i${'1'.repeat(16)}abc`, `k${'1'.repeat(24)}${'漢'.repeat(128)}`, `o${'1'.repeat(32)}`].map(
    (member, ends) => `${ends * 700_000_000_000}_${encoded(member)}`,
  );
  for (const list of lists) {
    const isStream = list.length === 'stream';
    const isRow = list.length === 'row';
    const isCustomer = list.length === 'customer';
    const isRefusal = list.length === 'refusal';
    const name = nameOf(list);
    const ofKind = {
      stream: streams.slice(1),
      row: rows,
      customer: customers,
      refusal: refusals,
      hold: holds,
      temporary,
    };
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
      ...[...Object.values(records).map(({ prefix }) => `${prefix}_`), 'x_', ''].flatMap((prefix) =>
        Array.from({ length: 30 }, (_, length) => length)
          .filter((length) => prefix !== list.prefix || length !== list.length)
          .map((length) => prefix + '1'.repeat(length)),
      ),
      ...(typeof list.length === 'number' ? [`${list.prefix}${'0'.repeat(list.length)}`] : []),
      ...(isRefusal ? ['1_', '_1', '1_1_1', '12345678_1', '1_1234567890', '1_-1'] : refusals),
      ...(isRow ? [] : rows),
      ...(isCustomer
        ? [
            ...customers.map((id) => `-${id}`),
            '1-2-0123456789ag',
            '1-2-0123456789ab.a~',
            `1-2-0123456789ab.${'a'.repeat(256)}`,
          ]
        : customers),
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
