// The commands that manage APIs, keys, identities, and read the audit log.

import { apiColumns, eventColumns, identityColumns, keyColumns } from '../domain/columns.ts';
import { idForms } from '../domain/records.ts';
import { bulkRows } from './bulkCommands.ts';
import type { InputOf, OutputOf } from './client.ts';
import {
  apiOption,
  type CommandRow,
  calls,
  confirmOption,
  constant,
  done,
  expiry,
  type Given,
  keyId,
  limitOption,
  listResult,
  metaOf,
  newestOption,
  ownerOption,
  period,
  permanentOption,
  readAll,
  recordResult,
  runs,
} from './commandRow.ts';
import { explainRow } from './explain.ts';
import { holdRows } from './holdCommands.ts';
import { identityLimitRow, keyLimitRow } from './limitCommands.ts';
import { overrideRows } from './overrideCommands.ts';
import { planOption, planOrNone, planRows } from './planCommands.ts';
import { refusalRows } from './refusalsCommand.ts';
import { columnsOf, durationOf, durationText, limitText, numberOf, tableOf, timeText } from './table.ts';
import { temporaryRow } from './temporaryCommand.ts';
import { usageRow } from './usageCommand.ts';

type Key = OutputOf<'keys.listKeys'>[number];

const creditsText = ({ remaining, debt }: NonNullable<Key['credits']>): string =>
  `${remaining}${debt === undefined ? '' : `, debt ${debt}`}`;

const debtText = ({ debt }: { debt?: number }): string => (debt === undefined ? '' : ` and a debt of ${debt}`);

/** A change of a balance as text; `without` removes it. */
function creditChangeOf(change: string, without: 'unlimited' | 'none') {
  const [, sign, number] = new RegExp(`^([+-]?)(\\d+|${without})$`).exec(change) ?? [];
  if (number === undefined) throw new Error(`${change} is not a balance. Use, for example, 500, +500 or ${without}.`);
  const operation = sign === '+' ? 'increment' : sign === '-' ? 'decrement' : 'set';
  return { operation, value: number === without ? null : numberOf(number, 'The balance') } as const;
}
const creditChange = (without: 'unlimited' | 'none') =>
  ({
    operation: ['<change>', (change: string) => creditChangeOf(change, without).operation],
    value: ['<change>', (change: string) => creditChangeOf(change, without).value],
  }) as const;

/** The balance that limits the use of a key: its own, else that of its identity. */
function balanceText({ credits, identity }: Key): string {
  if (credits) return creditsText(credits);
  return identity?.credits ? `${creditsText(identity.credits)} of its owner` : 'unlimited';
}

const keyTable = (_input: object, keys: readonly Key[]) => {
  const isDeleted = keys.some(({ restorableUntil }) => restorableUntil !== undefined);
  const until = isDeleted ? 'Can be restored until' : 'Expires';
  const names = ['Id', 'Key', 'Name', 'Customer', ...planColumn(keys), 'State', until, 'Credits', 'Last used'] as const;
  return columnsOf(keyColumns, names, { Credits: balanceText });
};

/** A new key. Its string is printed, and never stored. */
const newKeyLines = (what: string, { keyId, key }: { keyId: string; key: string }) => [
  `${what} ${keyId}. Its string is printed only once:`,
  key,
];

/**
 * Fast filters by what a text probably is, also for deleted keys. A search reads all keys, which takes 15 s for a
 * million. The beginning of a string has a prefix, or four characters at least.
 */
function filtersFor(wanted: string): InputOf<'keys.listKeys'>[] {
  const mayBeStart = /^\w{1,16}_[1-9A-HJ-NP-Za-km-z]{2,40}$|^[1-9A-HJ-NP-Za-km-z]{4,40}$/.test(wanted);
  const mayBeOwner = /^[\w.-]{1,255}$/.test(wanted);
  // The id of a key finds only that key.
  if (idForms.key.test(wanted)) return [{ search: wanted }, { search: wanted, deleted: true }];
  return [
    ...(mayBeStart ? [{ start: wanted }] : []),
    ...(mayBeOwner ? [{ externalId: wanted }] : []),
    ...(mayBeStart ? [{ start: wanted, deleted: true }] : []),
  ];
}

/** A value in the audit log, with its times and durations as elsewhere. */
function valueText(field: string, value = ''): string {
  if (/^(expires|until)$/.test(field) && /^\d+$/.test(value)) return timeText(Number(value));
  if (field !== 'ratelimits') return value;
  return value
    .replaceAll(/\b(\d+) ms\b/g, (_, ms) => durationText(Number(ms)))
    .replaceAll(/, until (\d{13})\b/g, (_, ms) => `, until ${timeText(Number(ms))}`);
}

const apiNames = ['Id', 'Name', 'Keys', 'Created'] as const;
const apiTable = ({ deleted }: { deleted?: boolean }) =>
  columnsOf(apiColumns, deleted ? ([...apiNames, 'Can be restored until'] as const) : apiNames, {});

type Identity = OutputOf<'identities.listIdentities'>[number];
const planColumn = (rows: readonly { planId?: string }[]) =>
  rows.some(({ planId }) => planId !== undefined) ? (['Plan'] as const) : [];
const identityTable = ({ deleted }: { deleted?: boolean }, identities: readonly Identity[]) => {
  const until = deleted ? (['Can be restored until'] as const) : [];
  const names = ['Id', 'Customer', ...planColumn(identities), 'Keys', 'Limits', 'Credits', ...until] as const;
  return columnsOf(identityColumns, names, {
    Limits: ({ ratelimits }: Identity) => ratelimits.map(limitText).join(', '),
    Credits: ({ credits }: Identity) => (credits ? creditsText(credits) : ''),
  });
};

type AuditEvent = OutputOf<'audit.listEvents'>[number];
const eventTable = columnsOf(eventColumns, ['Time, UTC', 'Root key', 'Operation', 'Resource', 'Changes'], {
  'Root key': ({ rootKeyName, rootKeyId, address }: AuditEvent) =>
    [rootKeyName, rootKeyId, address].filter(Boolean).join(' '),
  Changes: ({ changes = [] }: AuditEvent) =>
    changes
      .map(({ field, before, after, keyIds: { length } = [] }) => {
        const keys = length > 1 ? ` (${length} keys)` : '';
        return `${field}: ${valueText(field, before)} → ${valueText(field, after)}${keys}`;
      })
      .join('; '),
});

const deletedOption = ['--deleted', 'deleted ones that can be restored'] as const;
const past = (text: string, _of: string, nowMs: number) => Math.max(0, nowMs - durationOf(text));
const expiringOption = [
  '--expiring <duration>',
  'expiring within this time, such as 30d; the first to expire first, with --newest last',
] as const;
function expiresBefore({ expired, expiring }: Given, nowMs: number): number | undefined {
  if (expired && expiring !== undefined) throw new Error('--expired and --expiring exclude each other.');
  if (expiring !== undefined) return nowMs + durationOf(expiring as string);
  return expired ? nowMs : undefined;
}
/** Its error names the missing option, unlike that of Commander. */
const requiredApi = {
  options: [['--api <apiId>', 'its API (required)']],
  read({ api }: Given): string {
    if (api) return api as string;
    throw new Error('--api is required. `tollgate api list` prints the APIs.');
  },
} as const;

const apiRows: readonly CommandRow[] = [
  calls({
    words: 'api list',
    about: 'List the APIs.',
    operation: 'apis.listApis',
    sets: {
      search: ['--search <text>', 'only those whose id or name contains it'],
      deleted: deletedOption,
      order: newestOption,
    },
    prints: ['APIs', apiTable],
  }),
  calls({
    words: 'api create <name>',
    about: 'Create an API.',
    operation: 'apis.createApi',
    sets: { name: '<name>' },
    prints: ({ apiId }) => `Created API ${apiId}.`,
  }),
  calls({
    words: 'api rename <apiId> <name>',
    about: 'Rename an API. Its keys and its usage stay.',
    operation: 'apis.updateApi',
    sets: { apiId: '<apiId>', name: '<name>' },
    prints: (_, { apiId, name }) => `Renamed API ${apiId} to ${name}.`,
  }),
  calls({
    words: 'api delete <apiId>',
    about: 'Delete an API and all its keys, effective immediately. `api restore` undoes it until they are removed.',
    operation: 'apis.deleteApi',
    sets: { apiId: '<apiId>', confirm: confirmOption, permanent: permanentOption },
    confirms: (call, { apiId }) => call('apis.getApi', { apiId }).then(({ data }) => data.name),
    prints: (_, { apiId }) => `Deleted API ${apiId}.`,
  }),
  calls({
    words: 'api restore <apiId>',
    about: 'Restore a deleted API with all its keys. `api list --deleted` prints those that can be restored.',
    operation: 'apis.restoreApi',
    sets: { apiId: '<apiId>' },
    prints: (_, { apiId }) => `Restored API ${apiId}.`,
  }),
];

const keyRows: readonly CommandRow[] = [
  calls({
    words: 'key create',
    about: 'Create a key and print its string. It cannot be printed again.',
    operation: 'keys.createKey',
    sets: {
      apiId: requiredApi,
      name: ['--name <name>', 'a name'],
      prefix: ['--prefix <prefix>', 'the beginning of its string'],
      externalId: ['--owner <externalId>', 'the identity that it belongs to'],
      planId: planOption,
      expires: ['--expires <when>', 'a date such as 2027-01-31, or a duration from now such as 30d', expiry],
      'credits.remaining': ['--credits <n>', 'its balance; unlimited by default', numberOf],
      allowedIps: ['--allowed-ip <range...>', 'an IP address or CIDR range that may use it; any address by default'],
    },
    prints: (created) => newKeyLines('Created key', created),
  }),
  calls({
    words: 'key list',
    about: 'List keys, of all APIs or one.',
    operation: 'keys.listKeys',
    sets: {
      apiId: apiOption,
      externalId: ownerOption,
      search: ['--search <text>', 'only with this text in name, start, id, owner or metadata'],
      enabled: ['--disabled', 'only disabled ones', () => false],
      deleted: deletedOption,
      unusedSince: ['--unused <duration>', 'not used for this long, such as 90d', past],
      expiresBefore: {
        options: [expiringOption, ['--expired', 'expired ones, in the same order']],
        read: expiresBefore,
      },
      expiresAfter: [...expiringOption, (_text: string, _of: string, nowMs: number) => nowMs],
      creditsBelow: ['--credits-below <n>', 'with a balance of their own below this', numberOf],
      rerolledInUse: ['--rotated', 'rotated, and still used'],
      permission: ['--permission <slug>', 'with this permission, also through a role'],
      role: ['--role <name>', 'with this role'],
      planId: ['--plan <planId>', 'with this plan of their own'],
      order: newestOption,
    },
    prints: ['keys', keyTable],
  }),
  runs<{ apiId?: string; search: string; limit?: number }>({
    words: 'key find <text>',
    about:
      'Find keys by the beginning of the string, by owner, or by id or text in name, owner or metadata: the first of these that finds any. `-` reads a whole key from standard input.',
    sets: { apiId: apiOption, search: '<text>', limit: limitOption },
    async run(call, { search, limit: wanted, ...ofApi }, { readKey }) {
      if (search === '-') return recordResult((await call('keys.whoami', { key: await readKey() })).data);
      const find = (filter: InputOf<'keys.listKeys'>) =>
        readAll(wanted, (limit, next) => call('keys.listKeys', { ...filter, ...ofApi, limit, order: 'desc' }, next));
      for (const filter of filtersFor(search)) {
        const found = await find(filter);
        if (found.data.length > 0) return listResult('keys', found, keyTable({}, found.data));
      }
      const found = await find({ search });
      return listResult('keys', found, keyTable({}, found.data));
    },
  }),
  calls({
    words: 'key get <keyId>',
    about: 'Print a key.',
    operation: 'keys.getKey',
    sets: { keyId },
    prints: 'record',
  }),
  explainRow,
  ...bulkRows,
  calls({
    words: 'key rotate <keyId>',
    about: 'Create a successor of a key, and let the old key expire.',
    operation: 'keys.rerollKey',
    sets: {
      keyId,
      expiration: {
        options: [
          ['--grace <duration>', 'how long the old key stays valid, such as 1h; it expires at once by default'],
        ],
        read: ({ grace = '0s' }) => durationOf(grace as string),
      },
      credits: {
        options: [
          [
            '--copy-credits',
            'both keys have the credits; by default the new key has them, and the old key is charged to them',
          ],
        ],
        read: ({ copyCredits }) => (copyCredits ? 'copy' : 'move'),
      },
    },
    prints(made, { keyId, credits }) {
      const fate =
        credits === 'move'
          ? 'are those of the new key: until it expires, the old key is charged to them.'
          : 'can be spent twice: both keys have them.';
      return newKeyLines(`Rotated ${keyId}. Credits of the key, if it has any, ${fate} The new key is`, made);
    },
  }),
  calls({
    words: 'key credits <keyId> <change>',
    about: 'Change the balance of a key: `500` sets it, `+500` adds, `-500` subtracts, `unlimited` removes it.',
    operation: 'keys.updateCredits',
    sets: { keyId, ...creditChange('unlimited') },
    prints: (balance, { keyId }) =>
      done(`${keyId} has ${balance.remaining ?? 'unlimited'} credits${debtText(balance)}.`, { keyId, ...balance }),
  }),
  keyLimitRow,
  ...holdRows,
];

const otherRows: readonly CommandRow[] = [
  runs<{ text: string }>({
    words: 'find <text>',
    about:
      'Find keys, identities, APIs, plans, root keys and holds at once: by id, name, owner, the beginning of a key or its hash. `-` reads a whole key from standard input.',
    sets: { text: '<text>' },
    async run(call, { text }, { readKey }) {
      const { items } = (await call('system.find', { text: text === '-' ? await readKey() : text })).data;
      const rows = items.map(({ kind, deleted, id, name = '', start = '', externalId = '', apiId = '' }) => [
        ...[deleted ? `${kind}, deleted` : kind, id, name, start, externalId, apiId],
      ]);
      const lines = tableOf(['KIND', 'ID', 'NAME', 'KEY', 'CUSTOMER', 'API'], rows);
      return { lines: items.length > 0 ? lines : ['Nothing found.'], json: items };
    },
  }),
  calls({
    words: 'identity list',
    about: 'List the identities, which own keys.',
    operation: 'identities.listIdentities',
    sets: {
      search: ['--search <text>', 'only those whose id or externalId contains it'],
      creditsBelow: ['--credits-below <n>', 'with a balance below this', numberOf],
      planId: ['--plan <planId>', 'with this plan'],
      deleted: deletedOption,
    },
    prints: ['identities', identityTable],
  }),
  calls({
    words: 'identity get <owner>',
    about: 'Print an identity, by its id or externalId.',
    operation: 'identities.getIdentity',
    sets: { identity: '<owner>' },
    prints: 'record',
  }),
  calls({
    words: 'identity create <owner>',
    about: 'Create an identity with this externalId.',
    operation: 'identities.createIdentity',
    sets: {
      externalId: '<owner>',
      planId: planOption,
      meta: ['--meta <json>', 'metadata, such as `{"seats":5}`', metaOf],
      'credits.remaining': ['--credits <n>', 'a balance that its keys share; none by default', numberOf],
    },
    prints: ({ identityId }) => `Created identity ${identityId}.`,
  }),
  calls({
    words: 'identity credits <owner> <change>',
    about:
      'Change the balance that the keys of an identity share: `500` sets it, `+500` adds, `-500` subtracts, `none` removes it.',
    operation: 'identities.updateCredits',
    sets: { identity: '<owner>', ...creditChange('none') },
    prints: (balance, { identity }) =>
      done(`${identity} has ${balance.remaining ?? 'no'} credits${debtText(balance)}.`, { identity, ...balance }),
  }),
  calls({
    words: 'identity delete <owner>',
    about:
      'Delete an identity, by its id or externalId. Its keys stay valid and lose its limits and credits. `identity restore` undoes it until it is removed.',
    operation: 'identities.deleteIdentity',
    sets: { identity: '<owner>', '--confirm': confirmOption, permanent: permanentOption },
    confirms: (call, { identity }) => call('identities.getIdentity', { identity }).then(({ data }) => data.externalId),
    prints: (_, { identity }) => `Deleted identity ${identity}.`,
  }),
  calls({
    words: 'identity restore <identityId>',
    about:
      'Restore a deleted identity with its keys, limits and credits. `identity list --deleted` prints the ids of those that can be restored.',
    operation: 'identities.restoreIdentity',
    sets: { identityId: '<identityId>' },
    prints: (_, { identityId }) => `Restored identity ${identityId}.`,
  }),
  identityLimitRow,
  calls({
    words: 'identity plan <owner> <planId>',
    about:
      'Give an identity a plan, whose limits all its keys share, effective immediately: `none` removes it. Units that count in limits of the same name and period or duration stay.',
    operation: 'identities.updateIdentity',
    sets: { identity: '<owner>', planId: planOrNone },
    prints: ({ externalId, planId }) =>
      planId === undefined ? `${externalId} has no plan.` : `${externalId} has the plan ${planId}.`,
  }),
  ...planRows,
  calls({
    words: 'audit',
    about: 'List changes, the newest first: who changed what, from what to what.',
    operation: 'audit.listEvents',
    sets: {
      order: constant('desc'),
      'resource.id': ['--resource <id>', 'only of this key, API, identity …'],
      rootKeyId: ['--root-key <id>', 'only by this root key; `cli` is the command line'],
      operation: ['--operation <name>', 'only by this operation'],
      ...period([['--last <duration>', 'only of this time until now, such as 7d']]),
    },
    prints: ['events', eventTable],
  }),
];

export const commandRows: readonly CommandRow[] = [
  ...apiRows,
  ...keyRows,
  ...otherRows,
  ...overrideRows,
  temporaryRow,
  ...refusalRows,
  usageRow,
];
