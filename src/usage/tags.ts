// Counts by tag, which are also by key, externalId and outcome (lua/decide/usageByTag.lua).

import { outcomes } from '../domain/verification.ts';
import { tagUsageKey, workspaceKey } from '../redis/names.ts';
import { tagField } from '../scripts/layout.ts';
import { Reader } from '../scripts/struct.ts';
import { countsOf, readAll } from './commands.ts';
import {
  daysIn,
  isIn,
  type KeptPeriod,
  keptHour,
  readsMax,
  tooMuch,
  type UsageCount,
  type UsageScope,
  type Visit,
} from './query.ts';

/** Limit of bytes that a query reads, as each count has all names in full: about a second of the server's time. */
const tagBytesMax = 256 * 1024 * 1024;

export async function countByTag({ context, workspaceId, apiIds, period }: UsageScope, visit: Visit<UsageCount>) {
  const { redis } = context;
  const workspace = workspaceKey(workspaceId);
  const days = daysIn(period);
  if (apiIds.length * days.length > readsMax) throw tooMuch();
  const records = apiIds.flatMap((apiId) =>
    days.map((day) => ({ apiId, day, name: tagUsageKey(workspace, apiId, day) })),
  );
  const sizes = await readAll<(typeof records)[number], number>(redis, records, (commands, { name }) =>
    commands.hlen(name),
  );
  if (sizes.reduce((sum, size) => sum + size, 0) > readsMax) throw tooMuch();
  let bytes = 0;
  for (const [index, { apiId, day, name }] of records.entries()) {
    if (sizes[index] === 0) continue;
    for await (const fields of countsOf(redis, name)) {
      for (const [field, value] of fields) {
        bytes += field.length;
        if (bytes > tagBytesMax) throw tooMuch();
        const count = readTagCount(apiId, day, field, Number(value.toString()), period);
        if (isIn(period, count)) visit(count);
      }
    }
  }
}

/**
 * Visits counts by tag, and subtracts them from those of verifications without a tag. The tag '' has the counts that
 * several tags of a verification repeat (lua/decide/usageByTag.lua).
 */
export const takenOff =
  (visit: Visit<UsageCount>): Visit<UsageCount> =>
  (usage) => {
    const sign = usage.tag === '' ? 1 : -1;
    if (sign < 0) visit(usage);
    visit({ ...usage, tag: '', count: sign * usage.count, spentCredits: sign * usage.spentCredits });
  };

/** A count, or spent credits. Credits are in another field, whose name is that of the count after an `s`. */
function readTagCount(apiId: string, day: string, name: Buffer, amount: number, period: KeptPeriod): UsageCount {
  const isSpent = name[0] === 's'.charCodeAt(0);
  const { hourOfDay, outcome, key24, externalId, tag } = tagField.read(new Reader(isSpent ? name.subarray(1) : name));
  return {
    ...keptHour(day, hourOfDay, period),
    outcome: outcomes[Number(outcome) - 1]!,
    count: isSpent ? 0 : amount,
    spentCredits: isSpent ? amount : 0,
    apiId,
    keyId: `key_${key24}`,
    externalId,
    tag,
  };
}
