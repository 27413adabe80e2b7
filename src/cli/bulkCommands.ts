// The commands that change keys, one or many: their ids are arguments, or words of standard input.

import type { Call, InputOf, OutputOf } from './client.ts';
import {
  type CommandRow,
  confirmedName,
  confirmOption,
  constant,
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
type Input = Change & { keyIds: string[]; permanent?: boolean };
type Output = OutputOf<'keys.changeKeys'>;

/** Keys of one request. */
const chunkMax = 100;
/** Characters of standard input, about 34,000 ids. */
const inputMax = 1_000_000;

const keyIds = ['<keyIds...>', (id: string) => (id === '-' ? id : keyIdOf(id))] as const;

/** The ids that are given, `-` as those of standard input. */
async function idsOf(given: readonly string[], readInput: (max: number) => Promise<string>): Promise<string[]> {
  const input = given.includes('-') ? await readInput(inputMax) : '';
  return asUsage(() => {
    if (input.length > inputMax) throw new Error('Standard input is too long. Pass at most 30,000 ids at a time.');
    const ids = [...given.filter((id) => id !== '-'), ...(input.match(/\S+/g) ?? []).map(keyIdOf)];
    if (ids.length === 0) throw new Error('Standard input has no ids of keys.');
    return [...new Set(ids)];
  });
}

/** Changes keys in steps, up to the first one that fails. Then `print` gets what was done, and the error is thrown. */
async function changeKeys(call: Call, ids: readonly string[], change: Change, print: (all: Output) => Promise<void>) {
  const all: Output = { changed: [], unchanged: [], failed: [] };
  let error: unknown;
  for (let at = 0; at < ids.length && !error; at += chunkMax) {
    const step = call('keys.changeKeys', { keyIds: ids.slice(at, at + chunkMax), change });
    await step.then(
      ({ data }) => {
        for (const list of ['changed', 'unchanged', 'failed'] as const) all[list].push(...(data[list] as never[]));
      },
      (reason) => {
        error = reason;
      },
    );
  }
  if (all.changed.length + all.unchanged.length > 0) await print(all);
  if (error) throw error;
  const [first] = all.failed;
  if (!first) return;
  const lines = all.failed.map(({ keyId, message }) => (ids.length === 1 ? message : `${keyId}: ${message}`));
  throw Object.assign(new Error(lines.join('\n')), {
    code: first.code,
    status: first.code === 'key_not_found' ? 404 : 412,
  });
}

/** `say` is the line for a changed key. */
const bulk = (words: string, about: string, sets: object, say: (keyId: string, input: Input) => string): CommandRow =>
  runs<Input>({
    words,
    about: `${about} \`-\` reads ids from standard input.`,
    sets: { keyIds, ...sets },
    async run(call, input, { given, output }) {
      const { keyIds, permanent, ...change } = input;
      const ids = await idsOf(keyIds, output.readInput);
      if (!permanent) {
        await changeKeys(call, ids, change, (all) => {
          const same = all.unchanged.map((keyId) => `${keyId} is unchanged: it was so before.`);
          return output.print({ lines: [...all.changed.map(({ keyId }) => say(keyId, input)), ...same], json: all });
        });
        return undefined;
      }
      const [keyId, ...others] = ids as [string];
      asUsage(() => {
        if (others.length > 0) throw new Error('--permanent takes one key at a time.');
      });
      const name = call('keys.getKey', { keyId }).then(({ data }) => data.name);
      await confirmedName(keyId, name, given, output);
      await call('keys.deleteKey', { keyId, permanent });
      return done(say(keyId, input), { keyId });
    },
  });

const whenOrNone = (text: string, of: string, nowMs: number) => (text === 'none' ? null : expiry(text, of, nowMs));

export const bulkRows: readonly CommandRow[] = [
  bulk(
    'key disable <keyIds...>',
    'Disable keys, effective immediately.',
    { enabled: constant(false) },
    (keyId) => `Disabled ${keyId}.`,
  ),
  bulk('key enable <keyIds...>', 'Enable keys.', { enabled: constant(true) }, (keyId) => `Enabled ${keyId}.`),
  bulk(
    'key expire <keyIds...> <when>',
    'Let keys expire at a date such as 2027-01-31, after a duration such as 30d, or with `none` never.',
    { expires: ['<when>', whenOrNone] },
    (keyId, { expires }) => `${keyId} ${expires ? `expires ${timeText(expires)}` : 'does not expire'}.`,
  ),
  bulk(
    'key plan <keyIds...> <planId>',
    'Give keys a plan, effective immediately: `none` removes it, and then the plan of the owner applies alone.',
    { planId: planOrNone },
    (keyId, { planId }) => (planId === null ? `${keyId} has no plan.` : `${keyId} has the plan ${planId}.`),
  ),
  bulk(
    'key delete <keyIds...>',
    'Delete keys, effective immediately. `key restore` undoes it until their records are removed.',
    { deleted: constant(true), permanent: permanentOption, '--confirm': confirmOption },
    (keyId) => `Deleted ${keyId}.`,
  ),
  bulk(
    'key restore <keyIds...>',
    'Restore deleted keys. `key list --deleted` prints those that can be restored.',
    { deleted: constant(false) },
    (keyId) => `Restored ${keyId}.`,
  ),
];
