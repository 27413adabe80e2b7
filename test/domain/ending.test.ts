import { expect, test } from 'vitest';
import { type RootKeyUse, usedBy } from '../../src/domain/ending.ts';
import { dayMs, hourMs } from '../../src/domain/time.ts';

const nowMs = Date.UTC(2026, 0, 15, 12);
const minute = 60_000;

/** Times from now, in milliseconds. */
const ending = (expires: number | undefined, lastUsedAt: number | undefined, enabled = true): RootKeyUse => ({
  enabled,
  ...(expires !== undefined && { expires: nowMs + expires }),
  ...(lastUsedAt !== undefined && { lastUsedAt: nowMs + lastUsedAt }),
});

test.each<[string, RootKeyUse, ReturnType<typeof usedBy>]>([
  ['in use, ends in 14 days', ending(14 * dayMs, -10 * minute), 'callers'],
  ['in use, ends later', ending(14 * dayMs + 1, 0), undefined],
  ['in use, does not end', ending(undefined, 0), undefined],
  ['disabled', ending(hourMs, 0, false), undefined],
  ['never used', ending(hourMs, undefined), undefined],
  ['used eleven minutes ago', ending(hourMs, -11 * minute), 'jobs'],
  ['used a week ago', ending(hourMs, -7 * dayMs), 'jobs'],
  ['used more than a week ago', ending(hourMs, -7 * dayMs - 1), undefined],
  ['ended now, used until then', ending(0, -minute), 'callers'],
  ['ended a day ago, used until then', ending(-dayMs, -dayMs - minute), 'callers'],
  ['ended more than a day ago', ending(-dayMs - 1, -dayMs - minute), undefined],
  // Rotated with a grace period of an hour, in which the callers got another one.
  ['ended, not used until then', ending(-minute, -12 * minute), undefined],
])('a root key that is %s', (_name, rootKey, expected) => expect(usedBy(rootKey, nowMs)).toBe(expected));
