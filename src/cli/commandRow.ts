// What the commands that call operations share: the type of their rows, their options, and reading of lists.

import type { Call, CallResult, Listen } from './client.ts';
import type { Progress } from './progress.ts';
import type { CommandResult } from './result.ts';
import { type Columns, durationOf, endOf, numberOf, tableOf, timeOf } from './table.ts';

/** Arguments and options by name, as Commander parses them. */
export type Given = Record<string, string | boolean | readonly string[] | undefined>;

interface Row {
  /** Groups, command and arguments, such as `key get <keyId>`. */
  words: string;
  about: string;
  options?: readonly (readonly [flags: string, about: string])[];
}

/** What a command of many results writes before it ends. */
export interface Output {
  print(result: CommandResult): Promise<void>;
  progress(task: string, total: number | undefined, unit: string): Progress;
  /** Asks the person at the terminal; absent where there is none. */
  ask?: ((question: string) => Promise<string>) | undefined;
}

export interface CommandRow extends Row {
  /** It shows its progress itself. */
  showsProgress?: true;
  /** Undefined if it has printed all. */
  run(call: Call, given: Given, input: () => Promise<string>, output: Output): Promise<CommandResult | undefined>;
}

/** A command that prints what happens until it is interrupted. */
export interface FollowRow extends Row {
  follow(listen: Listen, given: Given, print: (result: CommandResult) => Promise<void>): Promise<undefined>;
}

export const limitOption = ['--limit <n>', 'how many to print; 100 by default'] as const;
export const newestOption = ['--newest', 'newest first'] as const;
export const apiOption = ['--api <apiId>', 'only of this API'] as const;
/** Besides `--last`. */
export const periodOptions = [
  ['--from <time>', 'only from this time of UTC, such as 14:00 or 2026-11-16'],
  ['--to <time>', 'only before this time'],
] as const;

export const text = (value: Given[string]) => (typeof value === 'string' ? value : undefined);
/** The values of an option that may be repeated. */
export const texts = (value: Given[string]) => (Array.isArray(value) ? (value as readonly string[]) : undefined);
export const orderOf = ({ newest }: Given) => (newest ? ('desc' as const) : ('asc' as const));
export const confirmOption = ['--confirm <name>', 'its name; without it a terminal asks, and a script fails'] as const;

/**
 * Throws unless the caller confirms a deletion with the name of what is deleted, and returns that. `lookUp` returns the
 * name; where the caller may not read it, the argument of the command takes its place.
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

/** Without members that are undefined, which are no JSON. */
export const given = <Input extends object>(input: Input): Input => JSON.parse(JSON.stringify(input));

/**
 * Reads a list up to `wanted` items, in pages of at most `pageMax`. A search may have to read several pages without a
 * match.
 */
export async function readAll<Item>(
  wanted: number,
  read: (limit: number, next: string | undefined) => Promise<CallResult<Item[]>>,
  pageMax = 100,
): Promise<CallResult<Item[]>> {
  const items: Item[] = [];
  let looked = 0;
  let page: CallResult<Item[]> | undefined;
  do {
    page = await read(Math.min(pageMax, wanted - items.length), page?.next);
    items.push(...page.data);
    looked += page.looked ?? 0;
  } while (page.next !== undefined && items.length < wanted);
  return { ...page, data: items, looked };
}

export function wantedOf({ limit }: Given): number {
  const wanted = numberOf(text(limit) ?? '100', '--limit');
  if (wanted === 0) throw new Error('--limit must be at least 1.');
  return wanted;
}

/** One line, and the same as JSON. */
export const done = (line: string, json: unknown): CommandResult => ({ lines: [line], json });

/** A table, or a line that there is nothing. */
export function listResult<Item>(
  what: string,
  { data, next, looked, total }: CallResult<Item[]>,
  { headings, rowOf }: Columns<Item>,
): CommandResult {
  const examined = total === undefined ? '' : ` Examined ${looked} of ${total}.`;
  const more = next === undefined ? [] : [`… and more.${examined} A higher --limit prints more.`];
  const lines = data.length > 0 ? tableOf(headings, data.map(rowOf)) : [`No ${what} found.`];
  return { lines: [...lines, ...more], json: data };
}

/** The period of `--last`, or of `--from` and `--to`. Undefined where they are not given. */
export function periodOf({ last, from, to }: Given): { start?: number; end?: number } {
  const nowMs = Date.now();
  if (last !== undefined && (from !== undefined || to !== undefined))
    throw new Error('--last is the time until now. Leave it out, or --from and --to.');
  if (text(last) !== undefined) return { start: Math.max(0, nowMs - durationOf(text(last)!)) };
  const start = text(from) === undefined ? undefined : timeOf(text(from)!, nowMs);
  const end = text(to) === undefined ? undefined : endOf(text(to)!, start, nowMs);
  if (start !== undefined && end !== undefined && start >= end) throw new Error('--from must be before --to.');
  return given({ start, end });
}

/** The id of a key. Another text, which may be the secret string of a key, is not repeated in the error. */
export function keyIdOf({ keyId }: Given): string {
  const id = text(keyId)!;
  if (!id.startsWith('key_'))
    throw new Error('<keyId> must be the id of a key (key_…). `tollgate key find` prints it.');
  return id;
}

/** Throws the error of a call if there is no such thing, and ignores other errors, such as a grant that is missing. */
export async function requireFound(lookUp: Promise<unknown>): Promise<void> {
  await lookUp.catch((error: Error & { status?: number }) => {
    if (error.status === 404) throw error;
  });
}

/** By the field of an input, the options and arguments that set it. */
const settersOf: Readonly<Record<string, readonly string[]>> = {
  allowedIps: ['--allowed-ip'],
  apiId: ['--api', '<apiId>'],
  before: ['--within'],
  by: ['--order-by'],
  confirm: ['--confirm'],
  'credits.cost': ['--cost'],
  'credits.remaining': ['--credits'],
  creditsBelow: ['--credits-below'],
  end: ['--to'],
  expiration: ['--grace'],
  expires: ['--expires'],
  expiresAfter: ['--expiring'],
  expiresBefore: ['--expiring', '--expired'],
  externalId: ['--owner', '<owner>'],
  duration: ['<duration>'],
  holdId: ['<holdId>'],
  identifier: ['<identifier>'],
  identity: ['<owner>'],
  identityId: ['<identityId>'],
  ip: ['--ip'],
  key: ['<key>'],
  keyId: ['--key', '<keyId>', '<key>'],
  kinds: ['--kind'],
  limit: ['--top', '--limit', '<limit>'],
  meta: ['--meta'],
  name: ['--name', '<name>'],
  namespace: ['--namespace', '<namespace>'],
  operation: ['--operation', '<change>'],
  outcome: ['--outcome'],
  permission: ['--permission'],
  permissions: ['--permissions', '--permission'],
  prefix: ['--prefix'],
  'ratelimits.cost': ['--ratelimit'],
  'ratelimits.duration': ['[duration]'],
  'ratelimits.limit': ['<limit>'],
  'ratelimits.name': ['--ratelimit', '<name>'],
  'ratelimit.duration': ['[duration]'],
  'ratelimit.limit': ['<limit>'],
  'ratelimit.name': ['<name>'],
  'ratelimit.type': ['--type'],
  'ratelimit.until': ['--for', '--until'],
  'resource.id': ['--resource'],
  rerolledInUse: ['--rotated'],
  role: ['--role'],
  rootKeyId: ['--root-key', '<rootKeyId>'],
  search: ['--search', '<text>'],
  start: ['--last', '--from', '<text>'],
  tags: ['--tag'],
  ttl: ['<duration>'],
  until: ['--for', '--until'],
  unusedSince: ['--unused'],
  value: ['<change>'],
};

/** What an error names: a field after `body.`, or the other one of two that exclude each other. */
const namedFields = /\bbody\.[\w.[\]]*\w\]?|(?<=cannot be sent together with )\w+/g;

/** The message of an operation's error, with the option or argument of a command instead of the field that it names. */
export function withOptions(message: string, { words, options = [] }: Row, given: Given): string {
  const setters = new Set([...words.split(' '), ...options.map(([flags]) => flags.split(' ')[0]!)]);
  return message.replaceAll(namedFields, (field) => {
    const path = field.replace('body.', '');
    const steps = path.replaceAll(/\[\d+\]/g, '').split('.');
    for (let length = steps.length; length > 0; length--) {
      const possible = settersOf[steps.slice(0, length).join('.')]?.filter((one) => setters.has(one)) ?? [];
      const setter = possible.find((one) => given[one.replace('--', '')] !== undefined) ?? possible[0];
      if (setter) return setter;
    }
    return field;
  });
}
