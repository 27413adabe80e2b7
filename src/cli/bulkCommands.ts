// The commands that change keys, one or many: their ids are arguments, or words of standard input.

import { idForms } from '../domain/records.ts';
import { errorCatalogue } from '../errors.ts';
import type { Call, InputOf, OutputOf } from './client.ts';
import {
  type CommandRow,
  confirmedName,
  confirmOption,
  constant,
  done,
  expiry,
  permanentOption,
  runs,
} from './commandRow.ts';
import { asUsage, mayHaveChanged } from './failure.ts';
import { planOrNone } from './planCommands.ts';
import { timeText } from './table.ts';

type Change = InputOf<'keys.changeKeys'>['change'];
type Input = Change & { keyIds: string[]; permanent?: boolean };
type Output = OutputOf<'keys.changeKeys'>;

/** Keys of one request. */
const chunkMax = 100;
/** Characters of standard input, about 34,000 ids. */
const inputMax = 1_000_000;

/** The ids that are given, `-` as those of standard input. All are checked before a key is changed. */
async function idsOf(given: readonly string[], readInput: (max: number) => Promise<string>): Promise<string[]> {
  const input = given.includes('-') ? await readInput(inputMax) : '';
  return asUsage(() => {
    if (input.length > inputMax) throw new Error('Standard input is too long. Pass at most 30,000 ids at a time.');
    const ids = given.flatMap((id, at) => (id === '-' ? [] : [checked(id, `Argument ${at + 1}`)]));
    for (const [at, line] of input.split('\n').entries())
      for (const id of line.match(/\S+/g) ?? []) ids.push(checked(id, `Line ${at + 1} of standard input`));
    if (ids.length === 0) throw new Error('Standard input has no ids of keys.');
    return [...new Set(ids)];
  });
}

/** Another text may be the secret string of a key: the error repeats no more of it than lists of keys have. */
function checked(id: string, place: string): string {
  if (idForms.key.test(id)) return id;
  throw new Error(
    `${place} is not the id of a key, which is key_ and 24 letters and digits` +
      `${id.startsWith('key_') ? `: ${id.slice(0, 8)}…` : ''}. \`tollgate key find\` prints ids.`,
  );
}

/**
 * Changes keys in steps, up to the first one that fails. `print` gets each step when it is answered, or with `asJson`
 * all in the end. Then the error names the other keys. If the output is closed, the change goes on.
 */
async function changeKeys(
  call: Call,
  ids: readonly string[],
  { change, asJson }: { change: Change; asJson: boolean },
  print: (done: Output) => Promise<void>,
) {
  const all: Output = { changed: [], unchanged: [], failed: [] };
  let closed: Error | undefined;
  const printDone = async (done: Output) => {
    if (closed || done.changed.length + done.unchanged.length === 0) return;
    await print(done).catch((error) => {
      closed = error;
    });
  };
  let error: Error | undefined;
  let at = 0;
  for (; at < ids.length && !error; at += chunkMax) {
    const keyIds = ids.slice(at, at + chunkMax);
    try {
      const { data } = await call('keys.changeKeys', { keyIds, change });
      for (const list of ['changed', 'unchanged', 'failed'] as const) all[list].push(...(data[list] as never[]));
      if (!asJson) await printDone(data);
    } catch (reason) {
      error = reason as Error;
      const unknown = { code: 'unknown', message: 'It may have been changed.' };
      if (mayHaveChanged(error)) all.failed.push(...keyIds.map((keyId) => ({ keyId, ...unknown })));
    }
  }
  if (asJson) await printDone(all);
  const lines = all.failed.map(({ keyId, message }) => (ids.length === 1 ? message : `${keyId}: ${message}`));
  if (error) lines.push(error.message);
  if (at < ids.length) lines.push(`The ${ids.length - at} ids after ${ids[at - 1]} were not tried.`);
  const [first] = all.failed;
  if (error) throw lines.length === 1 ? error : new Error(lines.join('\n'), { cause: error });
  if (first)
    throw Object.assign(new Error(lines.join('\n')), {
      code: first.code,
      status: errorCatalogue.find(({ code }) => code === first.code)?.status,
    });
  if (closed) throw closed;
}

/** `say` is the line for a changed key. */
const bulk = (words: string, about: string, sets: object, say: (keyId: string, input: Input) => string): CommandRow =>
  runs<Input>({
    words,
    about: `${about} \`-\` reads ids from standard input.`,
    sets: { keyIds: '<keyIds...>', ...sets },
    async run(call, input, { given, output }) {
      const { keyIds, permanent, ...change } = input;
      const ids = await idsOf(keyIds, output.readInput);
      if (!permanent) {
        const asJson = given.json === true;
        await changeKeys(call, ids, { change, asJson }, (all) => {
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
