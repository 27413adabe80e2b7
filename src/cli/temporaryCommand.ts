// The command that lists temporary limits of keys and identities, and temporary overrides.

import { temporaryColumns } from '../domain/columns.ts';
import type { OutputOf } from './client.ts';
import { apiOption, calls } from './commandRow.ts';
import { amountText, columnsOf, durationOf } from './table.ts';

type Temporary = OutputOf<'ratelimits.listTemporary'>[number];

const table = columnsOf(temporaryColumns, ['Ends', 'Of', 'Key name', 'Limit', 'Now', 'Then'], {
  'Key name': ({ keyName = '' }: Temporary) => keyName,
  Now: (one: Temporary) => amountText(one, one.type),
  Then: ({ former, type }: Temporary) => (former ? amountText(former, type) : 'none'),
});

export const temporaryRow = calls({
  words: 'temporary',
  about: 'List temporary limits of keys and identities, and temporary overrides, the first to end first.',
  operation: 'ratelimits.listTemporary',
  sets: {
    before: [
      '--within <duration>',
      'only what ends within this time from now, such as 7d',
      (text, of, nowMs) => nowMs + durationOf(text, `${of} `) + 1,
    ],
    kinds: ['--kind <kind...>', 'only limits of a `key` or of an `identity`, or only an `override`'],
    apiId: [apiOption[0], 'only limits of the keys of this API'],
    namespace: ['--namespace <namespace>', 'only overrides of this namespace'],
  },
  prints: ['temporary limits and overrides', table],
});
