// The one declaration of all bytes and numeric codes that TypeScript and Lua exchange or store: the state of keys and
// identities, the items and answers of a batch, the snapshot of a key, and usage counts. TypeScript reads and writes them by
// these structures (struct.ts). In lua/, names in capitals that are declared here are replaced by literals when a script is
// assembled, and what `struct.pack` and `struct.unpack` are given is checked against the declaration (scripts.ts).
//
// A change of what is stored (marked "stored") needs another `dataVersion` and a word in CHANGELOG.md: golden bytes in
// test/store/layout.test.ts fail until both are there.
//
// The state of a key, as test/store/layout.test.ts builds it: a key of an identity, with 100 credits that a refill sets to 1000
// every day, and one limit of 10 per minute that has counted 3 units in one slice.
//
//   fixed     41 62 43 64 45 66 47 68 31 32 33 34 35 36 37 38  id16            the first 16 characters of the id, `AbCdEfGh12345678`
//             01 9a 9e 8f 90 00 00 07                          version         time 1763596800000, number 7
//             41 70 69 41 70 69 38 38                          api8            last 8 of the id and of its API's, `ApiApi88`
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
//             01                                               autoApply       yes
//             00 06                                            nameBytes       6
//             4c 69 6d 69 74 49 64 31 32 33 34 35 36 37 38 39  id16            `LimitId123456789`
//             6d 69 6e 75 74 65                                name            `minute`
//             01 01 9a 9e 8f a4 89 00 00 00 00 00 01           window          lua/include/window.lua: kind 1, base, step 1 ms
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
// What every verification changes is at the end. Redis's Lua hashes each byte of every string it makes; so the new state is
// one piece of the old one and a few new bytes.

import { dayMs, hourMs, timeMax } from '../domain/time.ts';
import { outcomes } from '../domain/verification.ts';
import {
  ascii,
  bytes,
  counts,
  type Fields,
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

/** Of all data in Redis. Another version is refused at the start, see dataVersion.ts. */
export const dataVersion = 2;

/** An `expires` that never comes. 0 is a time like any other, long past. */
export const never = 2 ** 48 - 1;

/** Bits of the flags of a key, from 1. Only a key with one of `direct` and `roles` has permissions to read. */
export const keyFlags = ['enabled', 'limited', 'refilled', 'direct', 'roles', 'deleted'] as const;

/** Outcomes that are counted in usage, by key and by API. NOT_FOUND is about no key. */
export const outcomesCounted = outcomes.length - 1;
// A count by tag has one digit for its outcome, and an hour of a key's history one byte of bits.
if (outcomesCounted > 7) throw new Error('layout: more than 7 outcomes are counted');

/** Kinds of the items of a batch, from 1. */
export const itemKinds = ['verify', 'limit'] as const;
/** Whose limit a limit of a verification is, from 1. */
export const limitOwners = ['key', 'identity', 'request'] as const;
/** Outcomes of a limit check. */
export const limitPassed = 10;
export const limitBlocked = 11;
/** Why an item was refused, from `refusedFrom` on. Lua calls them by these names. */
export const refusedFrom = 20;
export const refusals = [
  'unauthorized',
  'root_key_disabled',
  'root_key_expired',
  'insufficient_permissions',
  'limit_not_found',
  'namespace_not_found',
  'create_namespace',
  'too_many_counters',
  'too_many_records',
  'failed',
] as const;
/** Added to the outcome of a verification: an earlier answer of the batch came with the snapshot of this key. */
export const snapshotBefore = 128;
/** Added to the length of an answer: a snapshot of the key follows the answers. */
export const withSnapshot = 32_768;

// Stored.

/** Two numbers that Lua compares without making a string. Unlike any other version of the workspace. */
const version = struct({ time: uint(6), number: uint(2) });

export const keyFixed = struct({
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
/** What a verification reads of it, with the length of the link that follows. */
const keyDecides = struct({
  version: opaque(version),
  api8: keyFixed.fields.api8,
  flags: keyFixed.fields.flags,
  expires: keyFixed.fields.expires,
  refillAmount: keyFixed.fields.refillAmount,
  refillDay: keyFixed.fields.refillDay,
  linkBytes: uint(2),
});

interface KeyRecordField {
  display: boolean;
  given: boolean;
  updated: boolean;
  copied: boolean;
  flag: (typeof keyFlags)[number] | undefined;
}

/**
 * The fields of the record of a key, besides `state`. `display` ones are in replies as they are (KeyReply in records.ts), `given`
 * ones are stored when a key is created, `updated` ones as updateKey gives them, and `copied` ones are those of a key's successor,
 * too. `flag` is set in the state of a key that has the field.
 */
export const keyRecordFields = {
  /** The beginning of its string. */
  start: { display: true, given: false, updated: false, copied: false, flag: undefined },
  /** Unix milliseconds; missing where it is the time in the id. */
  created: { display: true, given: false, updated: false, copied: false, flag: undefined },
  updated: { display: true, given: false, updated: false, copied: false, flag: undefined },
  prefix: { display: true, given: true, updated: false, copied: true, flag: undefined },
  /** Random bytes of its string; missing where as many as by default, 0 where unknown. */
  bytes: { display: true, given: true, updated: false, copied: true, flag: undefined },
  name: { display: true, given: true, updated: true, copied: true, flag: undefined },
  /** JSON. */
  meta: { display: true, given: true, updated: true, copied: true, flag: undefined },
  /** Numbers of its own permissions, `,3,17,`. */
  direct: { display: false, given: true, updated: false, copied: true, flag: 'direct' },
  /** Numbers of its roles. */
  roles: { display: false, given: true, updated: false, copied: true, flag: 'roles' },
  /** Of keys.migrateKeys. */
  migration: { display: false, given: false, updated: false, copied: false, flag: undefined },
} as const satisfies Record<string, KeyRecordField>;

/** The link of a key to an identity; a key without one has none of these bytes, only its length of 0. */
const link = struct({ identityId16: bytes(16), externalId: rest });

const limitHead = { limit: uint(7), duration: uint(7), autoApply: uint(1), nameBytes: uint(2) };
/** A limit as it is configured. How many there are is before them (1), their windows and the lengths of these after them. */
export const limit = struct({ ...limitHead, id16: bytes(16), name: sized('nameBytes') });
/** How many bytes the window of a limit has, after all windows. */
const windowBytes = struct({ bytes: uint(2) });

const keyLive = struct({
  balance: uint(7),
  /** Unix milliseconds; 0 where there is no refill. */
  refillDue: uint(6),
  /** Unix milliseconds; 0 is never. */
  lastUsed: uint(6),
});
/** The counts of one hour, in the state of a key until the next hour. Credits are spent by what is VALID. */
const usage = struct({ hour: uint(4), counts: counts(outcomesCounted, 4), spent: uint(7) });
/** Both, as a verification reads them: it nearly always counts a VALID, and passes the refusals on as they are. */
const keyTail = struct({
  ...keyLive.fields,
  hour: usage.fields.hour,
  valid: uint(4),
  refusals: counts(outcomesCounted - 1, 4),
  spent: usage.fields.spent,
});

/** The state of an identity; its limits follow, with the windows that all its keys share. */
export const identityHead = struct({ id16: bytes(16), version: bytes(version.bytes) });

/**
 * An hour in the history of a key: `usageEntryHead`, a `usageCount` for each outcome that was counted, `usageSpent` if credits
 * were spent, `usageEntryEnd`. `bits` has a bit for each outcome, from the lowest, and the next one for credits.
 */
export const usageEntryHead = struct({ hour: uint(4), bits: uint(1) });
export const usageCount = uint(4);
export const usageSpent = uint(7);
/** The externalId at that time, or ''. */
export const usageEntryEnd = struct({ externalId: text(1) });

/** The name of a count by tag, in the hash of an API and day. Credits spent are counted in a field with `s` before it. */
export const tagField = struct({
  hourOfDay: bytes(2),
  /** A digit. */
  outcome: bytes(1),
  key24: bytes(24),
  externalId: text(1),
  tag: rest,
});

/** An override of a namespace. */
const override = struct({ id16: bytes(16), limit: uint(7), duration: uint(7), created: uint(6) });

// Sent.

/** What the version of a snapshot consists of: the key's own, those of its identity (8) and of all permissions (8) if it has them. */
const snapshotVersion = struct({ ...version.fields, dependencies: text(1) });

/** Each item of a batch begins so. `bytes` are those that follow. */
export const itemHead = struct({ bytes: uint(4), kind: uint(1), root: uint(1) });
export const verifyItem = struct({
  digest: bytes(32),
  /** Credits. */
  cost: uint(7),
  /** The version of the snapshot that the server has cached; zeros are none. */
  cached: opaque(snapshotVersion),
  /** Nothing, or JSON {query, limits: [[name, cost] or [name, cost, limit, duration]], tags}. */
  request: rest,
});
/** A limit item is how many checks there are (1), and these. All of them pass and are charged, or none is. */
export const limitCheck = struct({
  cost: uint(7),
  limit: uint(7),
  duration: uint(7),
  namespaceName: text(2),
  identifier: text(2),
});

/** The first reply of a batch begins so; then the length of each answer (2), then the answers. */
export const batchHead = struct({
  /** When it was decided, Unix milliseconds by Redis's clock. */
  now: uint(6),
  /** Answers: fewer than items when the call took long. The caller sends the other items again. */
  count: uint(1),
});
export const answerBytes = uint(2);
/** The answer to a verification that found a key. To any other it is its outcome alone. */
export const verified = struct({ outcome: uint(1), hasBalance: uint(1), balance: uint(7), limits: uint(1) });
export const verifiedLimit = struct({
  /** See limitOwners. */
  owner: uint(1),
  /** Its place among the limits of the owner, from 1. */
  number: uint(1),
  exceeded: uint(1),
  remaining: uint(7),
  /** Unix milliseconds. */
  reset: uint(7),
});
export const limited = struct({ outcome: uint(1), checks: uint(1) });
export const limitedCheck = struct({
  passed: uint(1),
  /** The one that counted: an override replaces that of the request. */
  limit: uint(7),
  remaining: uint(7),
  /** Unix milliseconds. */
  reset: uint(7),
  /** The id of the override, without prefix, or nothing. */
  override: text(1),
});
/** `detail` is what the reason is about, such as a missing permission or a message. */
export const refused = struct({ reason: uint(1), detail: text(2) });

/** The cached view of a key: what an answer has beside the decision. It changes only with its version. */
export const snapshot = struct({
  version: opaque(snapshotVersion),
  id16: bytes(16),
  apiId: bytes(20),
  enabled: uint(1),
  expires: uint(6),
  name: optional(2),
  /** JSON. */
  meta: optional(4),
  /** Slugs, joined by line breaks; nothing where `permissionLists` is not empty. */
  slugs: ascii(4),
  /** Of a key with very many permissions, lists of their numbers instead (`,3,17,`), joined by line breaks. */
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
/** Both, as Lua packs them: as one string. */
const snapshotWithIdentity = struct({
  ...snapshot.fields,
  identityId16: snapshotIdentity.fields.id16,
  externalId: snapshotIdentity.fields.externalId,
  identityMeta: snapshotIdentity.fields.meta,
  identityLimits: snapshotIdentity.fields.limits,
});

// In Lua.

/** The structures that scripts read and write, by the names they have there. `merged` are counts that they read as one string. */
const luaStructs: Record<string, { of: Struct<Fields>; merged?: readonly string[] }> = {
  KEY_FIXED: { of: keyFixed },
  KEY_DECIDES: { of: keyDecides },
  KEY_LIVE: { of: keyLive },
  KEY_TAIL: { of: keyTail, merged: ['refusals'] },
  USAGE: { of: usage },
  LINK: { of: link },
  LIMIT_HEAD: { of: struct(limitHead) },
  WINDOW_BYTES: { of: windowBytes },
  IDENTITY_HEAD: { of: identityHead },
  USAGE_ENTRY_HEAD: { of: usageEntryHead },
  VERSION: { of: version },
  OVERRIDE: { of: override },
  ITEM_HEAD: { of: itemHead },
  VERIFY_ITEM: { of: verifyItem },
  LIMIT_CHECK: { of: limitCheck },
  BATCH_HEAD: { of: batchHead },
  VERIFIED: { of: verified },
  VERIFIED_LIMIT: { of: verifiedLimit },
  LIMITED: { of: limited },
  LIMITED_CHECK: { of: limitedCheck },
  REFUSED: { of: refused },
  SNAPSHOT: { of: snapshot },
  SNAPSHOT_WITH_IDENTITY: { of: snapshotWithIdentity },
};

const upper = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();

/** A string of zeros, as Lua writes it. */
const zeros = (count: number): string => `'${'\\0'.repeat(count)}'`;

/** Names of the fields of a key's record, as arguments of a command or items of a table. */
const fieldNames = (property?: 'display' | 'given' | 'updated' | 'copied'): string =>
  Object.entries(keyRecordFields)
    .filter(([, field]) => property === undefined || field[property])
    .map(([name]) => `'${name}'`)
    .join(', ');

/** A table of Lua. */
const luaTable = (entries: readonly (readonly [name: string, value: number | string])[]): string =>
  `{ ${entries.map(([name, value]) => `${name} = ${value}`).join(', ')} }`;

function literalsOf(): Map<string, string> {
  const literals = new Map<string, string>();
  for (const [name, { of, merged }] of Object.entries(luaStructs)) {
    literals.set(name, `'>${luaFields(of.fields, merged)}'`);
    literals.set(`${name}_FIELDS`, `'${luaFields(of.fields, merged)}'`);
    literals.set(`${name}_LENGTH`, String(of.bytes));
    // From 1, as Lua counts.
    for (const [field, at] of Object.entries(of.at)) literals.set(`${name}_${upper(field)}_AT`, String(at + 1));
  }
  for (const [index, outcome] of outcomes.entries()) literals.set(outcome, String(index + 1));
  for (const [index, kind] of itemKinds.entries()) literals.set(`ITEM_${upper(kind)}`, String(index + 1));
  for (const [index, owner] of limitOwners.entries()) literals.set(`OWNER_${upper(owner)}`, String(index + 1));
  const flagged = Object.entries(keyRecordFields).flatMap(([name, { flag }]) =>
    flag ? [[name, `'${flag}'`] as const] : [],
  );
  const others: Record<string, number | string> = {
    HOUR_MS: hourMs,
    DAY_MS: dayMs,
    TIME_MAX: timeMax,
    NEVER: never,
    OUTCOMES_COUNTED: outcomesCounted,
    KEY_LINK_AT: keyFixed.bytes + 1,
    LINK_BYTES_LENGTH: 2,
    LIMIT_ID_LENGTH: 16,
    IDENTITY_LIMITS_AT: identityHead.bytes + 1,
    NO_USAGE: zeros(usage.bytes),
    NO_REFUSALS: zeros(4 * (outcomesCounted - 1)),
    KEY_RECORD_FIELDS: fieldNames(),
    KEY_DISPLAY_FIELDS: fieldNames('display'),
    KEY_GIVEN_FIELDS: fieldNames('given'),
    KEY_UPDATED_FIELDS: fieldNames('updated'),
    KEY_COPIED_FIELDS: fieldNames('copied'),
    KEY_FIELD_FLAGS: luaTable(flagged),
    KEY_FLAGS: luaTable(keyFlags.map((flag, index) => [flag, 2 ** index])),
    REFUSAL_REASONS: luaTable(refusals.map((reason, index) => [reason, refusedFrom + index])),
    LIMIT_PASSED: limitPassed,
    LIMIT_BLOCKED: limitBlocked,
    SNAPSHOT_BEFORE: snapshotBefore,
    WITH_SNAPSHOT: withSnapshot,
  };
  for (const [name, value] of Object.entries(others)) literals.set(name, String(value));
  return literals;
}

/** What names in capitals stand for in lua/. */
export const luaLiterals: ReadonlyMap<string, string> = literalsOf();

/** What `struct.unpack` of a structure is to be assigned to, and how many values `struct.pack` takes. */
export const luaSignatures: ReadonlyMap<string, readonly { name: string; packed: number }[]> = new Map(
  Object.entries(luaStructs).map(([name, { of, merged }]) => [name, luaNames(of.fields, merged)]),
);
