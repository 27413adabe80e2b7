// The commands that manage root keys, with which callers of the API authenticate.

import { rootKeyColumns } from '../domain/columns.ts';
import { actions, type GrantPreset, grantPresets, parseGrant } from '../domain/grants.ts';
import { timeMax } from '../domain/time.ts';
import type { Call, OutputOf } from './client.ts';
import { type CommandRow, calls, duration, expiry, given, readAll, runs, text } from './commandRow.ts';
import type { CommandResult } from './result.ts';
import { columnsOf, firstOf, tableOf, timeText } from './table.ts';

type RootKey = OutputOf<'rootKeys.listRootKeys'>[number];

/** Limit of the grants that a list prints of a root key; --json prints all. */
const grantsPrinted = 5;

const presetNames = Object.keys(grantPresets).join(', ');

const rootKeyId = { rootKeyId: '<rootKeyId>' } as const;

export const rootKeyRows: readonly CommandRow[] = [
  calls({
    words: 'root-key create',
    about: 'Create a root key and print it. It cannot be printed again.',
    operation: 'rootKeys.createRootKey',
    sets: {
      permissions: {
        options: [
          ['--permission <grant...>', 'grants, such as api.*.verify_key; * grants everything'],
          ['--for <preset>', `the grants of one of these: ${presetNames}`],
        ],
        read({ permission = [], for: preset }) {
          const permissions = [...presetOf(text(preset)), ...(permission as string[]).map(grantOf)];
          if (permissions.length > 0) return permissions;
          throw new Error(
            "--permission or --for is required, such as --permission 'api.*.verify_key' or --for reader.",
          );
        },
      },
      name: ['--name <name>', 'a name'],
      expires: [
        '--expires <when>',
        'a date such as 2027-01-31T12:00Z, or a duration from now such as 30d, 12h or 15m',
        expiry,
      ],
    },
    prints: ({ rootKeyId, key }, { permissions, expires }) => ({
      lines: [`Created root key ${rootKeyId}. It is printed only once:`, key],
      json: { rootKeyId, rootKey: key, permissions, expires },
    }),
  }),
  runs<{ ending?: boolean }>({
    words: 'root-key list',
    about: 'List the root keys, with their age, last use and grants.',
    sets: { ending: ['--ending', 'only those in use that end within 14 days, or have just ended'] },
    async run(call, input) {
      const data = await rootKeysOf(call, input);
      const none = input.ending ? 'No root key that is in use ends soon.' : 'There are no root keys.';
      const lines = data.length > 0 ? tableOf(table.headings, data.map(table.rowOf)) : [none];
      return { lines, json: data };
    },
  }),
  runs<{ rootKeyId: string }>({
    words: 'root-key revoke <rootKeyId>',
    about: 'Delete a root key, effective immediately.',
    sets: rootKeyId,
    async run(call, { rootKeyId }) {
      await explained(call('rootKeys.deleteRootKey', { rootKeyId }));
      return { lines: [`Revoked root key ${rootKeyId}.`], json: { rootKeyId } };
    },
  }),
  runs<{ rootKeyId: string; grace?: number }>({
    words: 'root-key rotate <rootKeyId>',
    about:
      'Replace a root key by a new one with the same name, grants and expiry, and print that. The old one is deleted.',
    sets: {
      ...rootKeyId,
      grace: ['--grace <duration>', 'how long the old one stays valid, such as 1h, instead of being deleted', duration],
    },
    run: rotate,
  }),
];

function presetOf(preset: string | undefined): readonly string[] {
  if (preset === undefined) return [];
  if (!Object.hasOwn(grantPresets, preset)) throw new Error(`--for must be one of ${presetNames}.`);
  return grantPresets[preset as GrantPreset];
}

/** A grant in canonical form. The error names what may follow the part that is right. */
function grantOf(text: string): string {
  const grant = parseGrant(text);
  if (grant !== undefined) return grant;
  const resource = text.replace(/\..*$/s, '').replace(/^(api|ratelimit)s$/, '$1');
  const known = Object.hasOwn(actions, resource) ? actions[resource as keyof typeof actions] : undefined;
  throw new Error(
    `${text} is not a grant. A grant is *, or <resource>.<id or *>.<action>, such as api.*.verify_key. ` +
      (known ? `Actions of ${resource}: ${known.join(', ')}.` : `Resources: ${Object.keys(actions).join(', ')}.`),
  );
}

const table = columnsOf(
  rootKeyColumns,
  ['Id', 'Root key', 'Name', 'State', 'Expires', 'Created', 'Last used', 'Grants'],
  {
    'Root key': ({ start }: RootKey) => `${start}…`,
    'Last used': ({ lastUsedAt }: RootKey) => (lastUsedAt === undefined ? 'never' : timeText(lastUsedAt)),
    Grants: ({ permissions }: RootKey) => firstOf(permissions, grantsPrinted, ' '),
  },
);

/** The new root key exists before anything happens to the old one, so a failure leaves two that work. */
async function rotate(
  call: Call,
  { rootKeyId, grace: graceMs = 0 }: { rootKeyId: string; grace?: number },
): Promise<CommandResult> {
  const found = (await rootKeysOf(call)).find((rootKey) => rootKey.rootKeyId === rootKeyId);
  if (!found) throw new Error(unknownRootKey);
  const { enabled, name, permissions, expires } = found;
  const nowMs = Date.now();
  if (!enabled) throw new Error(`${rootKeyId} is disabled. Enable it first, or create a root key.`);
  if (expires !== undefined && expires <= nowMs) throw new Error(`${rootKeyId} has expired. Create a root key.`);
  const { data: made } = await call('rootKeys.createRootKey', given({ name, permissions, expires }));
  // A grace period never extends the life of the old one.
  const endsAt = graceMs === 0 ? undefined : Math.min(nowMs + graceMs, expires ?? timeMax);
  const rotated = { rootKeyId: made.rootKeyId, rootKey: made.key, replaced: rootKeyId };
  const linesFor = (fate: string) => [
    `The new root key is ${made.rootKeyId}. ${rootKeyId} ${fate}. The new one is printed only once:`,
    made.key,
  ];
  try {
    await (endsAt === undefined
      ? call('rootKeys.deleteRootKey', { rootKeyId })
      : call('rootKeys.updateRootKey', { rootKeyId, expires: endsAt }));
  } catch (error) {
    const note =
      `${rootKeyId} was not ${endsAt === undefined ? 'deleted' : 'changed'}: ${(error as Error).message} ` +
      `Delete it with \`tollgate root-key revoke ${rootKeyId}\`.`;
    return { lines: linesFor('is still valid'), notes: [note], json: rotated, failed: true };
  }
  const fate = endsAt === undefined ? 'is deleted' : `ends at ${timeText(endsAt)}`;
  return { lines: linesFor(fate), json: given({ ...rotated, replacedExpires: endsAt }) };
}

async function rootKeysOf(call: Call, filter: { ending?: boolean } = {}): Promise<RootKey[]> {
  const read = (limit: number, next?: string) => call('rootKeys.listRootKeys', { ...filter, limit }, next);
  return (await readAll(Number.POSITIVE_INFINITY, read)).data;
}

/** Without the argument, which may be a root key by mistake. */
const unknownRootKey =
  'There is no such root key. `tollgate root-key list` prints all of them, with their ids (root_…).';

/** Adds what to do to the errors of an operation. */
const explained = <Result>(answer: Promise<Result>): Promise<Result> =>
  answer.catch((error: Error & { status?: number }) => {
    if (error.status === 404) throw new Error(unknownRootKey, { cause: error });
    if (error.status !== 412) throw error;
    throw new Error(`${error.message} \`tollgate root-key create --for admin\` does.`, { cause: error });
  });
