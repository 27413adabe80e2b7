// The commands about overrides: other limits of some identifiers in a namespace of ratelimits.limit.

import { overrideColumns } from '../domain/columns.ts';
import type { OutputOf } from './client.ts';
import {
  type CommandRow,
  confirmedName,
  done,
  given,
  limitOption,
  listResult,
  readAll,
  text,
  wantedOf,
} from './commandRow.ts';
import { amountText, columnsOf, durationOf, numberOf, tableOf, timeText } from './table.ts';
import { untilOf, untilOptions } from './until.ts';

type Override = OutputOf<'ratelimits.getOverride'>;

const table = columnsOf(overrideColumns, ['Identifier', 'Limit', 'Until', 'Then'], {
  Limit: (override: Override) => amountText(override),
  Then: ({ until, former }: Override) => (until === undefined ? '' : former ? amountText(former) : 'none'),
});

export const overrideRows: readonly CommandRow[] = [
  {
    words: 'override list <namespace>',
    about: 'List the overrides of a namespace, in order of creation.',
    options: [limitOption],
    async run(call, options) {
      const namespace = text(options.namespace)!;
      const page = await readAll(wantedOf(options), (limit, next) =>
        call('ratelimits.listOverrides', { namespace, limit }, next),
      );
      return listResult('overrides', page, table);
    },
  },
  {
    words: 'override get <namespace> <identifier>',
    about: 'Print the override for exactly this identifier.',
    async run(call, options) {
      const input = { namespace: text(options.namespace)!, identifier: text(options.identifier)! };
      const { data } = await call('ratelimits.getOverride', input);
      return { lines: tableOf(table.headings, [table.rowOf(data)]), json: data };
    },
  },
  {
    words: 'override set <namespace> <identifier> <limit> <duration>',
    about:
      'Set the limit of an identifier, or of those that match its `*`, for example `mail user_42 500 1m`. 0 blocks them.',
    options: untilOptions('the permanent override before it applies again'),
    async run(call, options) {
      const [namespace, identifier] = [text(options.namespace)!, text(options.identifier)!];
      const limit = numberOf(text(options.limit)!, '<limit>');
      const duration = durationOf(text(options.duration)!, '<duration> ');
      const until = untilOf(options);
      const { data } = await call('ratelimits.setOverride', given({ namespace, identifier, limit, duration, until }));
      const end = until === undefined ? '' : ` until ${timeText(until)}, then its permanent override, if it has one`;
      return done(`${identifier} in ${namespace} has ${amountText({ limit, duration })}${end}.`, {
        ...data,
        ...given({ until }),
      });
    },
  },
  {
    words: 'override delete <namespace> <identifier>',
    about: 'Delete the override for exactly this identifier, and the one that a temporary one replaced.',
    options: [['--confirm <name>', 'the identifier; without it a terminal asks, and a script fails']],
    async run(call, options, _input, output) {
      const [namespace, identifier] = [text(options.namespace)!, text(options.identifier)!];
      const found = call('ratelimits.getOverride', { namespace, identifier }).then(() => identifier);
      await confirmedName(identifier, found, options, output);
      await call('ratelimits.deleteOverride', { namespace, identifier });
      return done(`Deleted the override of ${identifier} in ${namespace}.`, { namespace, identifier });
    },
  },
];
