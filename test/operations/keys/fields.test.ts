// Every field of a key, in every operation that takes or returns it, and in an export and an import. The examples are
// in test/support/keyExamples.ts.

import { createHash, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { beforeAll, describe, expect, test } from 'vitest';
import { keyLine, readLine } from '../../../src/cli/keyLines.ts';
import { cliActor } from '../../../src/records/rootKeys.ts';
import { harness } from '../../support/harness.ts';
import { onlyInvalidAt } from '../../support/invalid.ts';
import {
  fieldExamples,
  fieldNames,
  inputExamples,
  keyWithAll,
  makeExampleRecords,
  type NewKeyInput,
  recordOf,
} from '../../support/keyExamples.ts';

const app = harness();
const { call, ok, createKey, createWorkspace } = app;
let apiId: string;
beforeAll(async () => {
  ({ apiId } = await ok('apis.createApi', { name: 'test' }));
  await makeExampleRecords(ok);
});

const read = (keyId: string) => ok('keys.getKey', { keyId });
const newHash = () => createHash('sha256').update(randomUUID()).digest('base64');
const bare = ['apiId', 'createdAt', 'enabled', 'keyId', 'start'];

async function migrate(fields: NewKeyInput) {
  const input = { migrationId: 'fields', apiId, keys: [{ hash: newHash(), ...fields }] };
  return (await ok('keys.migrateKeys', input)).migrated[0]!.keyId;
}

const cases: [string, NewKeyInput, NewKeyInput, object][] = [
  ...fieldNames.map((name): [string, NewKeyInput, NewKeyInput, object] => {
    const { values, removed } = fieldExamples[name];
    return [name, { [name]: values[0] }, { [name]: values[1] }, { [name]: removed }];
  }),
  [
    'all together',
    keyWithAll(0),
    keyWithAll(1),
    Object.fromEntries(fieldNames.map((name) => [name, fieldExamples[name].removed])),
  ],
];

describe.each(cases)('the field of a key: %s', (_name, first, second, removed) => {
  test('is returned as createKey and migrateKeys took it, by all that read a key', async () => {
    const { keyId, key } = await createKey({ apiId, ...first });
    const record = await read(keyId);
    expect(record).toMatchObject(recordOf(first));
    expect(await ok('keys.whoami', { key })).toEqual(record);
    const listed = await ok('apis.listKeys', { apiId });
    expect(listed.find((each) => each.keyId === keyId)).toEqual(record);
    expect(await read(await migrate(first))).toMatchObject(recordOf(first));
  });

  test('is changed, kept and removed by updateKey', async () => {
    const { keyId } = await createKey({ apiId, ...first });
    await ok('keys.updateKey', { keyId, ...second });
    const changed = await read(keyId);
    expect(changed).toMatchObject(recordOf(second));
    await ok('keys.updateKey', { keyId });
    expect(await read(keyId)).toEqual(changed);
    await ok('keys.updateKey', { keyId, ...removed });
    expect(Object.keys(await read(keyId)).sort()).toEqual([...bare, 'updatedAt'].sort());
    await ok('keys.updateKey', { keyId, ...second });
    expect(await read(keyId)).toMatchObject(recordOf(second));
  });

  test('is in the events of createKey and updateKey in the audit log', async () => {
    const { keyId } = await createKey({ apiId, ...first });
    await ok('keys.updateKey', { keyId, ...second });
    const events = await ok('audit.listEvents', { resource: { id: keyId } } as never);
    for (const { changes = [] } of events as { changes?: { field: string }[] }[]) {
      const named = changes.map(({ field }) => field.split('.')[0]);
      expect(named).toEqual(expect.arrayContaining(Object.keys(first)));
    }
    expect(events).toHaveLength(2);
  });

  test('is copied by rerollKey', async () => {
    const { keyId } = await createKey({ apiId, ...second });
    const successor = await ok('keys.rerollKey', { keyId, expiration: 0 });
    expect(await read(successor.keyId)).toMatchObject(recordOf(second));
  });

  test.each([
    ['first', first],
    ['second', second],
  ])('is in an export, and an import of its line (%s value)', async (_which, fields) => {
    const there = await createWorkspace();
    const context = {
      workspaceId: there.workspaceId,
      apiId: await app.store.apis.create(there.workspaceId, 'there', cliActor),
    };
    await makeExampleRecords((name, input) => call(name, input, there.rootKey));
    const { keyId } = await createKey({ apiId, ...fields });
    const line = await lineOf(app.workspaceId, apiId, keyId);
    const imported = readLine(Buffer.from(line), { metaBytesMax: 10_240, apiId: context.apiId });
    if (imported.kind !== 'key') throw new Error(imported.kind);
    const created = await app.store.keys.create(
      context.workspaceId,
      { apiId: context.apiId, keys: [imported.record.key], mayCreatePermissions: true },
      cliActor,
    );
    if (!('created' in created)) throw new Error(created.refused);
    const again = await lineOf(context.workspaceId, context.apiId, created.created[0]!);
    expect(withoutIds(again)).toEqual(withoutIds(line));
    const { data } = await call('keys.getKey', { keyId: created.created[0]! }, there.rootKey);
    expect(data).toMatchObject(recordOf(fields));
  });
});

async function lineOf(workspaceId: string, ofApi: string, keyId: string): Promise<string> {
  const { items } = (await app.store.keys.export(workspaceId, { apiId: ofApi, count: 1000 }))!;
  return keyLine(items.find((item) => item.keyId === keyId)!)[1];
}
const withoutIds = (line: string) => {
  const { ratelimits, ...key } = JSON.parse(line);
  // In another API the key and its limits get new ids.
  const limits = ratelimits?.map((limit: object) => ({ ...limit, id: '' }));
  return { ...key, apiId: '', keyId: '', ratelimits: limits };
};

const printed = (value: unknown) => JSON.stringify(value).slice(0, 40);

const invalid = fieldNames.flatMap((name) =>
  fieldExamples[name].invalid.map(([value, below = '']) => [name, printed(value), value, below] as const),
);

test.each(invalid)('400 for %s: %s', async (name, _text, value, below) => {
  const { keyId, apiId } = await createKey(keyWithAll(0));
  const before = await ok('apis.listKeys', { apiId });
  const keys = [{ hash: newHash() }, { hash: newHash(), [name]: value }];
  const refuses = (answer: Awaited<ReturnType<typeof call>>, at: string) => {
    expect(answer).toMatchObject({ status: 400, code: 'invalid_input' });
    expect(answer.error.errors[0]?.location).toBe(`${at}.${name}${below}`);
  };
  const changes = { keyId, ...keyWithAll(1), enabled: false, [name]: value };
  refuses(await call('keys.updateKey', changes as never), 'body');
  expect(await ok('apis.listKeys', { apiId })).toEqual(before);
  // Of a new key and in a line of an import, null is an absent value.
  if (value === null) return;
  refuses(await call('keys.createKey', { apiId, [name]: value } as never), 'body');
  refuses(await call('keys.migrateKeys', { migrationId: 'fields', apiId, keys } as never), 'body.keys[1]');
  expect(await ok('apis.listKeys', { apiId })).toEqual(before);
  const line = Buffer.from(JSON.stringify({ apiId: 'api_1111111111111111', hash: newHash(), [name]: value }));
  expect(() => readLine(line, { metaBytesMax: 10_240 })).toThrow(name);
});

const perHour = { name: 'requests', limit: 5, duration: 3_600_000 };
const nulls = (names: readonly string[]) => Object.fromEntries(names.map((name) => [name, null]));

test('null in any optional field of a new key means that it is absent', async () => {
  const ofCreateKey = nulls([...fieldNames, 'prefix', 'byteLength', 'recoverable']);
  const plain = await createKey({ apiId });
  const created = await ok('keys.createKey', { apiId, ...ofCreateKey } as never);
  // The same random bytes have one digit more or less.
  expect(Math.abs(created.key.length - plain.key.length)).toBeLessThan(2);
  const keys = [{ hash: newHash(), ...nulls(fieldNames) }];
  const { migrated } = await ok('keys.migrateKeys', { migrationId: 'nulls', apiId, keys } as never);
  const absent = { enabled: true, createdAt: expect.any(Number), apiId, start: expect.any(String) };
  for (const keyId of [plain.keyId, created.keyId, migrated[0]!.keyId])
    expect(await ok('keys.getKey', { keyId })).toEqual({ ...absent, keyId });
  // With others that have values, of which the metadata is read from the text of the body.
  for (const name of fieldNames) {
    const { [name]: _removed, ...others } = keyWithAll(0);
    const { keyId } = await ok('keys.createKey', { apiId, ...others, [name]: null } as never);
    expect(await ok('keys.getKey', { keyId })).toMatchObject(recordOf(others));
  }
});

test('null in a required field, and in a field of a field, is refused', async () => {
  const hash = newHash();
  for (const [field, answer] of [
    ['apiId', await call('keys.createKey', { apiId: null } as never)],
    ['credits.refill', await call('keys.createKey', { apiId, credits: { remaining: 1, refill: null } } as never)],
    [
      'ratelimits[0].autoApply',
      await call('keys.createKey', { apiId, ratelimits: [{ ...perHour, autoApply: null }] } as never),
    ],
    ['keys[0].hash', await call('keys.migrateKeys', { migrationId: 'nulls', apiId, keys: [{ hash: null }] } as never)],
    ['keys', await call('keys.migrateKeys', { migrationId: 'nulls', apiId, keys: null } as never)],
    [
      'keys[0].other',
      await call('keys.migrateKeys', { migrationId: 'nulls', apiId, keys: [{ hash, other: null }] } as never),
    ],
  ] as const)
    expect(answer).toMatchObject(onlyInvalidAt(`body.${field}`));
});

const inputs = Object.entries(inputExamples);

test.each(inputs)('a verification takes %s', async (name, { values }) => {
  const { key } = await createKey({ apiId, permissions: ['documents.read'] });
  for (const value of values) expect(await ok('keys.verifyKey', { key, [name]: value })).toMatchObject({ valid: true });
});

test.each(
  inputs.flatMap(([name, example]) =>
    example.invalid.map(([value, below = '']) => [name, printed(value), value, below] as const),
  ),
)('400 for a verification with %s: %s', async (name, _text, value, below) => {
  const answer = await call('keys.verifyKey', { key: 'unknown', [name]: value } as never);
  expect(answer.status).toBe(400);
  expect(answer.error.errors).toMatchObject([{ location: `body.${name}${below}` }]);
});

describe('docs/contract.md §6', () => {
  const contract = readFileSync('docs/contract.md', 'utf8');

  test('lists the fields of a key', () => {
    const [, list] = /^\*\*Fields of a key\*\*: `([^`]+)`/m.exec(contract)!;
    expect(list!.split(/\s+/).map((field) => /^\w+/.exec(field)![0])).toEqual(expect.arrayContaining(fieldNames));
    expect(list!.split(/\s+/)).toHaveLength(fieldNames.length);
  });

  test('states for each what null does in updateKey', () => {
    const [, table] = /^\| Field \| omitted \| null \| value \|\n\|[-|]+\n((?:\|.*\n)+)/m.exec(contract)!;
    const rows = table!.split('\n').map((row) => row.split('|')[1]?.trim() ?? '');
    expect(
      rows
        .flatMap((row) => row.split(', '))
        .filter((name) => /^\w+$/.test(name))
        .sort(),
      // `ratelimit` is the change of one limit, and no field.
    ).toEqual([...fieldNames, 'ratelimit'].sort());
  });

  test('lists the inputs of a verification', () => {
    const [, inputs] = /^\*\*verifyKey\*\*: ([\s\S]+?)The checks run/m.exec(contract)!;
    for (const name of Object.keys(inputExamples)) expect(inputs).toMatch(new RegExp(`\`${name}\\b`));
  });
});
