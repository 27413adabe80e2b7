// Prints recent refusals: of one key, or of all.

import { refusalColumns } from '../domain/columns.ts';
import type { Call, CallResult, InputOf, OutputOf } from './client.ts';
import {
  apiOption,
  type CommandRow,
  type Given,
  keyIdOf,
  limitOption,
  ownerOption,
  period,
  periodOf,
  readAll,
  requireFound,
  runs,
  upperCase,
} from './commandRow.ts';
import type { CommandResult } from './result.ts';
import { columnsOf, limitText, planIfAny, tableOf, timeOf, timeText } from './table.ts';

type Query = Omit<InputOf<'analytics.listRefusals'>, 'limit' | 'cursor'>;
type Refusals = OutputOf<'analytics.listRefusals'>;
type Counted = NonNullable<CallResult<Refusals>['counted']>;

const [minuteMs, hourMs] = [60_000, 3_600_000];
const pageMax = 1000;
/** Hours with refusals without a row that are printed one by one. */
const hoursMax = 5;

/** A row has the refusals of one minute of UTC, and the time of the last one. */
function askedPeriod({ at, ...others }: Given, nowMs: number): { start?: number; end?: number } {
  if (at === undefined) return periodOf(others, nowMs);
  if (['last', 'from', 'to'].some((other) => others[other] !== undefined))
    throw new Error('--at is a minute. Leave it out, or --last, --from and --to.');
  const ms = timeOf(at as string, nowMs);
  const start = ms - (ms % minuteMs);
  return { start, end: start + minuteMs };
}

type Outcome = NonNullable<Query['outcome']>;
const periodOptions = [
  ['--at <time>', 'only of the minute with this time of UTC, such as 14:03'],
  ['--last <duration>', 'only of this time until now, such as 1h'],
] as const;
const sets = {
  outcome: ['--outcome <outcome>', 'only with this outcome, such as RATE_LIMITED', upperCase<Outcome>],
  ...period(periodOptions, askedPeriod),
  limit: limitOption,
} as const;

export const refusalRows: readonly CommandRow[] = [
  runs<Query & { keyId: string; limit?: number }>({
    words: 'key refusals <keyId>',
    about:
      'List the recent refusals of a key, newest first: when, why, what was asked, and by which limit. `-` reads the key from standard input instead.',
    sets: { keyId: '<keyId>', ...sets },
    async run(call, { keyId: given, limit, ...asked }, { readKey }) {
      const keyId = given === '-' ? (await call('keys.whoami', { key: await readKey() })).data.keyId : keyIdOf(given);
      const query = { keyId, ...asked };
      const answer = await refusalsOf(call, query, limit);
      if (answer.data.length === 0) await requireFound(call('keys.getKey', { keyId }));
      return refusalsResult(answer, query);
    },
  }),
  runs<Query & { limit?: number }>({
    words: 'refusals',
    about:
      'List the recent refusals of all keys, newest first. A key that is refused often has one row for several refusals, with their number.',
    sets: { apiId: apiOption, externalId: ownerOption, ...sets },
    async run(call, { limit, ...query }) {
      const answer = await refusalsOf(call, query, limit);
      if (answer.data.length === 0 && query.apiId) await requireFound(call('apis.getApi', { apiId: query.apiId }));
      return refusalsResult(answer, query);
    },
  }),
];

/** Reads pages until there are as many rows as wanted. An hour on two pages is counted by both. */
async function refusalsOf(call: Call, query: Query, wanted: number | undefined): Promise<CallResult<Refusals>> {
  const counted = new Map<number, Counted[number]>();
  const read = async (limit: number, next: string | undefined) => {
    const page = await call('analytics.listRefusals', { ...query, limit }, next);
    for (const hour of page.counted ?? []) counted.set(hour.time, hour);
    return page;
  };
  return { ...(await readAll(wanted, read, pageMax)), counted: [...counted.values()] };
}

function refusalsResult(answer: CallResult<Refusals>, { start, end }: Query): CommandResult {
  const { data, next, since = 0, counted = [] } = answer;
  const isOld = (start ?? since) < since;
  const notes = [
    ...withoutRows(counted),
    ...(isOld ? [`Refusals before ${timeText(since)} are no longer listed. \`tollgate usage\` has their number.`] : []),
  ];
  if (data.length === 0) {
    const period = `from ${timeText(Math.max(start ?? 0, since))}${end === undefined ? '' : ` to ${timeText(end)}`}`;
    const what = counted.every(isListed) ? 'No refusals' : 'No details of refusals';
    return { lines: end !== undefined && end <= since ? [] : [`${what} ${period}.`], json: data, notes };
  }
  const more = next === undefined ? [] : ['… and more. A higher --limit prints more.'];
  const { headings, rowOf } = columnsFor(data);
  return { lines: tableOf(headings, data.map(rowOf)), json: data, notes: [...more, ...notes] };
}

const columnsFor = (rows: Refusals) =>
  columnsOf(
    refusalColumns,
    ['Time, UTC', 'Refusals', 'Outcome', 'Key', 'Customer', ...planIfAny(rows), 'Permissions asked', 'Limit', 'Tags'],
    { Limit: limitOf },
  );

function limitOf(refusals: Refusals[number]): string {
  const { outcome, ratelimit, limit, duration, cost, remaining, of, source } = refusals;
  const left = remaining === undefined ? '' : `, ${remaining} left${of ? ' of the identity' : ''}`;
  const figures = cost === undefined ? '' : `cost ${cost}${left}`;
  if (ratelimit === undefined)
    return figures || (outcome === 'RATE_LIMITED' && source === 'lease' ? '(by a lease)' : '');
  const isWhole = limit !== undefined && duration !== undefined;
  return [isWhole ? limitText({ ...refusals, name: ratelimit, limit }) : ratelimit, figures].filter(Boolean).join(', ');
}

const isListed = ({ refused, listed }: Counted[number]) => refused === listed;

/** States how many refusals have no row, by hour. */
function withoutRows(counted: Counted): string[] {
  const hours = counted.filter((hour) => !isListed(hour)).sort((a, b) => b.time - a.time);
  const lines = hours.slice(0, hoursMax).map((hour) => {
    const period = `From ${timeText(hour.time)} to ${timeText(hour.time + hourMs)}`;
    const { refused, listed } = hour;
    return refused === undefined
      ? `${period} details of some refusals may have been left out: too many keys were used to count them.`
      : `${period}: ${refused} refused; details of ${refused - listed} were left out.`;
  });
  const others = hours.slice(hoursMax);
  const sum = others.reduce((sum, { refused = 0, listed }) => sum + Math.max(0, refused - listed), 0);
  if (others.length > 0) lines.push(`In ${others.length} earlier hours details of ${sum} more were left out.`);
  if (lines.length > 0)
    lines.push('Details are left out under load, and where a key is refused often. Every refusal is counted.');
  return lines;
}
