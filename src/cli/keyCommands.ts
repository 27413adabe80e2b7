// The commands that manage APIs, keys, identities, and read the audit log. Each is a row: its words, its options, and
// the operations that it calls.

import { apiColumns, eventColumns, identityColumns, keyColumns } from '../domain/columns.ts';
import type { CallResult, InputOf, OutputOf } from './client.ts';
import {
  apiOption,
  type CommandRow,
  confirmedName,
  confirmOption,
  done,
  given,
  keyIdOf,
  limitOption,
  listResult,
  newestOption,
  orderOf,
  periodOf,
  periodOptions,
  readAll,
  text,
  texts,
  wantedOf,
} from './commandRow.ts';
import { explainRow } from './explain.ts';
import { holdRows } from './holdCommands.ts';
import { identityLimitRow, keyLimitRow } from './limitCommands.ts';
import { overrideRows } from './overrideCommands.ts';
import { refusalRows } from './refusalsCommand.ts';
import type { CommandResult } from './result.ts';
import { columnsOf, durationOf, durationText, expiryOf, limitText, numberOf, tableOf, timeText } from './table.ts';
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

/** What limits the use of a key: its own balance, else that of its identity. */
function balanceText({ credits, identity }: Key): string {
  if (credits) return creditsText(credits);
  return identity?.credits ? `${creditsText(identity.credits)} of its owner` : 'unlimited';
}

const keysResult = (page: CallResult<Key[]>): CommandResult => {
  const until = page.data.some(({ restorableUntil }) => restorableUntil !== undefined)
    ? 'Can be restored until'
    : 'Expires';
  const names = ['Id', 'Key', 'Name', 'Customer', 'State', until, 'Credits', 'Last used'] as const;
  return listResult('keys', page, columnsOf(keyColumns, names, { Credits: balanceText }));
};

/** Limits as other commands print them. */
const withLimitTexts = (name: string, value: unknown) =>
  name === 'ratelimits' ? (value as Parameters<typeof limitText>[0][]).map(limitText) : value;

function recordResult(record: object): CommandResult {
  const rows = Object.entries(record).map(([name, value]) => [
    name,
    /(At|expires|Until)$/.test(name)
      ? timeText(value as number)
      : typeof value === 'string'
        ? value
        : JSON.stringify(withLimitTexts(name, value), withLimitTexts),
  ]);
  return { lines: tableOf(['FIELD', 'VALUE'], rows), json: record };
}

/** A new key. Its string is printed, and never stored. */
const newKeyResult = (what: string, { keyId, key }: { keyId: string; key: string }): CommandResult => ({
  lines: [`${what} ${keyId}. Its string is printed only once:`, key],
  json: { keyId, key },
});

const changeKey = (words: string, about: string, done: string, change: { enabled: boolean }): CommandRow => ({
  words,
  about,
  async run(call, options) {
    const keyId = keyIdOf(options);
    await call('keys.updateKey', { keyId, ...change });
    return { lines: [`${done} ${keyId}.`], json: { keyId } };
  },
});

/**
 * Filters that find at once what a text probably is, also of a deleted key. A search reads all keys, which takes 15 s
 * for a million. The beginning of a string has a prefix, or four characters at least.
 */
function filtersFor(wanted: string): InputOf<'keys.listKeys'>[] {
  const mayBeStart = /^\w{1,16}_[1-9A-HJ-NP-Za-km-z]{2,40}$|^[1-9A-HJ-NP-Za-km-z]{4,40}$/.test(wanted);
  const mayBeOwner = /^[\w.-]{1,255}$/.test(wanted);
  // The id of a key finds only that key.
  if (/^key_[1-9A-HJ-NP-Za-km-z]{24}$/.test(wanted)) return [{ search: wanted }, { search: wanted, deleted: true }];
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

function metaOf(json: string): Record<string, unknown> {
  try {
    return JSON.parse(json);
  } catch {
    throw new Error('--meta is not JSON. Use, for example, \'{"plan":"pro"}\'.');
  }
}

const identityNames = ['Id', 'Customer', 'Keys', 'Limits', 'Credits'] as const;
const identityTable = (deleted: true | undefined) =>
  columnsOf(identityColumns, deleted ? ([...identityNames, 'Can be restored until'] as const) : identityNames, {
    Limits: ({ ratelimits }: OutputOf<'identities.listIdentities'>[number]) => ratelimits.map(limitText).join(', '),
    Credits: ({ credits }: OutputOf<'identities.listIdentities'>[number]) => (credits ? creditsText(credits) : ''),
  });

type AuditEvent = OutputOf<'audit.listEvents'>[number];
const eventTable = columnsOf(eventColumns, ['Time, UTC', 'Root key', 'Operation', 'Resource', 'Changes'], {
  'Root key': ({ rootKeyName, rootKeyId, address }: AuditEvent) =>
    [rootKeyName, rootKeyId, address].filter(Boolean).join(' '),
  Changes: ({ changes = [] }: AuditEvent) =>
    changes
      .map(({ field, before, after }) => `${field}: ${valueText(field, before)} → ${valueText(field, after)}`)
      .join('; '),
});

const apiRows: CommandRow[] = [
  {
    words: 'api list',
    about: 'List the APIs.',
    options: [
      ['--search <text>', 'only those whose id or name contains it'],
      ['--deleted', 'deleted ones that can be restored'],
      newestOption,
      limitOption,
    ],
    async run(call, options) {
      const deleted = options.deleted ? true : undefined;
      const input = given({ search: text(options.search), order: orderOf(options), deleted });
      const page = await readAll(wantedOf(options), (limit, next) => call('apis.listApis', { ...input, limit }, next));
      const names = ['Id', 'Name', 'Keys', 'Created'] as const;
      const columns = deleted ? ([...names, 'Can be restored until'] as const) : names;
      return listResult('APIs', page, columnsOf(apiColumns, columns, {}));
    },
  },
  {
    words: 'api create <name>',
    about: 'Create an API.',
    async run(call, { name }) {
      const { data } = await call('apis.createApi', { name: text(name)! });
      return done(`Created API ${data.apiId}.`, data);
    },
  },
  {
    words: 'api rename <apiId> <name>',
    about: 'Rename an API. Its keys and its usage stay.',
    async run(call, { apiId, name }) {
      await call('apis.updateApi', { apiId: text(apiId)!, name: text(name)! });
      return done(`Renamed API ${apiId} to ${name}.`, { apiId, name });
    },
  },
  {
    words: 'api delete <apiId>',
    about: 'Delete an API and all its keys, effective immediately. `api restore` undoes it until they are removed.',
    options: [confirmOption, ['--permanent', 'remove it; it cannot be restored']],
    async run(call, options, _input, output) {
      const apiId = text(options.apiId)!;
      const named = call('apis.getApi', { apiId }).then(({ data }) => data.name);
      const confirm = await confirmedName(apiId, named, options, output);
      await call('apis.deleteApi', { apiId, confirm, permanent: options.permanent === true });
      return done(`Deleted API ${apiId}.`, { apiId });
    },
  },
  {
    words: 'api restore <apiId>',
    about: 'Restore a deleted API with all its keys. `api list --deleted` prints those that can be restored.',
    async run(call, options) {
      const apiId = text(options.apiId)!;
      await call('apis.restoreApi', { apiId });
      return done(`Restored API ${apiId}.`, { apiId });
    },
  },
];

const keyRows: CommandRow[] = [
  {
    words: 'key create',
    about: 'Create a key and print its string. It cannot be printed again.',
    options: [
      ['--api <apiId>', 'its API (required)'],
      ['--name <name>', 'a name'],
      ['--prefix <prefix>', 'the beginning of its string'],
      ['--owner <externalId>', 'the identity that it belongs to'],
      ['--expires <when>', 'a date such as 2027-01-31, or a duration from now such as 30d'],
      ['--credits <n>', 'its balance; unlimited by default'],
      ['--allowed-ip <range...>', 'an IP address or CIDR range that may use it; any address by default'],
    ],
    async run(call, { api, name, prefix, owner, expires, credits, allowedIp }) {
      if (!text(api)) throw new Error('--api is required. `tollgate api list` prints the APIs.');
      const { data } = await call(
        'keys.createKey',
        given({
          apiId: text(api)!,
          name: text(name),
          prefix: text(prefix),
          externalId: text(owner),
          expires: text(expires) === undefined ? undefined : expiryOf(text(expires)!, Date.now()),
          credits: text(credits) === undefined ? undefined : { remaining: numberOf(text(credits)!, '--credits') },
          allowedIps: texts(allowedIp)?.slice(),
        }),
      );
      return newKeyResult('Created key', data);
    },
  },
  {
    words: 'key list',
    about: 'List keys, of all APIs or one.',
    options: [
      apiOption,
      ['--owner <externalId>', 'only of this identity'],
      ['--search <text>', 'only with this text in name, start, id, owner or metadata'],
      ['--disabled', 'only disabled ones'],
      ['--deleted', 'deleted ones that can be restored'],
      ['--unused <duration>', 'not used for this long, such as 90d'],
      [
        '--expiring <duration>',
        'expiring within this time, such as 30d; the first to expire first, with --newest last',
      ],
      ['--expired', 'expired ones, in the same order'],
      ['--credits-below <n>', 'with a balance of their own below this'],
      ['--rotated', 'rotated, and still used'],
      ['--permission <slug>', 'with this permission, also through a role'],
      ['--role <name>', 'with this role'],
      newestOption,
      limitOption,
    ],
    async run(call, options) {
      const { api, owner, search, disabled, deleted, rotated, permission, role } = options;
      const { unused, expiring, expired, creditsBelow } = options;
      if (expired && expiring !== undefined) throw new Error('--expired and --expiring exclude each other.');
      const input = given({
        apiId: text(api),
        externalId: text(owner),
        search: text(search),
        enabled: disabled ? false : undefined,
        deleted: deleted ? true : undefined,
        rerolledInUse: rotated ? true : undefined,
        unusedSince: text(unused) === undefined ? undefined : Math.max(0, Date.now() - durationOf(text(unused)!)),
        expiresBefore:
          text(expiring) !== undefined ? Date.now() + durationOf(text(expiring)!) : expired ? Date.now() : undefined,
        expiresAfter: text(expiring) === undefined ? undefined : Date.now(),
        creditsBelow: text(creditsBelow) === undefined ? undefined : numberOf(text(creditsBelow)!, '--credits-below'),
        permission: text(permission),
        role: text(role),
        order: orderOf(options),
      });
      return keysResult(
        await readAll(wantedOf(options), (limit, next) => call('keys.listKeys', { ...input, limit }, next)),
      );
    },
  },
  {
    words: 'key find <text>',
    about:
      'Find keys by the beginning of the string, by owner, or by id or text in name, owner or metadata: the first of these that finds any. `-` reads a whole key from standard input.',
    options: [apiOption, limitOption],
    async run(call, options, input) {
      if (options.text === '-') return recordResult((await call('keys.whoami', { key: await input() })).data);
      const wanted = text(options.text)!;
      const find = (filter: InputOf<'keys.listKeys'>) =>
        readAll(wantedOf(options), (limit, next) =>
          call('keys.listKeys', given({ ...filter, apiId: text(options.api), limit, order: 'desc' as const }), next),
        );
      for (const filter of filtersFor(wanted)) {
        const found = await find(filter);
        if (found.data.length > 0) return keysResult(found);
      }
      return keysResult(await find({ search: wanted }));
    },
  },
  {
    words: 'key get <keyId>',
    about: 'Print a key.',
    run: async (call, options) => recordResult((await call('keys.getKey', { keyId: keyIdOf(options) })).data),
  },
  explainRow,
  changeKey('key disable <keyId>', 'Disable a key, effective immediately.', 'Disabled', { enabled: false }),
  changeKey('key enable <keyId>', 'Enable a key.', 'Enabled', { enabled: true }),
  {
    words: 'key revoke <keyId>',
    about: 'Delete a key, effective immediately. `key restore` undoes it until its record is removed.',
    options: [['--permanent', 'erase it; it cannot be restored, and --confirm is needed'], confirmOption],
    async run(call, options, _input, output) {
      const keyId = keyIdOf(options);
      const permanent = options.permanent === true;
      const named = () => call('keys.getKey', { keyId }).then(({ data }) => data.name);
      if (permanent) await confirmedName(keyId, named(), options, output);
      await call('keys.deleteKey', { keyId, permanent });
      return done(`Revoked ${keyId}.`, { keyId });
    },
  },
  {
    words: 'key restore <keyId>',
    about: 'Restore a deleted key. `key list --deleted` prints those that can be restored.',
    async run(call, options) {
      const keyId = keyIdOf(options);
      await call('keys.restoreKey', { keyId });
      return done(`Restored ${keyId}.`, { keyId });
    },
  },
  {
    words: 'key rotate <keyId>',
    about: 'Create a successor of a key, and let the old key expire.',
    options: [
      ['--grace <duration>', 'how long the old key stays valid, such as 1h; it expires at once by default'],
      [
        '--copy-credits',
        'both keys have the credits; by default the new key has them, and the old key is charged to them',
      ],
    ],
    async run(call, options) {
      const keyId = keyIdOf(options);
      const expiration = durationOf(text(options.grace) ?? '0s');
      const credits = options.copyCredits === true ? 'copy' : 'move';
      const { data } = await call('keys.rerollKey', { keyId, expiration, credits });
      const fate =
        credits === 'move'
          ? 'are those of the new key: until it expires, the old key is charged to them.'
          : 'can be spent twice: both keys have them.';
      return newKeyResult(`Rotated ${keyId}. Credits of the key, if it has any, ${fate} The new key is`, data);
    },
  },
  {
    words: 'key credits <keyId> <change>',
    about: 'Change the balance of a key: `500` sets it, `+500` adds, `-500` subtracts, `unlimited` removes it.',
    async run(call, options) {
      const keyId = keyIdOf(options);
      const { data } = await call('keys.updateCredits', {
        keyId,
        ...creditChangeOf(text(options.change)!, 'unlimited'),
      });
      return done(`${keyId} has ${data.remaining ?? 'unlimited'} credits${debtText(data)}.`, { keyId, ...data });
    },
  },
  keyLimitRow,
  ...holdRows,
];

const otherRows: CommandRow[] = [
  {
    words: 'identity list',
    about: 'List the identities, which own keys.',
    options: [
      ['--search <text>', 'only those whose id or externalId contains it'],
      ['--credits-below <n>', 'with a balance below this'],
      ['--deleted', 'deleted ones that can be restored'],
      limitOption,
    ],
    async run(call, options) {
      const below = text(options.creditsBelow);
      const deleted = options.deleted ? true : undefined;
      const input = given({
        search: text(options.search),
        creditsBelow: below === undefined ? undefined : numberOf(below, '--credits-below'),
        deleted,
      });
      const read = (limit: number, next: string | undefined) =>
        call('identities.listIdentities', { ...input, limit }, next);
      const page = await readAll(wantedOf(options), read);
      return listResult('identities', page, identityTable(deleted));
    },
  },
  {
    words: 'identity get <owner>',
    about: 'Print an identity, by its id or externalId.',
    run: async (call, { owner }) =>
      recordResult((await call('identities.getIdentity', { identity: text(owner)! })).data),
  },
  {
    words: 'identity create <owner>',
    about: 'Create an identity with this externalId.',
    options: [
      ['--meta <json>', 'metadata, such as `{"plan":"pro"}`'],
      ['--credits <n>', 'a balance that its keys share; none by default'],
    ],
    async run(call, { owner, meta, credits }) {
      const input = given({
        externalId: text(owner)!,
        credits: text(credits) === undefined ? undefined : { remaining: numberOf(text(credits)!, '--credits') },
        meta: text(meta) === undefined ? undefined : metaOf(text(meta)!),
      });
      const { data } = await call('identities.createIdentity', input);
      return done(`Created identity ${data.identityId}.`, data);
    },
  },
  {
    words: 'identity credits <owner> <change>',
    about:
      'Change the balance that the keys of an identity share: `500` sets it, `+500` adds, `-500` subtracts, `none` removes it.',
    async run(call, { owner, change }) {
      const identity = text(owner)!;
      const { data } = await call('identities.updateCredits', { identity, ...creditChangeOf(text(change)!, 'none') });
      return done(`${identity} has ${data.remaining ?? 'no'} credits${debtText(data)}.`, { identity, ...data });
    },
  },
  {
    words: 'identity delete <owner>',
    about:
      'Delete an identity, by its id or externalId. Its keys stay valid and lose its limits and credits. `identity restore` undoes it until it is removed.',
    options: [confirmOption, ['--permanent', 'remove it; it cannot be restored']],
    async run(call, options, _input, output) {
      const owner = text(options.owner)!;
      const named = call('identities.getIdentity', { identity: owner }).then(({ data }) => data.externalId);
      await confirmedName(owner, named, options, output);
      await call('identities.deleteIdentity', { identity: owner, permanent: options.permanent === true });
      return done(`Deleted identity ${owner}.`, { identity: owner });
    },
  },
  {
    words: 'identity restore <identityId>',
    about:
      'Restore a deleted identity with its keys, limits and credits. `identity list --deleted` prints the ids of those that can be restored.',
    async run(call, options) {
      const identityId = text(options.identityId)!;
      await call('identities.restoreIdentity', { identityId });
      return done(`Restored identity ${identityId}.`, { identityId });
    },
  },
  identityLimitRow,
  {
    words: 'audit',
    about: 'List changes, the newest first: who changed what, from what to what.',
    options: [
      ['--resource <id>', 'only of this key, API, identity …'],
      ['--root-key <id>', 'only by this root key; `cli` is the command line'],
      ['--operation <name>', 'only by this operation'],
      ['--last <duration>', 'only of this time until now, such as 7d'],
      ...periodOptions,
      limitOption,
    ],
    async run(call, options) {
      const { resource, rootKey, operation } = options;
      const input = given({
        order: 'desc' as const,
        resource: text(resource) === undefined ? undefined : { id: text(resource)! },
        rootKeyId: text(rootKey),
        operation: text(operation),
        ...periodOf(options),
      });
      const page = await readAll(wantedOf(options), (limit, next) =>
        call('audit.listEvents', { ...input, limit }, next),
      );
      return listResult('events', page, eventTable);
    },
  },
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
