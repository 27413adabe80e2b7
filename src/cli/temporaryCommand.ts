// The command that lists temporary limits of keys and identities, and temporary overrides.

import { temporaryColumns } from '../domain/columns.ts';
import type { InputOf, OutputOf } from './client.ts';
import {
  apiOption,
  type CommandRow,
  given,
  limitOption,
  listResult,
  readAll,
  text,
  texts,
  wantedOf,
} from './commandRow.ts';
import { amountText, columnsOf, durationOf } from './table.ts';

type Temporary = OutputOf<'ratelimits.listTemporary'>[number];

const table = columnsOf(temporaryColumns, ['Ends', 'Of', 'Key name', 'Limit', 'Now', 'Then'], {
  'Key name': ({ keyName = '' }: Temporary) => keyName,
  Now: (one: Temporary) => amountText(one, one.type),
  Then: ({ former, type }: Temporary) => (former ? amountText(former, type) : 'none'),
});

export const temporaryRow: CommandRow = {
  words: 'temporary',
  about: 'List temporary limits of keys and identities, and temporary overrides, the first to end first.',
  options: [
    ['--within <duration>', 'only what ends within this time from now, such as 7d'],
    ['--kind <kind...>', 'only limits of a `key` or of an `identity`, or only an `override`'],
    [apiOption[0], 'only limits of the keys of this API'],
    ['--namespace <namespace>', 'only overrides of this namespace'],
    limitOption,
  ],
  async run(call, options) {
    const within = text(options.within);
    const input = given({
      before: within === undefined ? undefined : Date.now() + durationOf(within, '--within ') + 1,
      kinds: texts(options.kind)?.slice() as InputOf<'ratelimits.listTemporary'>['kinds'],
      apiId: text(options.api),
      namespace: text(options.namespace),
    });
    const page = await readAll(wantedOf(options), (limit, next) =>
      call('ratelimits.listTemporary', { ...input, limit }, next),
    );
    return listResult('temporary limits and overrides', page, table);
  },
};
