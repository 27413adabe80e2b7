// The commands about the holds of a key: what verifications reserved and callers have not settled yet.

import { holdColumns } from '../domain/columns.ts';
import type { OutputOf } from './client.ts';
import {
  type CommandRow,
  done,
  type Given,
  given,
  keyIdOf,
  limitOption,
  listResult,
  readAll,
  text,
  texts,
  wantedOf,
} from './commandRow.ts';
import { limitCostOf } from './explain.ts';
import { columnsOf, durationOf, numberOf, timeText } from './table.ts';

type Ended = OutputOf<'keys.settleHold'>;

/** The id of a hold. */
function holdIdOf({ holdId }: Given): string {
  const id = text(holdId)!;
  if (!id.startsWith('hold_'))
    throw new Error('<holdId> must be the id of a hold (hold_…). `tollgate key holds` prints those of a key.');
  return id;
}

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
  {
    words: 'key holds <keyId>',
    about: 'List the open holds of a key: credits and units that are reserved. The first to expire is first.',
    options: [limitOption],
    async run(call, options) {
      const keyId = keyIdOf(options);
      const page = await readAll(wantedOf(options), (limit, next) => call('keys.listHolds', { keyId, limit }, next));
      // Its `total` is the number of open holds, not of what was examined.
      const holds = { ...page, total: undefined };
      return listResult('open holds', holds, holdTable);
    },
  },
  {
    words: 'key hold-settle <holdId>',
    about: 'End a hold: charge the actual amounts, by default what was held, and give the rest back.',
    options: [
      ['--cost <n>', 'credits to charge'],
      ['--ratelimit <name=cost...>', 'units of a limit to charge, such as `tokens=137`'],
    ],
    async run(call, options) {
      const holdId = holdIdOf(options);
      const { cost, ratelimit } = options;
      const input = given({
        holdId,
        credits: text(cost) === undefined ? undefined : { cost: numberOf(text(cost)!, '--cost') },
        ratelimits: texts(ratelimit)?.map((one) => limitCostOf(one) as { name: string; cost: number }),
      });
      const { data } = await call('keys.settleHold', input);
      const late = data.late ? ', which had been given back' : '';
      const units = data.ratelimits.length > 0 ? ` It charged ${unitsText(data.ratelimits)}.` : '';
      return done(`Settled ${holdId}${late}.${units} ${balanceText(data)}`, data);
    },
  },
  {
    words: 'key hold-release <holdId>',
    about: 'End a hold, and give everything back.',
    async run(call, options) {
      const holdId = holdIdOf(options);
      const { data } = await call('keys.releaseHold', { holdId });
      return done(`Released ${holdId}. ${balanceText(data)}`, data);
    },
  },
  {
    words: 'key hold-extend <holdId> <duration>',
    about: 'Let an open hold expire this long from now, such as `10m`: earlier or later than before.',
    async run(call, options) {
      const holdId = holdIdOf(options);
      const { data } = await call('keys.extendHold', { holdId, ttl: durationOf(text(options.duration)!) });
      return done(`${holdId} expires at ${timeText(data.hold.expires)}.`, data);
    },
  },
];
