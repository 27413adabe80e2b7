// What every kind of record and every operation needs, in the tables and pages that name all of them. Nothing runs
// here, so this file is the first of the quick check, and names what a new one lacks within seconds.

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { actions } from '../src/domain/grants.ts';
import { limitValues } from '../src/domain/limit.ts';
import { recordKinds } from '../src/domain/records.ts';
import { errorCatalogue } from '../src/errors.ts';
import type { AnyOperation } from '../src/operation.ts';
import { operations as registry } from '../src/operations/index.ts';
import { newKeyFields } from '../src/operations/keys/keyFields.ts';
import { keyFilters } from '../src/operations/keys/listKeys.ts';
import { readLua } from '../src/scripts/library.ts';
import { repositoryFiles } from './support/references.ts';

const read = (path: string) => readFileSync(new URL(`../${path}`, import.meta.url), 'utf8');
const operations: readonly AnyOperation[] = registry;
const named = (all: readonly AnyOperation[]) => all.map(({ name }) => name).sort();
/** The operations that a text has in quotes. */
const inText = (text: string) => operations.filter(({ name }) => text.includes(`'${name}'`));
const contract = read('docs/contract.md');

describe('kinds of records', () => {
  test('their ids and grants are in the contract', () => {
    const prefixes = /Prefixes: `([a-z ]+)`/.exec(contract)![1]!.split(' ');
    expect(prefixes).toEqual(expect.arrayContaining(recordKinds.map(([, { prefix }]) => prefix)));
    const documented = [...contract.matchAll(/^\| `(\w+)` \| [^|]+ \| ((?:`\w+` ?)+)\|$/gm)].map(
      ([, resource, names]) => [resource, names!.match(/\w+/g)!.sort()],
    );
    expect(Object.fromEntries(documented)).toEqual(
      Object.fromEntries(Object.entries(actions).map(([resource, all]) => [resource, [...all].sort()])),
    );
  });

  test('their errors are in the contract', () => {
    const codes = errorCatalogue.map(({ code, status }) => `| \`${code}\` | ${status} |`);
    expect(codes.filter((row) => !contract.includes(row))).toEqual([]);
  });

  test('each counts for RECORDS_MAX: in a list of the workspace, or in a field', () => {
    const lists = /function name_of\.record_lists[\s\S]*?\nend/.exec(read('lua/include/nameOf.lua'))![0];
    const fields = new Set(read('lua/include/records.lua').match(/'\w+_records'/g));
    expect(lists.match(/workspace \.\. ':/g)!.length + fields.size).toBe(recordKinds.length);
  });

  test('events of the audit log name one of them, or the workspace', () => {
    const types = [...readLua().values()].flatMap((text) =>
      [...text.matchAll(/^audit\(\s*workspace,\s*now,\s*actor,\s*'(\w+)'/gm)].map((match) => match[1]),
    );
    expect(new Set(types)).toEqual(new Set([...recordKinds.map(([kind]) => kind), 'workspace']));
  });
});

describe('fields of a key', () => {
  const screens = ['key', 'keyActs', 'newKey'].map((name) => read(`src/console/screens/${name}.tsx`)).join('\n');
  const places: [string, string, string[]][] = [
    // A filter is named as the field, in the singular. Limits and addresses are of one key: nobody searches by them.
    ['keys.listKeys', JSON.stringify(keyFilters), ['ratelimits', 'allowedIps']],
    ['the console', screens, []],
    ['the command line', read('src/cli/keyCommands.ts'), []],
  ];

  test.each(places)('%s has each of them', (_place, text, without) => {
    const isThere = (name: string) => new RegExp(`\\b${name.replace(/s$/, '')}`).test(text);
    expect(Object.keys(newKeyFields).filter((name) => !isThere(name))).toEqual(without);
  });
});

describe('fields of a limit', () => {
  test('are in the objects of the contract, and in the first response of README', () => {
    const rows = ['RatelimitRequest', 'Ratelimit'].map((name) => contract.split(`\n| ${name} |`)[1]!.split('\n')[0]!);
    const printed = /"ratelimits":\[(\{"id":"rl_[^}]*\})/.exec(read('README.md'))![1]!;
    for (const field of Object.keys(limitValues)) {
      for (const row of rows) expect(row).toMatch(new RegExp(`\\b${field}\\b`));
      // A window has no type in responses.
      if (field !== 'type') expect(printed).toContain(`"${field}":`);
    }
  });
});

describe('operations', () => {
  test('each has a test of its own', () => {
    const tests = repositoryFiles()
      .filter((path) => path.startsWith('test/operations/'))
      .map(read)
      .join('\n');
    expect(named(operations.filter((operation) => !inText(tests).includes(operation)))).toEqual([]);
  });
});
