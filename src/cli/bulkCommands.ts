// The commands that change keys, one or many: their ids are arguments, or words of standard input.

import type { Call, InputOf, OutputOf } from './client.ts';
import {
  type CommandRow,
  confirmedName,
  confirmOption,
  done,
  expiry,
  keyIdOf,
  permanentOption,
  runs,
} from './commandRow.ts';
import { asUsage } from './failure.ts';
import { planOrNone } from './planCommands.ts';
import { timeText } from './table.ts';

type Change = InputOf<'keys.changeKeys'>['change'];
type Changed = OutputOf<'keys.changeKeys'>;

/** Keys of one request. */
const chunkMax = 100;
/** Characters of standard input, about 34,000 ids. */
const inputMax = 1_000_000;

const keyIds = ['<keyIds...>', (id: string) => (id === '-' ? id : keyIdOf(id))] as const;
type ReadInput = (max: number) => Promise<string>;

async function idsOf(given: readonly string[], readInput: ReadInput): Promise<string[]> {
  const input = given.includes('-') ? await readInput(inputMax) : '';
  return asUsage(() => {
    if (input.length > inputMax) throw new Error('Standard input is too long. Pass at most 30,000 ids at a time.');
    const ids = [
      ...given.filter((id) => id !== '-'),
      ...input
        .split(/\s+/)
        .filter((word) => word !== '')
        .map(keyIdOf),
    ];
    if (ids.length === 0) throw new Error('Standard input has no ids of keys.');
    return [...new Set(ids)];
  });
}

/** Changes keys in steps. If a step fails, later ones are not made, and what was changed is printed. */
async function changeKeys(call: Call, ids: readonly string[], change: Change, print: (all: Changed) => Promise<void>) {
  const all: Changed = { changed: [], unchanged: [], failed: [] };
  let stopped: unknown;
  for (let at = 0; at < ids.length && !stopped; at += chunkMax) {
    try {
      const { data } = await call('keys.changeKeys', { keyIds: ids.slice(at, at + chunkMax), change });
      all.changed.push(...data.changed);
      all.unchanged.push(...data.unchanged);
      all.failed.push(...data.failed);
    } catch (error) {
      stopped = error;
    }
  }
  if (all.changed.length + all.unchanged.length > 0) await print(all);
  if (stopped) throw stopped;
  const { failed } = all;
  if (failed.length === 0) return undefined;
  const lines = failed.map(({ keyId, message }) => (ids.length === 1 ? message : `${keyId}: ${message}`));
  const [{ code }] = failed as [(typeof failed)[0]];
  throw Object.assign(new Error(lines.join('\n')), { code, status: code === 'key_not_found' ? 404 : 412 });
}

/** `say` is the line for a changed key. */
function bulk<Sets extends object>(
  words: string,
  about: string,
  more: { sets?: object; change: (input: Sets) => Change; say: (keyId: string, input: Sets) => string },
): CommandRow {
  const { sets, change, say } = more;
  return runs<Sets & { keyIds: string[]; permanent?: boolean }>({
    words,
    about: `${about} \`-\` reads ids from standard input.`,
    sets: { keyIds, ...sets } as never,
    async run(call, input, { given, output }) {
      const ids = await idsOf(input.keyIds, output.readInput);
      if (input.permanent) {
        const [keyId, other] = ids as [string, string?];
        asUsage(() => {
          if (other) throw new Error('--permanent takes one key at a time.');
        });
        const name = call('keys.getKey', { keyId }).then(({ data }) => data.name);
        await confirmedName(keyId, name, given, output);
        await call('keys.deleteKey', { keyId, permanent: true });
        return done(say(keyId, input), { keyId });
      }
      return changeKeys(call, ids, change(input), (all) =>
        output.print({
          lines: [
            ...all.changed.map(({ keyId }) => say(keyId, input)),
            ...all.unchanged.map((keyId) => `${keyId} is unchanged: it was so before.`),
          ],
          json: all,
        }),
      );
    },
  });
}

const whenOrNone = [
  '<when>',
  (text: string, of: string, nowMs: number) => (text === 'none' ? null : expiry(text, of, nowMs)),
] as const;

export const bulkRows: readonly CommandRow[] = [
  bulk('key disable <keyIds...>', 'Disable keys, effective immediately.', {
    change: () => ({ enabled: false }),
    say: (keyId) => `Disabled ${keyId}.`,
  }),
  bulk('key enable <keyIds...>', 'Enable keys.', {
    change: () => ({ enabled: true }),
    say: (keyId) => `Enabled ${keyId}.`,
  }),
  bulk<{ expires: number | null }>(
    'key expire <keyIds...> <when>',
    'Let keys expire at a date such as 2027-01-31, after a duration such as 30d, or with `none` never.',
    {
      sets: { expires: whenOrNone },
      change: ({ expires }) => ({ expires }),
      say: (keyId, { expires }) => `${keyId} ${expires === null ? 'does not expire' : `expires ${timeText(expires)}`}.`,
    },
  ),
  bulk<{ planId: string | null }>(
    'key plan <keyIds...> <planId>',
    'Give keys a plan, effective immediately: `none` removes it, and then the plan of the owner applies alone.',
    {
      sets: { planId: planOrNone },
      change: ({ planId }) => ({ planId }),
      say: (keyId, { planId }) => (planId === null ? `${keyId} has no plan.` : `${keyId} has the plan ${planId}.`),
    },
  ),
  bulk(
    'key delete <keyIds...>',
    'Delete keys, effective immediately. `key restore` undoes it until their records are removed.',
    {
      sets: { permanent: permanentOption, '--confirm': confirmOption },
      change: () => ({ deleted: true }),
      say: (keyId) => `Deleted ${keyId}.`,
    },
  ),
  bulk('key restore <keyIds...>', 'Restore deleted keys. `key list --deleted` prints those that can be restored.', {
    change: () => ({ deleted: false }),
    say: (keyId) => `Restored ${keyId}.`,
  }),
];
