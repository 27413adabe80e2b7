// The commands about overrides: other limits of some identifiers in a namespace of ratelimits.limit.

import { overrideColumns } from '../domain/columns.ts';
import type { OutputOf } from './client.ts';
import { type CommandRow, calls, done, periodSets, until } from './commandRow.ts';
import { amountText, columnsOf, durationOf, numberOf, tableOf, timeText } from './table.ts';

type Override = OutputOf<'ratelimits.getOverride'>;

const table = columnsOf(overrideColumns, ['Identifier', 'Limit', 'Until', 'Then'], {
  Limit: (override: Override) => amountText(override),
  Then: ({ until, former }: Override) => (until === undefined ? '' : former ? amountText(former) : 'none'),
});

const one = { namespace: '<namespace>', identifier: '<identifier>' } as const;

export const overrideRows: readonly CommandRow[] = [
  calls({
    words: 'override list <namespace>',
    about: 'List the overrides of a namespace, in order of creation.',
    operation: 'ratelimits.listOverrides',
    sets: { namespace: '<namespace>' },
    prints: ['overrides', table],
  }),
  calls({
    words: 'override get <namespace> <identifier>',
    about: 'Print the override for exactly this identifier.',
    operation: 'ratelimits.getOverride',
    sets: one,
    prints: (override) => tableOf(table.headings, [table.rowOf(override)]),
  }),
  calls({
    words: 'override set <namespace> <identifier> <limit> [duration]',
    about:
      'Set the limit of an identifier, or of those that match its `*`, for example `mail user_42 500 1m` or `mail user_42 500 --per day`. 0 blocks them.',
    operation: 'ratelimits.setOverride',
    sets: {
      ...one,
      limit: ['<limit>', numberOf],
      duration: ['[duration]', (text, of) => durationOf(text, `${of} `)],
      ...periodSets,
      until: until('the permanent override before it applies again'),
    },
    prints({ overrideId }, { namespace, identifier, until, ...amount }) {
      const line = `${identifier} in ${namespace} has ${amountText(amount)}`;
      if (until === undefined) return `${line}.`;
      const end = `until ${timeText(until)}, then its permanent override, if it has one`;
      return done(`${line} ${end}.`, { overrideId, until });
    },
  }),
  calls({
    words: 'override delete <namespace> <identifier>',
    about: 'Delete the override for exactly this identifier, and the one that a temporary one replaced.',
    operation: 'ratelimits.deleteOverride',
    sets: {
      ...one,
      '--confirm': ['--confirm <name>', 'the identifier; without it a terminal asks, and a script fails'],
    },
    confirms: (call, override) => call('ratelimits.getOverride', override).then(() => override.identifier),
    prints: (_, { namespace, identifier }) => `Deleted the override of ${identifier} in ${namespace}.`,
  }),
];
