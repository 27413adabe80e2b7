// Prints recent refusals: of one key, or of all.

import type { InputOf, OutputOf } from './client.ts';
import { apiOption, type CommandRow, type Given, given, limitOption, text } from './commandRow.ts';
import type { CommandResult } from './result.ts';
import { durationOf, numberOf, tableOf, timeText } from './table.ts';

type Refusals = OutputOf<'analytics.listRefusals'>;

const options = [
  ['--outcome <outcome>', 'only with this outcome, such as RATE_LIMITED'],
  ['--last <duration>', 'only of this time, such as 1h; 24h at most'],
  limitOption,
] as const;

const inputOf = ({ outcome, last, limit }: Given): InputOf<'analytics.listRefusals'> => ({
  ...given({
    outcome: text(outcome) as NonNullable<InputOf<'analytics.listRefusals'>['outcome']>,
    start: text(last) === undefined ? undefined : Math.max(0, Date.now() - durationOf(text(last)!)),
    limit: text(limit) === undefined ? undefined : numberOf(text(limit)!),
  }),
});

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
          : text(options.keyId)!;
      const { data } = await call('analytics.listRefusals', { keyId, ...inputOf(options) });
      // Says so if there is no such key.
      if (data.length === 0) await call('keys.getKey', { keyId });
      return refusalsResult(data);
    },
  },
  {
    words: 'refusals',
    about: 'List the refusals of all keys in the last 24 hours, newest first. In a flood one row stands for many.',
    options: [apiOption, ['--owner <externalId>', 'only of this identity'], ...options],
    async run(call, options) {
      const of = given({ apiId: text(options.api), externalId: text(options.owner) });
      return refusalsResult((await call('analytics.listRefusals', { ...of, ...inputOf(options) })).data);
    },
  },
];

function refusalsResult(refusals: Refusals): CommandResult {
  if (refusals.length === 0) return { lines: ['There are no refusals.'], json: refusals };
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
