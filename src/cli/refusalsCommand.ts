// Prints recent refusals: of one key, or of all.

import type { InputOf, OutputOf } from './client.ts';
import {
  apiOption,
  type CommandRow,
  type Given,
  given,
  keyIdOf,
  limitOption,
  periodOf,
  requireFound,
  text,
} from './commandRow.ts';
import type { CommandResult } from './result.ts';
import { numberOf, tableOf, timeOf, timeText } from './table.ts';

type Refusals = OutputOf<'analytics.listRefusals'>;

const options = [
  ['--outcome <outcome>', 'only with this outcome, such as RATE_LIMITED'],
  ['--at <time>', 'only of the minute with this time of UTC, such as 14:03'],
  ['--last <duration>', 'only of this time until now, such as 1h; 24h at most'],
  limitOption,
] as const;

const minuteMs = 60_000;

/** A row has the refusals of one minute of UTC, and the time of the last one. */
function minuteOf(time: string): { start: number; end: number } {
  const ms = timeOf(time, Date.now());
  const start = ms - (ms % minuteMs);
  return { start, end: start + minuteMs };
}

function inputOf({ outcome, at, last, limit }: Given): InputOf<'analytics.listRefusals'> {
  if (at !== undefined && last !== undefined) throw new Error('--at is a minute. Leave it out, or --last.');
  return given({
    outcome: text(outcome)?.toUpperCase() as NonNullable<InputOf<'analytics.listRefusals'>['outcome']>,
    ...(text(at) === undefined ? periodOf({ last }) : minuteOf(text(at)!)),
    limit: text(limit) === undefined ? undefined : numberOf(text(limit)!),
  });
}

export const refusalRows: readonly CommandRow[] = [
  {
    words: 'key refusals <keyId>',
    about:
      'List the refusals of a key in the last 24 hours, newest first: when, why, and by which limit. `-` reads the key from standard input instead.',
    options,
    async run(call, options, input) {
      const keyId =
        options.keyId === '-'
          ? (await call('keys.whoami', { key: (await input()).trim() })).data.keyId
          : keyIdOf(options);
      const { data } = await call('analytics.listRefusals', { keyId, ...inputOf(options) });
      if (data.length === 0) await requireFound(call('keys.getKey', { keyId }));
      return refusalsResult(data);
    },
  },
  {
    words: 'refusals',
    about:
      'List the refusals of all keys in the last 24 hours, newest first. A key that is refused often has one row for several refusals, with their number.',
    options: [apiOption, ['--owner <externalId>', 'only of this identity'], ...options],
    async run(call, options) {
      const of = given({ apiId: text(options.api), externalId: text(options.owner) });
      return refusalsResult((await call('analytics.listRefusals', { ...of, ...inputOf(options) })).data);
    },
  },
];

function refusalsResult(refusals: Refusals): CommandResult {
  if (refusals.length === 0) return { lines: ['No refusals found. They are listed for 24 hours.'], json: refusals };
  const rows = refusals.map(({ time, count, outcome, keyId, externalId, ratelimit, limit, duration, tags, source }) => [
    timeText(time),
    String(count),
    outcome,
    keyId,
    externalId ?? '',
    ratelimit === undefined ? (source === 'lease' ? '(by a lease)' : '') : `${ratelimit} ${limit}/${duration}ms`,
    (tags ?? []).join(', '),
  ]);
  return {
    lines: tableOf(['TIME', 'COUNT', 'OUTCOME', 'KEY', 'OWNER', 'LIMIT', 'TAGS'], rows),
    json: refusals,
  };
}
