// A command that calls an operation is a row: its words, how arguments and options set the fields of the operation's
// input, and how the result is printed. A command that needs several calls has a function instead of the last.

import type { OperationName } from '../operations/index.ts';
import type { Call, CallResult, InputOf, Listen, OutputOf } from './client.ts';
import { asUsage } from './failure.ts';
import type { Progress } from './progress.ts';
import type { CommandResult } from './result.ts';
import { type Columns, durationOf, endOf, expiryOf, limitText, numberOf, tableOf, timeOf, timeText } from './table.ts';

/** Arguments and options by name, as Commander parses them. */
export type Given = Record<string, string | boolean | readonly string[] | undefined>;

/** Reads the text of an argument or option. `of` is its name, for errors. */
type Read<Value> = (text: string, of: string, nowMs: number) => Value;
type Argument = `<${string}>` | `[${string}]`;
type Option<Value = unknown> = readonly [flags: string, about: string, read?: Read<Value>];
type ItemOf<Value> = Value extends readonly (infer Item)[] ? Item : Value;
/** Sets a field: the text of an argument or option, its value as it is read, or several options. */
type Setter<Value> =
  | Argument
  | readonly [Argument, Read<ItemOf<Value>>]
  | Option<ItemOf<Value>>
  | { options: readonly Option[]; read(given: Given, nowMs: number): Value | undefined };
/** By field, or by the path of a member such as `credits.remaining`. An option that sets no field is under its name. */
type Sets<Input> = { readonly [Field in keyof Input]?: Setter<Exclude<Input[Field], undefined>> } & {
  readonly [path: `${string}.${string}` | `--${string}`]: Setter<unknown>;
};
type AnySets = Readonly<Record<string, Setter<unknown>>>;

interface Words {
  /** Groups, command and arguments, such as `key get <keyId>`. */
  words: string;
  about: string;
  /** It shows its progress itself. */
  showsProgress?: true;
  /** It prints what happens, until it is interrupted. */
  lasts?: true;
}

export interface Output {
  listen: Listen;
  /** Output of a command that prints in several steps. */
  print(result: CommandResult): Promise<void>;
  progress(task: string, total: number | undefined, unit: string): Progress;
  /** Reads standard input, and stops some time after this many characters. */
  readInput(max: number): Promise<string>;
  /** Asks the user; absent without a terminal. */
  ask?: ((question: string) => Promise<string>) | undefined;
}

export interface CommandRow extends Words {
  sets: AnySets;
  /** Undefined if the command has printed everything. */
  run(call: Call, given: Given, readKey: () => Promise<string>, output: Output): Promise<CommandResult | undefined>;
}

type List<Input, Item> = readonly [
  what: string,
  columns: Columns<Item> | ((input: Input, items: readonly Item[]) => Columns<Item>),
];

interface CallRow<Name extends OperationName> extends Words {
  operation: Name;
  sets: Sets<InputOf<Name>>;
  /** Resolves with the name to confirm before a deletion; undefined if nothing has to be confirmed. */
  confirms?(call: Call, input: InputOf<Name>): Promise<string | undefined> | undefined;
  /** Whether the operation has more to do after this output: then it is called again. */
  hasMore?(output: OutputOf<Name>): boolean;
  /**
   * A table up to `--limit`, a record with a line for each field, or lines. The JSON of lines is the output of the
   * operation; if that is empty, the fields that arguments set.
   */
  prints:
    | List<InputOf<Name>, ItemOf<OutputOf<Name>>>
    | 'record'
    | ((output: OutputOf<Name>, input: InputOf<Name>) => string | readonly string[] | CommandResult);
}

/** A command that calls one operation. */
export function calls<Name extends OperationName>(row: CallRow<Name>): CommandRow {
  const { words, about, operation, confirms, hasMore, prints } = row;
  const isList = typeof prints === 'object';
  const sets = (isList ? { ...row.sets, limit: limitOption } : row.sets) as AnySets;
  return {
    words,
    about,
    sets,
    async run(call, given, _readKey, output) {
      const input = inputOf<InputOf<Name>>(sets, given);
      if (isList) {
        const [what, columns] = prints as List<InputOf<Name>, unknown>;
        const page = await readAll((input as { limit?: number }).limit, (limit, next) => {
          const pageInput = { ...(input as object), limit } as InputOf<Name>;
          return call(operation, pageInput, next) as Promise<CallResult<unknown[]>>;
        });
        return listResult(what, page, typeof columns === 'function' ? columns(input, page.data) : columns);
      }
      const name = confirms?.(call, input);
      if (name) {
        const confirm = await confirmedName(text(given[memberOf(words.split(' ').at(-1)!)])!, name, given, output);
        if (sets.confirm) Object.assign(input, { confirm });
      }
      let { data } = await call(operation, input);
      while (hasMore?.(data)) ({ data } = await call(operation, input));
      if (prints === 'record') return recordResult(data as object);
      const printed = prints(data, input);
      if (typeof printed === 'object' && 'lines' in printed) return printed;
      const isEmpty = Object.keys(data as object).length === 0;
      return { lines: [printed].flat(), json: isEmpty ? argumentsOf(sets, input) : data };
    },
  };
}

interface RunRow<Input> extends Words {
  sets: Sets<Input>;
  run(call: Call, input: Input, context: Context): Promise<CommandResult | undefined>;
}
interface Context {
  given: Given;
  /** Reads a key from standard input. */
  readKey: () => Promise<string>;
  output: Output;
}

/** A command that needs a function. `Input` has the fields that its arguments and options set. */
export const runs = <Input>({ run, ...row }: RunRow<Input>): CommandRow => ({
  ...row,
  sets: row.sets as AnySets,
  run: (call, given, readKey, output) =>
    run(call, inputOf<Input>(row.sets as AnySets, given), { given, readKey, output }),
});

const nameOf = (flags: string) => flags.split(' ')[0]!;
/** `creditsBelow` of `--credits-below <n>`, and `keyId` of `<keyId>`. */
const memberOf = (flags: string) =>
  nameOf(flags)
    .replaceAll(/^--|[<>[\].]/g, '')
    .replaceAll(/-(\w)/g, (_, letter: string) => letter.toUpperCase());

/** The options of a command, in the order of its help. */
export function optionsOf({ sets }: CommandRow): readonly Option[] {
  const all = Object.values(sets).flatMap((setter): readonly Option[] => {
    if (typeof setter === 'string') return [];
    return 'options' in setter ? setter.options : [setter as Option];
  });
  return [...new Map(all.filter(([flags]) => flags.startsWith('--')).map((option) => [option[0], option])).values()];
}

/** The fields of an input that are given. */
function inputOf<Input>(sets: AnySets, given: Given): Input {
  const nowMs = Date.now();
  const input: Record<string, unknown> = {};
  for (const [path, setter] of Object.entries(sets)) {
    const value = path.startsWith('--') ? undefined : asUsage(() => valueSetBy(setter, given, nowMs));
    if (value === undefined) continue;
    const [field, member] = path.split('.') as [string, string?];
    input[field] = member === undefined ? value : { ...(input[field] as object | undefined), [member]: value };
  }
  return input as Input;
}

function valueSetBy(setter: Setter<unknown>, given: Given, nowMs: number): unknown {
  if (typeof setter === 'string') return given[memberOf(setter)];
  if ('options' in setter) return setter.read(given, nowMs);
  const [flags, second, third] = setter as readonly [string, string | Read<unknown>, Read<unknown>?];
  const value = given[memberOf(flags)];
  const read = typeof second === 'function' ? second : third;
  if (value === undefined || read === undefined) return value;
  const readOne = (one: string) => read(one, nameOf(flags), nowMs);
  return Array.isArray(value) ? value.map(readOne) : readOne(value as string);
}

const argumentsOf = (sets: AnySets, input: object) =>
  Object.fromEntries(Object.entries(input).filter(([field]) => /^[<[]/.test(flagsOf(sets[field])[0] ?? '')));

function flagsOf(setter: Setter<unknown> | undefined): readonly string[] {
  if (setter === undefined) return [];
  if (typeof setter === 'string') return [setter];
  return 'options' in setter ? setter.options.map(([flags]) => flags) : [setter[0]];
}

/** Field names in an error message of an operation: after `body.`, or the other of two that exclude each other. */
const namedFields = /\bbody\.[\w.[\]]*\w\]?|(?<=cannot be sent together with )\w+/g;

/** The message of an operation's error, with the option or argument of a command instead of the field that it names. */
export const withOptions = (message: string, { sets }: CommandRow, given: Given): string =>
  message.replaceAll(namedFields, (field) => {
    const steps = field
      .replace('body.', '')
      .replaceAll(/\[\d+\]/g, '')
      .split('.');
    for (let length = steps.length; length > 0; length--) {
      const possible = flagsOf(sets[steps.slice(0, length).join('.')]);
      const setter = possible.find((flags) => given[memberOf(flags)] !== undefined) ?? possible[0];
      if (setter) return nameOf(setter);
    }
    return field;
  });

export const text = (value: Given[string]) => (typeof value === 'string' ? value : undefined);
/** Removes members that are undefined, which JSON lacks. */
export const given = <Input extends object>(input: Input): Input => JSON.parse(JSON.stringify(input));

function atLeastOne(text: string, of: string): number {
  const wanted = numberOf(text, of);
  if (wanted === 0) throw new Error(`${of} must be at least 1.`);
  return wanted;
}
export const limitOption = ['--limit <n>', 'how many to print; 100 by default', atLeastOne] as const;
export const newestOption = ['--newest', 'newest first', () => 'desc' as const] as const;
export const apiOption = ['--api <apiId>', 'only of this API'] as const;
export const ownerOption = ['--owner <externalId>', 'only of this identity'] as const;
export const confirmOption = ['--confirm <name>', 'its name; without it a terminal asks, and a script fails'] as const;
export const permanentOption = ['--permanent', 'remove it; it cannot be restored'] as const;

export function metaOf(json: string): Record<string, unknown> {
  try {
    return JSON.parse(json);
  } catch {
    throw new Error('--meta is not JSON. Use, for example, \'{"seats":5}\'.');
  }
}

/** A field that the command itself sets: no option does. */
export const constant = <Value extends string | boolean>(value: Value) => ({ options: [], read: () => value });

export const duration = (text: string): number => durationOf(text);
export const expiry = (text: string, of: string, nowMs: number): number => expiryOf(text, nowMs, of);
export const upperCase = <Name extends string>(text: string) => text.toUpperCase() as Name;
/** The error does not repeat another text, which may be the secret string of a key. */
export function keyIdOf(id: string): string {
  if (id.startsWith('key_')) return id;
  throw new Error('<keyId> must be the id of a key (key_…). `tollgate key find` prints it.');
}
export const keyId = ['<keyId>', keyIdOf] as const;

const toOption = ['--to <time>', 'only before this time'] as const;
type Period = (given: Given, nowMs: number) => { start?: number; end?: number };
/** A period by `--last` or `--from` and `--to`; `options` are in front of the last two. */
export const period = (options: readonly Option[], of: Period = periodOf) =>
  ({
    start: {
      options: [...options, ['--from <time>', 'only from this time of UTC, such as 14:00 or 2026-11-16'], toOption],
      read: (given: Given, nowMs: number) => of(given, nowMs).start,
    },
    end: { options: [toOption], read: (given: Given, nowMs: number) => of(given, nowMs).end },
  }) as const;

/** The period of `--last`, or of `--from` and `--to`. Undefined if they are not given. */
export function periodOf({ last, from, to }: Given, nowMs: number): { start?: number; end?: number } {
  if (last !== undefined && (from !== undefined || to !== undefined))
    throw new Error('--last is the time until now. Leave it out, or --from and --to.');
  if (text(last) !== undefined) return { start: Math.max(0, nowMs - durationOf(text(last)!)) };
  const start = text(from) === undefined ? undefined : timeOf(text(from)!, nowMs);
  const end = text(to) === undefined ? undefined : endOf(text(to)!, start, nowMs);
  if (start !== undefined && end !== undefined && start >= end) throw new Error('--from must be before --to.');
  return given({ start, end });
}

/** The period of a quota. */
export const periodSets = {
  period: ['--per <period>', 'a quota per `hour`, `day`, `week`, `month` or `year` in UTC, in place of a duration'],
  anchor: [
    '--from <time>',
    'with --per: where periods begin, such as 2026-01-31; at midnight, on Monday, the 1st, 1 January by default',
    (text: string, _of: string, nowMs: number) => timeOf(text, nowMs),
  ],
} as const;

/** When a temporary limit or override ends, and `then` applies. */
export const until = (then: string) =>
  ({
    options: [
      ['--for <duration>', `only for this long from now, such as 1d; then ${then}`],
      ['--until <time>', 'only until then: a date such as 2027-01-31, or a time with its zone'],
    ],
    read({ for: lasts, until }: Given, nowMs: number): number | undefined {
      if (lasts !== undefined && until !== undefined)
        throw new Error('--for and --until both set the end. Leave one out.');
      if (until !== undefined) return expiryOf(text(until)!, nowMs, '--until');
      if (lasts === undefined) return undefined;
      const lastsMs = durationOf(text(lasts)!, '--for ');
      if (lastsMs === 0) throw new Error(`--for ${lasts} ends at once.`);
      return nowMs + lastsMs;
    },
  }) as const;

/**
 * Throws unless the user confirms a deletion with the name of the deleted record, which it returns. `lookUp` returns
 * the name; if the caller may not read it, the user confirms the argument of the command.
 */
export async function confirmedName(
  argument: string,
  lookUp: Promise<string | undefined>,
  { confirm }: Given,
  { ask }: Output,
): Promise<string> {
  let name: string | undefined;
  await requireFound(lookUp.then((found) => (name = found)));
  name ??= argument;
  const typed = text(confirm) ?? (await ask?.(`This deletes ${argument}. Type its name, ${name}, to confirm: `));
  if (typed === name) return name;
  throw new Error(
    typed === undefined
      ? `This deletes ${argument}. To confirm it, add --confirm ${JSON.stringify(name)}.`
      : `Nothing was deleted: the name of ${argument} is ${JSON.stringify(name)}.`,
  );
}

/**
 * Reads a list up to `wanted` items, in pages of at most `pageMax`. A search may have to read several pages without a
 * match.
 */
export async function readAll<Item>(
  wanted = 100,
  read: (limit: number, next: string | undefined) => Promise<CallResult<Item[]>>,
  pageMax = 100,
): Promise<CallResult<Item[]>> {
  const items: Item[] = [];
  let looked: number | undefined;
  let page: CallResult<Item[]> | undefined;
  do {
    page = await read(Math.min(pageMax, wanted - items.length), page?.next);
    items.push(...page.data);
    if (page.looked !== undefined) looked = (looked ?? 0) + page.looked;
  } while (page.next !== undefined && items.length < wanted);
  return { ...page, data: items, looked };
}

/** Throws the error of a call if there is no such record, and ignores other errors, such as a missing grant. */
export async function requireFound(lookUp: Promise<unknown>): Promise<void> {
  await lookUp.catch((error: Error & { status?: number }) => {
    if (error.status === 404) throw error;
  });
}

/** One line, and the same as JSON. */
export const done = (line: string, json: unknown): CommandResult => ({ lines: [line], json });

/** A table, or a line that nothing was found. A total without a number of examined items is that of the list. */
export function listResult<Item>(
  what: string,
  { data, next, looked, total }: CallResult<Item[]>,
  { headings, rowOf }: Columns<Item>,
): CommandResult {
  const examined = total === undefined || looked === undefined ? '' : ` Examined ${looked} of ${total}.`;
  const more = next === undefined ? [] : [`… and more.${examined} A higher --limit prints more.`];
  const lines = data.length > 0 ? tableOf(headings, data.map(rowOf)) : [`No ${what} found.`];
  return { lines, notes: more, json: data };
}

/** Limits as other commands print them. */
const withLimitTexts = (name: string, value: unknown) =>
  name === 'ratelimits' ? (value as Parameters<typeof limitText>[0][]).map(limitText) : value;

export function recordResult(record: object): CommandResult {
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
