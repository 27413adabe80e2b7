// The one declaration of all bytes and numeric codes that TypeScript and Lua exchange or store: the states of keys and
// identities, the items and answers of a batch, the snapshot of a key, and usage counts. TypeScript reads and writes
// them with these structures (struct.ts). The build of lua/ replaces names in capitals that are declared here by
// literals (library.ts), and checks calls of `struct.pack` and `struct.unpack` against the declaration
// (structureCheck.ts).
//
// A change of a stored structure (marked "stored") needs another `dataVersion` and an entry in CHANGELOG.md. The golden
// bytes in test/scripts/layout.test.ts fail until both exist.
//
// The state of a key, as test/scripts/layout.test.ts builds it: a key of an identity, with 100 credits that a refill
// sets to 1000 every day, and one limit of 10 per minute that has counted 3 units in one slice.
//
//   fixed     41 62 43 64 45 66 47 68 31 32 33 34 35 36 37 38  id16            first 16 of the id `AbCdEfGh12345678`
//             01 9a 9e 8f 90 00 00 07                          version         time 1763596800000, number 7
//             41 70 69 41 70 69 38 38                          api8            last 8 of id and API, `ApiApi88`
//             07                                               flags           enabled, limited, refilled
//             ff ff ff ff ff ff                                expires         never
//             00 00 00 00 00 03 e8                             refillAmount    1000
//             00                                               refillDay       daily
//   link      00 16                                                            22 bytes
//             49 64 65 6e 74 69 74 79 31 32 33 34 35 36 37 38  identityId16    `Identity12345678`
//             75 73 65 72 5f 31                                externalId      `user_1`
//   limits    01                                                               one
//             00 00 00 00 00 00 0a                             limit           10
//             00 00 00 00 00 ea 60                             duration        60000
//             01                                               switches        autoApply
//             00 06                                            nameBytes       6
//             4c 69 6d 69 74 49 64 31 32 33 34 35 36 37 38 39  id16            `LimitId123456789`
//             6d 69 6e 75 74 65                                name            `minute`
//             01 01 9a 9e 8f a4 89 00 00 00 00 00 01           window          kind 1, base, step 1 ms (windowLog.lua)
//             00 03                                                            at the base 3 units
//             00 00 00 00 00 00 03                                             3 units in all
//             00 16                                            windowBytes     22
//   live      00 00 00 00 00 00 64                             balance         100
//             01 9a a3 b5 ec 00                                refillDue       1763683200000
//             01 9a 9e 8f a4 88                                lastUsed        1763596805256
//   usage     00 07 79 ac                                      hour            489900, since 1970
//             00 00 00 03 00 00 00 00 00 00 00 00 00 00 00 00  counts          3 VALID, none of the other outcomes
//             00 00 00 00 00 00 00 00
//             00 00 00 00 00 00 03                             spent           3 credits
//
// Fields that every verification changes are at the end. Redis's Lua hashes each byte of every string that it creates,
// so the new state is made of one part of the old state and a few new bytes.

import { packRanges, unpackRanges } from '../domain/ipRange.ts';
import { JsonText } from '../domain/json.ts';
import { addedTermMax, leaseMsMax } from '../domain/leaseTerms.ts';
import {
  defaultValues,
  type LimitValueName,
  lastsMax,
  limitSwitches,
  limitValues,
  planSwitch,
  quotaSwitch,
  type StoredEnd,
  slotsMax,
  temporarySwitch,
} from '../domain/limit.ts';
import { codeUnit, quotaCodes, quotaPeriods } from '../domain/quota.ts';
import { dayMs, hourMs, timeMax } from '../domain/time.ts';
import { outcomes } from '../domain/verification.ts';
import { wildcardsMax, workspaceWildcardsMax } from '../domain/wildcards.ts';
import {
  ascii,
  bytes,
  counts,
  type Fields,
  int,
  list,
  luaFields,
  luaNames,
  opaque,
  optional,
  rest,
  type Struct,
  sized,
  struct,
  text,
  uint,
} from './struct.ts';

/** The structures that scripts use, by their names in Lua. */
const luaStructs = new Map<string, Struct<Fields>>();

/** A structure that scripts use by this name. */
function inLua<const Of extends Fields>(name: string, fields: Of): Struct<Of> {
  const declared = struct(fields);
  luaStructs.set(name, declared);
  return declared;
}

/** The version of all data in Redis that this release migrates to, see dataVersion.ts. */
export const dataVersion = 8;
/** The oldest version that this release reads and writes. Older data is refused at the start. */
export const oldestDataVersion = 4;

/** `expires` of a key without expiry. 0 is a time, in the past. */
export const never = 2 ** 48 - 1;

/**
 * Bits of the flags of a key, from 1. Permissions are read only for keys with `direct` or `roles`. The state of an
 * `extended` key has KEY_EXTENSION, and one of the limits of a `temporary` key has LIMIT_END.
 * All eight are used: a further one is one of `keyMarks`.
 */
export const keyFlags = [
  'enabled',
  'limited',
  'refilled',
  'direct',
  'roles',
  'deleted',
  'extended',
  'temporary',
] as const;

/** Bits of the marks of a key, from 1: more flags, in KEY_EXTENSION. */
export const keyMarks = ['restricted', 'pays', 'draws', 'planned'] as const;

/** The numbers of the outcomes that usage counts: all except NOT_FOUND, which has no key. */
export const countedOutcomes: readonly number[] = outcomes.flatMap((outcome, index) =>
  outcome === 'NOT_FOUND' ? [] : [index + 1],
);
/** Outcomes before NOT_FOUND are counted in every state of a key, later ones in KEY_EXTENSION. */
export const outcomesInTail = outcomes.indexOf('NOT_FOUND');
/**
 * The places of an hour in a key's history: a count for each outcome by its number, from 0. NOT_FOUND is not counted,
 * and credits spent have its place.
 */
export const countPlaces = outcomes.length;
export const spentPlace = outcomesInTail;
// A count by tag has one digit for its outcome, and an hour of a key's history one byte of bits.
if (countPlaces > 8) throw new Error('layout: more counts than the bits of a byte');
for (const { length } of [keyFlags, keyMarks])
  if (length > 8) throw new Error('layout: more flags than the bits of a byte');

/** The kinds of items in a batch, numbered from 1: `KIND_VERIFY` and so on in Lua. */
export const itemKinds = ['verify', 'limit', 'lease', 'settle', 'hold', 'holdChange'] as const;
/** The owners of a limit of a verification. */
export const limitOwners = ['key', 'identity', 'request'] as const;
/**
 * The place of a limit: its index among the limits of its owner, from 1, plus the number of places of earlier owners.
 */
export const placesOfOwner = 80;
if (limitOwners.length * placesOfOwner > 255) throw new Error('layout: a place is more than a byte');
/** Outcomes of a limit item. */
export const limitPassed = 10;
export const limitBlocked = 11;
/** The errors of items, which are no decisions, numbered from `itemErrorFrom` on. Lua uses these names. */
export const itemErrorFrom = 20;
export const itemErrors = [
  'unauthorized',
  'root_key_disabled',
  'root_key_expired',
  'insufficient_permissions',
  'limit_not_found',
  'namespace_not_found',
  'create_namespace',
  'too_many_counters',
  'too_many_records',
  'leased',
  'failed',
  'hold_not_found',
  'hold_ended',
  'hold_differs',
  'hold_limit_not_found',
  'too_many_holds',
  'hold_too_large',
] as const;
/** The answer to an item that settles leases. */
export const leaseDone = 12;
/** The answer to an item that changes a hold. */
export const holdChanged = 13;
/** The effects of an expiry that a hold item asks for, and the changes of a hold by an item: their numbers from 0. */
/** Limits of the open holds of a key: their number and their bytes. One more hold may exceed the bytes. */
export const holdsMax = 10_000;
export const holdsBytesMax = 1024 * 1024;
/** Limit of the bytes of a hold: `holdHead.bytes` has two, and one request reads all holds of a key. */
export const holdBytesMax = 4096;
export const holdExpiries = ['release', 'charge'] as const;
export const holdActions = ['settle', 'release', 'extend'] as const;
/** Added to the outcome of a verification: the snapshot of the key is that of an earlier answer of the batch. */
export const snapshotBefore = 128;
/** Added to the outcome of a verification: it made a hold, which follows (HELD). */
export const withHold = 64;
/** Added to the length of an answer: its snapshot follows the answers. */
export const withSnapshot = 32_768;

// Stored.

/** A version, which no other one of the workspace equals. Two numbers, which Lua compares without creating a string. */
const version = inLua('VERSION', { time: uint(6), number: uint(2) });

export const keyFixed = inLua('KEY_FIXED', {
  /** The first 16 characters of the id, without `key_`. */
  id16: bytes(16),
  version: bytes(version.bytes),
  /** The last 8 characters of the id, and of the id of its API. */
  api8: bytes(8),
  flags: uint(1),
  /** Unix milliseconds, or `never`. */
  expires: uint(6),
  refillAmount: uint(7),
  /** 0 daily, 1 to 31 monthly. */
  refillDay: uint(1),
});
/**
 * The times in a state that callers set, in Unix milliseconds, each with its value for none. Scripts that create,
 * update, read and inspect keys, the audit log and the types of the store take them from here.
 */
export const keyTimes = { expires: { none: never } } as const satisfies Partial<
  Record<keyof typeof keyFixed.fields, { none: number }>
>;
export type KeyTime = keyof typeof keyTimes;
/** The fields of the state that a verification reads, and the length of the link that follows. */
inLua('KEY_DECIDES', {
  version: opaque(version),
  api8: keyFixed.fields.api8,
  flags: keyFixed.fields.flags,
  expires: keyFixed.fields.expires,
  refillAmount: keyFixed.fields.refillAmount,
  refillDay: keyFixed.fields.refillDay,
  linkBytes: uint(2),
});

/** How a value is stored as text. */
export interface TextForm<Given, Read> {
  write(value: Given): string;
  read(stored: string): Read;
}

/** CIDR ranges. */
const rangesText: TextForm<readonly string[], string[]> = { write: packRanges, read: unpackRanges };
/** Ids. */
const idsText: TextForm<readonly string[], string[]> = {
  write: (ids) => ids.join(),
  read: (stored) => stored.split(','),
};
const plainText: TextForm<string, string> = { write: (text) => text, read: (stored) => stored };
/** Given as JSON text. */
const jsonText: TextForm<string, JsonText> = { write: (text) => text, read: (stored) => new JsonText(stored) };

interface KeyRecordField {
  display: boolean;
  given: boolean;
  updated: boolean;
  copied: boolean;
  flag: (typeof keyFlags)[number] | (typeof keyMarks)[number] | undefined;
  value?: TextForm<never, unknown>;
  verified?: ReturnType<typeof optional>;
}

const everywhere = { display: true, given: true, updated: true, copied: true } as const;

/**
 * The fields of the record of a key besides `state`. Replies contain `display` fields as stored (KeyReply in
 * records.ts). The script that creates a key stores its `given` fields. updateKey stores `updated` fields. rerollKey
 * copies `copied` fields. `flag` is set in the state of a key that has the field: a flag, or a mark.
 * `value` converts what callers of the store give and get (keyValues.ts). Verifications return `verified` fields, in
 * this order: how the snapshot of a key has them.
 */
export const keyRecordFields = {
  /** The beginning of its string. */
  start: { display: true, given: false, updated: false, copied: false, flag: undefined },
  /** Unix milliseconds; missing if it is the time in the id. */
  created: { display: true, given: false, updated: false, copied: false, flag: undefined },
  updated: { display: true, given: false, updated: false, copied: false, flag: undefined },
  prefix: { display: true, given: true, updated: false, copied: true, flag: undefined, value: plainText },
  /** Random bytes of its string; missing for the default number, 0 if unknown. */
  bytes: { display: true, given: true, updated: false, copied: true, flag: undefined },
  name: { ...everywhere, flag: undefined, value: plainText, verified: optional(2) },
  /** JSON. */
  meta: { ...everywhere, flag: undefined, value: jsonText, verified: optional(4) },
  /** The addresses that may use it (domain/ipRange.ts), since data version 6. */
  allowedIps: { ...everywhere, flag: 'restricted', value: rangesText },
  /** The name of its plan, since data version 8. Field `merged` has the version that was merged, and the name. */
  planId: { ...everywhere, flag: 'planned', value: plainText },
  /** The id of the key that replaced it (rerollKey). */
  successor: { display: true, given: true, updated: false, copied: false, flag: undefined, value: plainText },
  /** The id of the key on whose balance it draws (rerollKey with `credits: 'move'`), since data version 7. */
  drawsOn: { display: true, given: true, updated: false, copied: false, flag: 'draws', value: plainText },
  /** The ids of the keys that draw on its balance, since data version 7. */
  drawnBy: { display: true, given: true, updated: false, copied: false, flag: 'pays', value: idsText },
  /** Numbers of its own permissions, `,3,17,`. */
  direct: { display: false, given: true, updated: false, copied: true, flag: 'direct' },
  /** Numbers of its roles. */
  roles: { display: false, given: true, updated: false, copied: true, flag: 'roles' },
  /** Of keys.migrateKeys. */
  migration: { display: false, given: false, updated: false, copied: false, flag: undefined },
} as const satisfies Record<string, KeyRecordField>;

type KeyRecordFields = typeof keyRecordFields;
export type VerifiedName = {
  [Name in keyof KeyRecordFields]: KeyRecordFields[Name] extends { verified: object } ? Name : never;
}[keyof KeyRecordFields];
export const verifiedNames = (Object.keys(keyRecordFields) as (keyof KeyRecordFields)[]).filter(
  (name): name is VerifiedName => 'verified' in keyRecordFields[name],
);
const verifiedFields = Object.fromEntries(verifiedNames.map((name) => [name, keyRecordFields[name].verified])) as {
  [Name in VerifiedName]: KeyRecordFields[Name]['verified'];
};

/** The link of a key to an identity. A key without an identity has only its length, 0. */
inLua('LINK', { identityId16: bytes(16), externalId: rest });

/**
 * The beginning of a limit. `switches` are the bits of `limitSwitches`, `temporarySwitch`, `quotaSwitch` and
 * `planSwitch`; those of `type` and `temporarySwitch` since data version 6, those of a quota and a plan since 8. The
 * duration of a quota is its code (domain/quota.ts).
 */
const limitStart = { limit: uint(7), duration: uint(7), switches: uint(1), nameBytes: uint(2) };
inLua('LIMIT_START', limitStart);
/** The same and further values. Only a verification and what manages limits read these. */
const limitHead = { ...limitStart } satisfies Record<
  Exclude<LimitValueName, keyof typeof limitSwitches> | 'switches' | 'nameBytes',
  unknown
>;
inLua('LIMIT_HEAD', limitHead);
/**
 * A configured limit. Before the limits is their count (1), after them their windows, and then the lengths of the
 * windows.
 */
export const limit = struct({ ...limitHead, id16: bytes(16), name: sized('nameBytes') });
/** The length of a limit's window, after all windows. */
inLua('WINDOW_BYTES', { bytes: uint(2) });
/**
 * Begins the window of a temporary limit, since data version 6: so a verification finds all limits as without it. In a
 * snapshot it follows the limits, for each that is temporary.
 */
export const limitEnd = inLua('LIMIT_END', {
  /** Unix milliseconds. Then the former limit is in force again, if it has one. */
  ends: uint(6),
  /** 0 without one. Its type is that of the limit. */
  formerLimit: uint(7),
  formerDuration: uint(7),
  formerAutoApply: uint(1),
} satisfies Record<keyof StoredEnd, unknown>);

/**
 * Field `shifted` of a key or an identity: what was charged to its windows after the one time and until the other may
 * have been put into an earlier slice, because the clock stepped back (lua/include/windowLog.lua). Unix milliseconds.
 */
inLua('SHIFTED', { from: uint(6), latest: uint(6) });

/**
 * Follows the limits of an `extended` key, since data version 6: a key that has one of these. A plain key has none of
 * it, so it costs what it did before.
 */
const keyExtension = inLua('KEY_EXTENSION', {
  /**
   * See keyMarks. A `restricted` key may be used by some addresses only: field `allowedIps` of its record. One that
   * `draws` is charged to the balance of the key in `drawsOn`, which `pays`; its own balance is an old copy of that.
   * One that is `planned` has a plan: field `planId`.
   */
  marks: uint(1),
  /** FORBIDDEN verifications of the hour in KEY_TAIL. */
  forbidden: uint(4),
  /** When the first of its holds ends or is forgotten (field `holds` of its record), Unix milliseconds; `never`. */
  holdsDue: uint(6),
  /** The number of its balance, which grows when that is set or refilled: what was held before is no part of it. */
  balances: uint(2),
});

export const keyLive = inLua('KEY_LIVE', {
  /** Negative since data version 6: the debt of a hold that was settled for more than the key had. */
  balance: int(7),
  /** Unix milliseconds; 0 without a refill. */
  refillDue: uint(6),
  /** Unix milliseconds; 0 if it was never used. */
  lastUsed: uint(6),
});
export const usageCount = uint(4);
inLua('COUNT', { count: usageCount });
/** The counts of one hour, in the state of a key until the next hour. Only VALID verifications spend credits. */
export const usage = inLua('USAGE', {
  hour: uint(4),
  counts: counts(outcomesInTail, usageCount.bytes),
  spent: uint(7),
});
/** The hour of a key as lua/analytics/keys.lua returns it, after the externalId: USAGE, and `forbidden`. */
export const currentUsage = struct({ ...usage.fields, forbidden: keyExtension.fields.forbidden });
/** Both, as a verification reads them: it nearly always counts a VALID and does not change the other counts. */
inLua('KEY_TAIL', {
  ...keyLive.fields,
  hour: usage.fields.hour,
  valid: usageCount,
  refusals: bytes(usageCount.bytes * (outcomesInTail - 1)),
  spent: usage.fields.spent,
});

/**
 * The state of an identity; its limits follow, with the windows that all its keys share. The highest bit of the time in
 * its version, which no time uses, says that its record has a balance, the next one that a limit is temporary, and one
 * more that it has a plan: so an identity without these costs nothing more.
 */
const identityHead = inLua('IDENTITY_HEAD', { id16: bytes(16), version: bytes(version.bytes) });
/** Added to the first byte of the version of an identity with a balance. */
const withBalance = 128;
/** Added to the first byte of the version of an identity with a temporary limit. */
const withTemporary = 64;
/** Added to the first byte of the version of an identity with a plan, since data version 8. */
const withPlan = 32;

/** The balance of an identity, field `credits` of its record, since data version 6. */
inLua('IDENTITY_BALANCE', {
  /** Negative: a debt, as that of a key. */
  balance: int(7),
  refillAmount: uint(7),
  /** 0 daily, 1 to 31 monthly. */
  refillDay: uint(1),
  /** Unix milliseconds; 0 without a refill. */
  refillDue: uint(6),
  /** Of the balance; it grows when that is set or refilled, and no balance of the workspace has had it before. */
  number: uint(7),
  /** The credits of open holds that give all back at their expiry. */
  held: uint(7),
});

/**
 * An hour in the log of a key: `usageEntryHead`, a `usageCount` for each outcome that was counted and `usageSpent` if
 * credits were spent, in the order of `countPlaces`, `usageEntryEnd`. `bits` has a bit for each place, from the lowest.
 */
export const usageEntryHead = inLua('USAGE_ENTRY_HEAD', { hour: uint(4), bits: uint(1) });
export const usageSpent = uint(7);
/** The externalId at that time, or ''. */
export const usageEntryEnd = struct({ externalId: text(1) });

/** Begins the usage of a key in a reply of lua/analytics/keys.lua: the bytes of its parts, which follow. */
export const keyUsage = inLua('KEY_USAGE', { days: uint(4), log: uint(4), current: uint(2) });

/** The beginning of the days of a key (usage/days.ts). */
export const keyDaysHead = inLua('KEY_DAYS_HEAD', {
  /** Counts the rewrites, so that of two sweepers that roll up the same log one changes nothing. */
  rewrites: uint(2),
  /** The last week whose list of used keys has the key. */
  week: uint(2),
});
/**
 * A day of a key and an externalId: `keyDay`; the externalId (its length in 1, then itself), unless it is that of the
 * day before; a sum for each outcome that was counted, and one of the credits if any were spent: in the order of
 * `bits`, which are as in an hour of the log. If the hours are kept, each follows: hour of the day (1), its own bits
 * (1), its counts.
 */
export const keyDay = struct({
  /** Days since 1970. */
  day: uint(2),
  /** Bytes that follow. */
  bytes: uint(2),
  bits: uint(1),
  /** Bytes of each sum; `sameExternalId` is added if the day has that of the day before. */
  sumBytes: uint(1),
  /** Bytes of each count of an hour; 0 if the hours are not kept. */
  countBytes: uint(1),
});
export const sameExternalId = 128;
/**
 * The sums of a customer in a month (lua/include/usageSums.lua): of each day that has some, in no order, the day of the
 * month plus `sumWidth` times the index in `sumWidths` of the bytes of a count (1), the bits of the counts as in an
 * hour of a log (1), and the counts.
 */
export const sumWidths = [1, 2, 4, 7] as const;
export const sumWidth = 32;
/** The sum of a day as scripts get it, to be added. */
export const customerSum = inLua('CUSTOMER_SUM', {
  /** Days since 1970. */
  day: uint(2),
  /** Months since January 1970. */
  month: uint(2),
  externalId: text(1),
  sum: text(1),
});
/** Keys that were used on a day are rolled up this long after its end: then most of them have begun another hour. */
export const rolledUpAfterMs = hourMs + 600_000;

/** Days of a week, a period whose used keys are in one list. Week 0 begins in 1970. */
export const weekDays = 7;

/** The name of a count by tag, in the hash of an API and day. Credits spent have a field with `s` before this name. */
export const tagField = struct({
  hourOfDay: bytes(2),
  /** A digit. */
  outcome: bytes(1),
  key24: bytes(24),
  externalId: text(1),
  tag: rest,
});

/** In the place of the hour of the day, in the name of a count by tag or identifier: the count is of the whole day. */
export const wholeDay = '--';

/** Refusals of a key in the rows of recent refusals (lua/decide/notedRefusals.lua). */
export const notedRefusal = inLua('NOTED_REFUSAL', {
  /** Of the last one, Unix milliseconds. */
  time: uint(6),
  outcome: uint(1),
  /** 1 for decisions by a lease, 2 for a limit of slots, since data version 6. */
  leased: uint(1),
  /** The number of refusals of the key since the row before it in that minute. */
  count: uint(6),
  /**
   * Of the limit that was exceeded; 0 and '' for other outcomes and leased decisions. For USAGE_EXCEEDED `limit` is 1
   * if the balance of the identity was too small, not that of the key.
   */
  limit: uint(7),
  duration: uint(7),
  key24: bytes(24),
  externalId: text(1),
  ratelimit: text(2),
  /** JSON; '' for none. */
  tags: text(2),
});

/**
 * Follows notedRefusal in rows that Tollgate writes since it keeps them by hour. Further fields may follow in later
 * versions.
 */
export const notedMore = inLua('NOTED_MORE', {
  /** Of the verification: units of the limit that was exceeded, or credits; 0 for other outcomes. */
  cost: uint(7),
  /** Units that this limit had left, or credits that the key or its identity had left. */
  remaining: uint(7),
  /** The permission query. One byte longer than `notedQueryMax` if the rest is missing. */
  query: text(2),
});
export const notedQueryMax = 256;

/** An override of a namespace. */
const override = inLua('OVERRIDE', { id16: bytes(16), limit: uint(7), duration: uint(7), created: uint(6) });
/** Follows a temporary override, since data version 6. */
inLua('OVERRIDE_END', {
  /** Unix milliseconds. Then the former override is in force again, if it has one. */
  ends: uint(6),
  hasFormer: uint(1),
  /** 0 without one. */
  formerLimit: uint(7),
  formerDuration: uint(7),
});

/**
 * The end of the holds of a key (lua/include/holdList.lua), since data version 6. It is the end, so that what is before
 * it is kept by a change as the beginning of the same string.
 */
inLua('HOLDS_END', {
  /** The number of the next hold. */
  next: uint(6),
  /** Open holds, and all: with those that were released and may still be settled. */
  open: uint(2),
  count: uint(2),
  /** Buckets that they are in. */
  buckets: uint(2),
  /** Bytes of the notes of the last settlements, and the hour since 1970 in which all of them were made. */
  noted: uint(2),
  notedHour: uint(4),
});
/**
 * Before HOLDS_END, since data version 7, if the holds are in several buckets: the bytes of open holds, and of all. The
 * texts that holds name follow. The number of buckets has `summed` added to it.
 */
inLua('HOLDS_SUMS', { openBytes: uint(4), bytes: uint(4) });
const summed = 2 ** 15;
const holdHead = {
  /** That follow this field. */
  bytes: uint(2),
  /** 0: given back at its expiry, 1: charged then, 2: was given back. */
  state: uint(1),
  /** Time of the verification, Unix milliseconds. */
  at: uint(6),
  /** Milliseconds from then to its expiry; of one that was given back, to when it is forgotten. */
  ttl: uint(4),
};
inLua('HOLD_BYTES', { bytes: holdHead.bytes });
inLua('HOLD_DUE', holdHead);
/**
 * A hold. Its windows follow, each HELD_WINDOW, then JSON {externalId, identity (id16), number (of the balance of the
 * identity, if that was charged), alone (true if the key was not), tags, shape} or nothing. The beginning of the JSON,
 * with the identity, may be among the texts (HELD_IDENTITY), since data version 7: then its place is instead of it.
 */
inLua('HOLD', {
  ...holdHead,
  /** Credits: at most 10^12. The key and its identity are charged the same. */
  cost: uint(6),
  /** The number of the balance that was charged. */
  balance: uint(2),
  /** The end of its id: a HOLD_NUMBER, or `_` and the id that the caller gave. */
  suffix: text(1),
  windows: uint(1),
});
/** The suffix of a hold without an id of its caller. In an id it is `.` and the number as text. */
export const holdNumber = inLua('HOLD_NUMBER', { dot: uint(1), number: uint(5) });
/** The charge of a hold to a window, or the slots that it takes of a concurrency limit. */
const heldWindow = inLua('HELD_WINDOW', {
  /** 1: of the identity. 2: the window had slices of a millisecond. 4: it is a `heldWideWindow`. 8: slots. */
  bits: uint(1),
  /** Of slots: when they are free, Unix milliseconds. */
  duration: uint(7),
  cost: uint(4),
  name: text(2),
});
inLua('HELD_SLOT_END', { duration: heldWindow.fields.duration });
inLua('HELD_IDENTITY', { json: text(2) });
inLua('HELD_PLACE', { place: uint(2) });
/**
 * The same, since data version 7, if the key's holds are in several buckets and their texts have a HELD_WINDOW with
 * these values and no cost. `place` is where that begins, and `known`, which no bits have as their byte. The slot's end
 * follows, which the text does not have.
 */
inLua('HELD_KNOWN_WINDOW', { place: uint(2), cost: heldWindow.fields.cost });
const known = 2 ** 12;
/** The same for a cost of 2^32 or more. */
inLua('HELD_WIDE_WINDOW', { ...heldWindow.fields, cost: uint(7), name: text(2) });
/**
 * A settlement, so that it can be repeated. Its windows follow, each SETTLED_WINDOW, then IDENTITY_LEFT if `hasBalance`
 * says so.
 */
inLua('SETTLED_HOLD', {
  bytes: uint(2),
  late: uint(1),
  cost: uint(7),
  /** See hasBalances. */
  hasBalance: uint(1),
  balance: int(7),
  suffix: text(1),
  windows: uint(1),
});
export const settledWindow = inLua('SETTLED_WINDOW', { cost: uint(7), name: text(2) });

const sessionBytes = 16;

/**
 * The number of an entry that is no lease: until its time, no leases are granted in addition to those that are noted
 * with it.
 */
const leasePause = 0;
/**
 * A lease of units, as it is noted with each owner of windows or credits that it charged: in field `leased` of the
 * record of a key and of an identity, and in the record of leases of a window of a namespace.
 */
inLua('NOTED_LEASE', {
  /** Its name: the session that has it, and its number there. */
  session: bytes(sessionBytes),
  number: uint(6),
  /** Time of the charge by Redis's clock, Unix milliseconds; the end of a pause. */
  at: uint(6),
  /** 1 once it was recalled, and its session did not return it in time: until it does, its units count as spent. */
  overdue: uint(1),
  /** Decisions that were charged. */
  units: uint(2),
  /** With a key LEASED_CREDITS and each LEASED_WINDOW, with an identity each LEASED_WINDOW, else LEASED_CHECK. */
  charged: text(2),
});
/** The credits that a lease charged. */
inLua('LEASED_CREDITS', {
  /**
   * The number of the balance: when the key was to be refilled. A balance with another number was set since, and gets
   * nothing back. `never` for no credits.
   */
  balance: uint(6),
});
/** A window of a key or an identity that a lease charged: the one of this name and duration. */
inLua('LEASED_WINDOW', {
  duration: uint(7),
  /** Units for each decision. */
  cost: uint(7),
  name: text(2),
});
/** The window of a namespace that a lease charged. */
inLua('LEASED_CHECK', {
  /** End of the slice that was charged. */
  sliceEnd: uint(6),
  /** Units for each decision. */
  cost: uint(7),
});
/** The name in the registry of the longest term that a session of the workspace has ever had, which is no session. */
export const longestTerm = 'longest';
/** A session in the registry of its workspace (lua/decide/thisSession.lua). */
inLua('REGISTERED', {
  /**
   * The longest term of its leases since it is registered, in milliseconds; 0 for a session that did not answer a
   * recall within it.
   */
  term: uint(2),
  /** The number of its last lease; 0 when it has none. */
  granted: uint(6),
  /** The number of its last settlement. */
  settled: uint(6),
});

// Sent.

/**
 * The version of a snapshot: that of the key, then of its identity (8) and of all permissions and roles (8) if it has
 * them.
 */
const snapshotVersion = struct({ ...version.fields, dependencies: text(1) });

/** A call that has done this much work, in units of about a microsecond, begins no further request and batch. */
export const budgetMax = 2500;

/** The beginning of each item of a batch. `bytes` is the number of bytes that follow it. */
export const itemHead = inLua('ITEM_HEAD', { bytes: uint(4), kind: uint(1), root: uint(1) });
/** The end of a batch, after the items, the session if there is one, and the digests of its root keys. */
export const batchTail = struct({
  /** After this much work the batch leaves the remaining items to the next call. In units of about a microsecond. */
  budget: uint(2),
  roots: uint(1),
  session: uint(1),
});
export const verifyItem = inLua('VERIFY_ITEM', {
  digest: bytes(32),
  /** Credits. */
  cost: uint(7),
  /** The version of the snapshot that the server has cached; zeros are none. */
  cached: opaque(snapshotVersion),
  /**
   * Empty, or JSON {query, limits: [[name, cost] or [name, cost, limit, duration]], keyspaces: {apiId: 1…}, tags}. If
   * the caller sent the address of the end user, it is before the JSON: its length (1), which is no `{`, and the packed
   * address (domain/ipRange.ts). It is no field of its own, because most items have neither.
   */
  request: rest,
});
/** The beginning of a hold item; VERIFY_ITEM follows. */
export const holdItem = inLua('HOLD_ITEM', {
  ttl: uint(4),
  onExpiry: uint(1),
  /** The id that the caller gave; '' for none. */
  id: text(1),
});
/** Changes a hold. The limits follow, each SETTLED_WINDOW with its actual units. */
export const holdChangeItem = inLua('HOLD_CHANGE_ITEM', {
  action: uint(1),
  ttl: uint(4),
  hasCredits: uint(1),
  credits: uint(7),
  /** The digest of the key if the server has it, else zeros. */
  digest: bytes(32),
  /** The id of the key, without `key_`. */
  id16: bytes(16),
  api8: bytes(8),
  /** As it is stored, see HOLD. */
  suffix: text(1),
  limits: uint(1),
});
/** The beginning of a lease item; VERIFY_ITEM or a limit item follows. */
export const leaseItem = inLua('LEASE_ITEM', {
  /** Of the item that follows. */
  kind: uint(1),
  /** How many more decisions like this one the server asks for; 0 for none. */
  wanted: uint(2),
  /** 1 if it decides so often that a lease is worth it for the term of LEASE_MS, too. */
  hot: uint(1),
  /** The number of the lease, which grows with every lease of the session. */
  number: uint(6),
  /** The leases of a `leased` refusal, which were recalled: those not returned by now count as spent. */
  recalled: text(2),
});
/**
 * The beginning of a settle item: its number, which grows with every settlement of the session, and that of the tallies
 * that follow.
 */
export const settleItem = inLua('SETTLE_ITEM', { settlement: uint(6), tallies: uint(1) });
/** The decisions of a session by one lease since its last settlement. */
export const tally = inLua('TALLY', {
  /** The number of a lease of units that is returned; 0 if none is. */
  number: uint(6),
  /** How often `outcome` was decided. */
  count: uint(4),
  outcome: uint(1),
  /** All decisions by the returned lease. */
  used: uint(2),
  /** Time of the last one by Redis's clock, Unix milliseconds. */
  usedAt: uint(6),
  /** TALLIED_KEY. */
  subject: text(2),
});
/** The key that was verified. */
export const talliedKey = inLua('TALLIED_KEY', {
  digest: bytes(32),
  /** Credits of each decision; 0 if the key was unlimited. */
  cost: uint(7),
  /** Its id without `key_`, by which it is counted after it was deleted; zeros if its answer was lost. */
  id24: bytes(24),
  /** Of the identity that the key had then; '' for none. */
  externalId: text(1),
  /** As in VERIFY_ITEM, without address. */
  request: rest,
});
/** The session that sends a batch with leases. */
export const leaseSession = inLua('LEASE_SESSION', {
  id: bytes(sessionBytes),
  /** LEASE_MS, LEASE_LONG_MS, and what the session adds to both: the time of a round trip, in milliseconds. */
  term: uint(2),
  long: uint(2),
  added: uint(2),
  /** Whether keys with credits get leases of units. */
  credits: uint(1),
  /**
   * The session had neither leases nor anything to settle: it leaves the registry, unless it was granted a lease with
   * this number or a higher one. Calls that were sent later may have been decided before. 0 if it stays.
   */
  leaves: uint(6),
});
/** A limit item is the number of checks (1), then each check. All of them are charged, or none. */
export const limitCheck = inLua('LIMIT_CHECK', {
  cost: uint(7),
  limit: uint(7),
  duration: uint(7),
  namespaceName: text(2),
  identifier: text(2),
});

/** The beginning of the first string in the reply to a batch; then the length of each answer (2), then the answers. */
export const batchHead = inLua('BATCH_HEAD', {
  /** Time of the decision by Redis's clock, Unix milliseconds. */
  now: uint(6),
  /** The work of the batch, in units of about a microsecond; at most its maximum. */
  work: uint(2),
  /** The work of all batches since Redis has this library, modulo 2 ** 32. */
  allWork: uint(4),
  /**
   * Number of answers. If the budget was used, it is below the number of items, and the server sends the others again.
   */
  count: uint(1),
});
export const answerBytes = uint(2);
/** Bits of `hasBalance`: of the key, and of its identity. The latter is in `identityLeft`. */
export const hasBalances = { key: 1, identity: 2 };
/** The balance of an identity, after the limits of an answer. */
export const identityLeft = inLua('IDENTITY_LEFT', { shared: int(7) });
/**
 * The answer to a verification. For NOT_FOUND it is the outcome alone. Its limits follow, each VERIFIED_LIMIT, then
 * IDENTITY_LEFT if `hasBalance` says so.
 */
export const verified = inLua('VERIFIED', { outcome: uint(1), hasBalance: uint(1), balance: int(7), limits: uint(1) });
export const verifiedLimit = inLua('VERIFIED_LIMIT', {
  /** See placesOfOwner. */
  place: uint(1),
  exceeded: uint(1),
  /** The limit without the units that count: below 0 if these are more. Of slots at least 0. */
  left: int(7),
  /** Unix milliseconds. */
  reset: uint(7),
});
/** The end of the answer to a verification that made a hold, after the suffix of the hold as it is stored. */
export const held = inLua('HELD', { expires: uint(6), suffixBytes: uint(1) });
/** The answer to an item that changes a hold; the windows follow, each SETTLED_WINDOW, and IDENTITY_LEFT as above. */
export const changedHold = inLua('CHANGED_HOLD', {
  outcome: uint(1),
  late: uint(1),
  expires: uint(6),
  hasBalance: uint(1),
  balance: int(7),
  windows: uint(1),
});
/** The beginning of the answer to a lease item; the answer to the decision follows. */
export const granted = inLua('GRANTED', {
  /** Decisions of the lease; 0 for a lease without units. */
  units: uint(2),
  /** Milliseconds; 0 for no lease. */
  term: uint(2),
  /** 1 if it ends with something that the decision depends on, before the whole term. */
  cut: uint(1),
  /** 1 for the long term. */
  long: uint(1),
});
export const limited = inLua('LIMITED', { outcome: uint(1), checks: uint(1) });
export const limitedCheck = inLua('LIMITED_CHECK', {
  passed: uint(1),
  /** The effective limit: that of an override, or else of the request. */
  limit: uint(7),
  /** As of VERIFIED_LIMIT. */
  left: int(7),
  /** Unix milliseconds. */
  reset: uint(7),
  /** The id of the override without prefix (16), and its duration (7); empty if there is none. */
  override: text(1),
});
/**
 * `detail` has details of the reason, such as a missing permission or a message. Of `leased`, separated by commas: the
 * longest term in milliseconds, then the leases whose units may be returned, each `session.number`.
 */
export const itemError = inLua('ITEM_ERROR', { reason: uint(1), detail: text(2) });

/** The cacheable part of a verification's response. It changes only with its version. */
export const snapshot = inLua('SNAPSHOT', {
  version: opaque(snapshotVersion),
  id16: bytes(16),
  apiId: bytes(20),
  enabled: uint(1),
  expires: uint(6),
  ...verifiedFields,
  /** The plan of the key, or else of its identity. */
  planId: optional(2),
  planMeta: optional(4),
  /** Slugs, joined by line breaks; empty if `permissionLists` is not. */
  slugs: ascii(4),
  /**
   * Lists of permission numbers (`,3,17,`), joined by line breaks, instead of `slugs` for a key with very many
   * permissions.
   */
  permissionLists: ascii(4),
  roles: list(2, struct({ name: text(2) })),
  limits: list(1, limit),
});
/** Follows a snapshot when the key has an identity. */
export const snapshotIdentity = struct({
  id16: bytes(16),
  externalId: text(2),
  meta: optional(4),
  limits: list(1, limit),
});
/** Both, as Lua packs them in one string. */
inLua('SNAPSHOT_WITH_IDENTITY', {
  ...snapshot.fields,
  identityId16: snapshotIdentity.fields.id16,
  externalId: snapshotIdentity.fields.externalId,
  identityMeta: snapshotIdentity.fields.meta,
  identityLimits: snapshotIdentity.fields.limits,
});

// In Lua.

const upper = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();

/** A Lua literal of a string of zeros. */
const zeros = (count: number): string => `'${'\\0'.repeat(count)}'`;

/** The names of fields of a key's record, as arguments of a Lua call or items of a table. */
const fieldNames = (property?: 'display' | 'given' | 'updated' | 'copied'): string =>
  Object.entries(keyRecordFields)
    .filter(([, field]) => property === undefined || field[property])
    .map(([name]) => `'${name}'`)
    .join(', ');

/** A table of Lua. */
const luaTable = (entries: readonly (readonly [name: string, value: number | string])[]): string =>
  `{ ${entries.map(([name, value]) => `${name} = ${value}`).join(', ')} }`;

const luaList = (items: readonly (string | number)[]): string =>
  `{ ${items.map((item) => (typeof item === 'number' ? item : `'${item}'`)).join(', ')} }`;

const formerFields = Object.keys(limitEnd.fields).filter((field) => field.startsWith('former'));

/** About the values of limits, their windows and their slots. */
const limitLiterals = (): Record<string, number | string> => ({
  LIMIT_VALUES: luaList(Object.keys(limitValues)),
  LIMIT_DEFAULTS: luaTable(Object.entries(defaultValues)),
  // Those and marks that no caller sets.
  LIMIT_HEAD_VALUES: luaList([...new Set([...Object.keys(limitValues), ...Object.keys(limitSwitches)])]),
  // The place of each field of LIMIT_HEAD, from 1.
  LIMIT_HEAD_PLACES: luaTable(Object.keys(limitHead).map((field, index) => [field, index + 1])),
  // The values of a former limit, in the order of LIMIT_END, and their names in a reply.
  FORMER_VALUES: luaList(formerFields.map((field) => field[6]!.toLowerCase() + field.slice(7))),
  FORMER_FIELDS: luaList(formerFields),
  LIMIT_SWITCHES: luaTable(Object.entries(limitSwitches)),
  CONCURRENCY: limitSwitches.type,
  TEMPORARY: temporarySwitch,
  QUOTA: quotaSwitch,
  OF_PLAN: planSwitch,
  LIMIT_SWITCHES_END: 2 * planSwitch,
  QUOTA_CODES: quotaCodes,
  CODE_UNIT: codeUnit,
  QUOTA_PERIODS: luaList([...quotaPeriods]),
  LASTS_MAX: lastsMax,
  WILDCARD_STARS_MAX: wildcardsMax.stars,
  WILDCARD_SEARCHING_MAX: wildcardsMax.searching,
  WILDCARD_BYTES_MAX: wildcardsMax.bytes,
  WILDCARDS_MAX: workspaceWildcardsMax,
  // A limit of at most this has slices of a millisecond (lua/include/windowLog.lua).
  FINE_LIMIT: 64,
  // A result is the fields of VERIFIED_LIMIT in a list of results: the place of each after the result before it.
  RESULT_FIELDS: Object.keys(verifiedLimit.fields).length,
  ...Object.fromEntries(Object.keys(verifiedLimit.fields).map((field, index) => [`RESULT_${upper(field)}`, index + 1])),
  // Tests set it to true: then scripts fail where they would lose units (test/support/strict.ts).
  IN_TESTS: 'false',
  SLOTS_MAX: slotsMax,
  // Limit of the ends of taken slots that a counter has; only changes of its limit bring it there.
  SLOT_ENDS_MAX: 1000,
});

/** About holds. */
const holdLiterals = (): Record<string, number> => ({
  HOLD_CHANGED: holdChanged,
  WITH_HOLD: withHold,
  HOLDS_MAX: holdsMax,
  // From now to the end of a hold. A later one was made while the clock was ahead, and ends immediately.
  HOLDS_DUE_WITHIN: 31 * dayMs,
  HOLD_BYTES_MAX: holdBytesMax,
  HOLDS_BYTES_MAX: holdsBytesMax,
  SUMMED: summed,
  KNOWN: known,
  // Limit of the texts that holds name. They are written with each hold.
  HELD_TEXTS_BYTES: 1024,
  JSON_BEGIN: '{'.charCodeAt(0),
  // Bytes of a bucket, about; before data version 7 its number of holds.
  BUCKET_BYTES: 1024,
  BUCKET_HOLDS: 32,
  // A script that reads all holds of a key reads so many bytes: a hold of 50 limits may have 330, and takes 0.1 ms.
  STEP_BYTES: 32 * 1024,
  // It ends so many bytes of holds that are due, as one may have 50 windows.
  TAKEN_BYTES: 16 * 1024,
});

/** About the flags of a key. */
const flagLiterals = (): Record<string, number | string> => ({
  KEY_FLAGS: luaTable(keyFlags.map((flag, index) => [flag, 2 ** index])),
  KEY_MARKS: luaTable(keyMarks.map((mark, index) => [mark, 2 ** index])),
  ...Object.fromEntries(keyMarks.map((mark, index) => [`${upper(mark)}_MARK`, 2 ** index])),
  LIMITED_FLAG: 2 ** keyFlags.indexOf('limited'),
  EXTENDED_FLAG: 2 ** keyFlags.indexOf('extended'),
  TEMPORARY_FLAG: 2 ** keyFlags.indexOf('temporary'),
  // Added to the flags of a key in memory, if it or its identity has a plan.
  WITH_PLANS: 2 ** keyFlags.length,
});

/** About the counts of verifications and of limit checks. */
const usageLiterals = (): Record<string, number | string> => ({
  COUNTED_OUTCOMES: luaList(countedOutcomes),
  OUTCOMES_IN_TAIL: outcomesInTail,
  // Of credits, among the bits of an hour.
  SPENT_BIT: 2 ** spentPlace,
  WHOLE_DAY: `'${wholeDay}'`,
  SUM_WIDTH: sumWidth,
  SUM_PLACES: countPlaces,
  ROLLED_UP_AFTER: rolledUpAfterMs,
});

function literalsOf(): Map<string, string> {
  const literals = new Map<string, string>();
  for (const [name, { fields, bytes: length, at: places }] of luaStructs) {
    literals.set(name, `'>${luaFields(fields)}'`);
    literals.set(`${name}_FIELDS`, `'${luaFields(fields)}'`);
    literals.set(`${name}_LENGTH`, String(length));
    // From 1, as Lua counts.
    for (const [field, at] of Object.entries(places)) literals.set(`${name}_${upper(field)}_AT`, String(at + 1));
  }
  for (const [index, outcome] of outcomes.entries()) literals.set(outcome, String(index + 1));
  for (const [index, kind] of itemKinds.entries()) literals.set(`KIND_${upper(kind)}`, String(index + 1));
  for (const [index, owner] of limitOwners.entries())
    literals.set(`PLACES_OF_${upper(owner)}`, String(index * placesOfOwner));
  const flagged = Object.entries(keyRecordFields).flatMap(([name, { flag }]) =>
    flag ? [[name, `'${flag}'`] as const] : [],
  );
  const others: Record<string, number | string> = {
    HOUR_MS: hourMs,
    DAY_MS: dayMs,
    TIME_MAX: timeMax,
    SAFE_INTEGER: Number.MAX_SAFE_INTEGER,
    NEVER: never,
    // The value for none of each time, and their names as items of a table.
    KEY_TIMES: luaTable(Object.entries(keyTimes).map(([name, { none }]) => [name, none])),
    KEY_TIME_NAMES: Object.keys(keyTimes)
      .map((name) => `'${name}'`)
      .join(', '),
    KEY_EXPIRES: `'>${luaFields({ expires: keyFixed.fields.expires })}'`,
    KEY_LINK_AT: keyFixed.bytes + 1,
    LINK_BYTES_LENGTH: 2,
    LIMIT_ID_LENGTH: 16,
    IDENTITY_LIMITS_AT: identityHead.bytes + 1,
    WITH_BALANCE: withBalance,
    WITH_TEMPORARY: withTemporary,
    WITH_PLAN: withPlan,
    HAS_BALANCE_OF_IDENTITY: hasBalances.identity,
    NO_USAGE: zeros(usage.bytes),
    NO_REFUSALS: zeros(usageCount.bytes * (outcomesInTail - 1)),
    // The first outcome after VALID.
    FIRST_REFUSAL: 2,
    KEY_RECORD_FIELDS: fieldNames(),
    KEY_DISPLAY_FIELDS: fieldNames('display'),
    KEY_GIVEN_FIELDS: fieldNames('given'),
    KEY_UPDATED_FIELDS: fieldNames('updated'),
    KEY_COPIED_FIELDS: fieldNames('copied'),
    KEY_FIELD_FLAGS: luaTable(flagged),
    ...limitLiterals(),
    ...flagLiterals(),
    ITEM_ERROR_FROM: itemErrorFrom,
    ITEM_ERRORS: luaTable(itemErrors.map((reason, index) => [reason, itemErrorFrom + index])),
    LIMIT_PASSED: limitPassed,
    LIMIT_BLOCKED: limitBlocked,
    ...usageLiterals(),
    // Limit of the bytes of the query in a row of refusals.
    NOTED_QUERY_MAX: notedQueryMax,
    BUDGET_MAX: budgetMax,
    ...leaseLiterals(),
    NO_ID24: zeros(talliedKey.fields.id24.bytes),
    OVERRIDE_DURATION: `'>${luaFields({ duration: override.fields.duration })}'`,
    ...holdLiterals(),
    SNAPSHOT_BEFORE: snapshotBefore,
    WITH_SNAPSHOT: withSnapshot,
  };
  for (const [name, value] of Object.entries(others)) literals.set(name, String(value));
  return literals;
}

const leaseLiterals = () => ({
  LEASE_DONE: leaseDone,
  LEASE_PAUSE: leasePause,
  LEASE_ADDED_MAX: addedTermMax,
  LEASE_TERM_MAX: leaseMsMax + addedTermMax,
  // Limit of the leases that a record notes.
  LEASES_MAX: 32,
  LONGEST_TERM: `'${longestTerm}'`,
  NO_SESSION: zeros(sessionBytes),
});

/** The literals of names in capitals in lua/. */
export const luaLiterals: ReadonlyMap<string, string> = literalsOf();

/**
 * The names of the values that `struct.unpack` returns for a structure, and the number of values that `struct.pack`
 * takes.
 */
export const luaSignatures: ReadonlyMap<string, readonly { name: string; packed: number }[]> = new Map(
  [...luaStructs].map(([name, { fields }]) => [name, luaNames(fields)]),
);
