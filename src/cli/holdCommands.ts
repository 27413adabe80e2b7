// The commands about the holds of a key: what verifications reserved and callers have not settled yet.

import { holdColumns } from '../domain/columns.ts';
import type { OutputOf } from './client.ts';
import { type CommandRow, calls, duration, keyId } from './commandRow.ts';
import { limitCostOf } from './explain.ts';
import { columnsOf, numberOf, timeText } from './table.ts';

type Ended = OutputOf<'keys.settleHold'>;

const holdId = [
  '<holdId>',
  (id: string): string => {
    if (id.startsWith('hold_')) return id;
    throw new Error('<holdId> must be the id of a hold (hold_…). `tollgate key holds` prints those of a key.');
  },
] as const;

const unitsText = (limits: Ended['ratelimits']) => limits.map(({ name, cost }) => `${cost} of ${name}`).join(', ');
const slotsText = (slots: Ended['ratelimits']) =>
  slots.map(({ name, cost }) => `${cost} ${cost === 1 ? 'slot' : 'slots'} of ${name}`).join(', ');

const creditsText = (owner: string, { credits, debt }: Pick<Ended, 'credits' | 'debt'>): string =>
  `${owner} has ${credits ?? 'unlimited'} credits${debt === undefined ? '' : ` and a debt of ${debt}`}.`;

const balanceText = ({ keyId, identity, ...balance }: Ended): string =>
  [creditsText(keyId, balance), ...(identity ? [creditsText('Its identity', identity)] : [])].join(' ');

type OpenHold = OutputOf<'keys.listHolds'>[number];
const holdTable = columnsOf(holdColumns, ['Hold', 'Since', 'Until', 'Then', 'Credits', 'Units'], {
  Credits: ({ credits }: OpenHold) => String(credits ?? 'unlimited'),
  Units: ({ ratelimits, slots }: OpenHold) =>
    [unitsText(ratelimits), slotsText(slots ?? [])].filter(Boolean).join(', '),
});

export const holdRows: readonly CommandRow[] = [
  calls({
    words: 'key holds <keyId>',
    about: 'List the open holds of a key: credits and units that are reserved. The first to expire is first.',
    operation: 'keys.listHolds',
    sets: { keyId },
    prints: ['open holds', holdTable],
  }),
  calls({
    words: 'key hold-settle <holdId>',
    about: 'End a hold: charge the actual amounts, by default what was held, and give the rest back.',
    operation: 'keys.settleHold',
    sets: {
      holdId,
      'credits.cost': ['--cost <n>', 'credits to charge', numberOf],
      ratelimits: [
        '--ratelimit <name=cost...>',
        'units of a limit to charge, such as `tokens=137`',
        (text) => limitCostOf(text) as { name: string; cost: number },
      ],
    },
    prints(ended, { holdId }) {
      const late = ended.late ? ', which had been given back' : '';
      const units = ended.ratelimits.length > 0 ? ` It charged ${unitsText(ended.ratelimits)}.` : '';
      return `Settled ${holdId}${late}.${units} ${balanceText(ended)}`;
    },
  }),
  calls({
    words: 'key hold-release <holdId>',
    about: 'End a hold, and give everything back.',
    operation: 'keys.releaseHold',
    sets: { holdId },
    prints: (ended, { holdId }) => `Released ${holdId}. ${balanceText(ended)}`,
  }),
  calls({
    words: 'key hold-extend <holdId> <duration>',
    about: 'Let an open hold expire this long from now, such as `10m`: earlier or later than before.',
    operation: 'keys.extendHold',
    sets: { holdId, ttl: ['<duration>', duration] },
    prints: ({ hold }, { holdId }) => `${holdId} expires at ${timeText(hold.expires)}.`,
  }),
];
