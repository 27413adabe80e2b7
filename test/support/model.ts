// A model of docs/contract.md, as simple as possible: arrays that are searched from end to end, and logs whose entries
// are never merged. It has no Redis, no packing, no cache and no batches. Each method is named like an operation. It
// returns the `data` that the operation must return, or throws the code of its error.

import { presentedDuration } from '../../src/domain/limit.ts';
import { hasLength, type Periodic, quotaCodes, quotaOf, storedDuration } from '../../src/domain/quota.ts';
import type { UniqueRecord } from '../../src/domain/records.ts';
import type { ErrorCode } from '../../src/errors.ts';
import { Counter, QuotaCounter } from './counter.ts';
import { limitDefaults } from './limits.ts';

export class Refusal extends Error {
  readonly code: ErrorCode;

  constructor(code: ErrorCode) {
    super(code);
    this.code = code;
  }
}

const refuse = (code: ErrorCode): never => {
  throw new Refusal(code);
};

/**
 * An id or key string that the server creates. Its value is taken from the first response that has it; later ones must
 * match.
 */
export class Id {
  value: string | undefined;
  readonly pattern: RegExp;
  /** It may be this one. */
  readonly former: Id | undefined;

  constructor(prefix: string, former?: Id) {
    this.former = former;
    this.pattern = new RegExp(`^${prefix && `${prefix}_`}[1-9A-HJ-NP-Za-km-z]{16,}$`);
  }
}

type NamedCounter = Counter & { name: string };

/** A key, an identity or a namespace, and its counters: one for each name and duration, for as long as it lives. */
class Owner {
  readonly counters: NamedCounter[] = [];

  counter(name: string, duration: number): NamedCounter {
    const found = this.counters.find((counter) => counter.name === name && counter.duration === duration);
    if (found) return found;
    const counter = Object.assign(new (duration < quotaCodes ? Counter : QuotaCounter)(duration), { name });
    this.counters.push(counter);
    return counter;
  }
}

/** A key or an identity: its own limits, and its plan, which it loses if that is gone when it is restored. */
class LimitOwner extends Owner {
  limits: Limit[] = [];
  planId: string | undefined;
}

export type LimitInput = { name: string; limit: number; type?: 'quota'; until?: number | null | undefined } & Periodic &
  Partial<typeof limitDefaults>;
/** `duration` is that which is stored. */
type LimitValues = { limit: number; duration: number } & typeof limitDefaults;
/** A temporary one has its end, and the permanent one that it replaced. */
type Limit = LimitValues & { id: Id; name: string; until?: number; former?: LimitValues };

/** What is in force of a limit at a time. */
function limitAt(now: number, { until, former, ...limit }: Limit): Limit | undefined {
  if (until === undefined) return limit;
  if (now < until) return { ...limit, until, ...(former && { former }) };
  return former && { ...limit, ...former };
}

/** As responses have a duration. */
const shownDuration = (duration: number, now: number) => ({
  ...presentedDuration(duration, now),
  ...(duration >= quotaCodes && { type: 'quota' as const }),
});
export interface RefillInput {
  interval: 'daily' | 'monthly';
  amount: number;
  refillDay?: number | undefined;
}
interface Refill extends RefillInput {
  due: number;
}

let identitiesMade = 0;
class Identity extends LimitOwner {
  readonly id = new Id('id');
  readonly order = ++identitiesMade;
  readonly externalId: string;
  meta: object = {};
  deleted = false;
  keptUntil = 0;

  constructor(externalId: string) {
    super();
    this.externalId = externalId;
  }
}

interface Permission {
  id: Id;
  name: string;
  slug: string;
  description?: string | undefined;
}
interface Role {
  id: Id;
  name: string;
  description?: string | undefined;
  permissions: Permission[];
}
interface Plan {
  /** No response has it. */
  id: Id;
  planId: string;
  limits: Limit[];
  permissions: Permission[];
  roles: Role[];
  meta: object | undefined;
  createdAt: number;
  updatedAt?: number;
}
export interface PlanInput {
  ratelimits?: LimitInput[] | undefined;
  permissions?: string[] | undefined;
  roles?: string[] | undefined;
  meta?: object | null | undefined;
}
interface Api {
  id: Id;
  name: string;
  deleted: boolean;
  /** Of a deleted one, until the sweeper removes it. */
  keptUntil: number;
}

export class Key extends LimitOwner {
  id = new Id('key');
  readonly api: Api;
  secret = '';
  start = '';
  prefix: string | undefined;
  name: string | undefined;
  meta: object | undefined;
  expires: number | undefined;
  enabled = true;
  createdAt = 0;
  updatedAt: number | undefined;
  lastUsedAt: number | undefined;
  successor: Key | undefined;
  /** Undefined for an unlimited key. */
  balance: number | undefined;
  refill: Refill | undefined;
  /** The key that has its balance, if that was moved; and the keys whose balance was moved to it. */
  payer: Key | undefined;
  drawnBy: Key[] = [];
  allowedIps: string[] | undefined;
  /** Also after it was deleted, as it may be restored. */
  link: Identity | undefined;
  permissions: Permission[] = [];
  roles: Role[] = [];
  /** Deleted keys are kept for a while, then erased. */
  state: 'live' | 'kept' | 'erased' = 'live';
  keptUntil = 0;

  constructor(api: Api) {
    super();
    this.api = api;
  }

  get identity(): Identity | undefined {
    return this.link?.deleted ? undefined : this.link;
  }
}

interface Override {
  overrideId: Id;
  identifier: string;
  limit: number;
  duration: number;
  createdAt: number;
  /** Of a temporary one, with the permanent one that it replaced. */
  until?: number | undefined;
  former?: { limit: number; duration: number } | undefined;
}
/** What is in force of an override at a time. */
function overrideAt(now: number, { until, former, ...override }: Override): Override | undefined {
  if (until === undefined) return override;
  if (now < until) return { ...override, until, ...(former && { former }) };
  return former && { ...override, ...former };
}
class Namespace extends Owner {
  readonly id = new Id('rlns');
  readonly name: string;
  overrides: Override[] = [];

  constructor(name: string) {
    super();
    this.name = name;
  }

  overridesAt(now: number): Override[] {
    return this.overrides.flatMap((override) => overrideAt(now, override) ?? []);
  }
}

export type Query = string | { operator: 'AND' | 'OR'; left: Query; right: Query };
export interface CreditsInput {
  remaining?: number | null | undefined;
  refill?: RefillInput | null | undefined;
}
export interface NewKeyInput {
  prefix?: string | undefined;
  name?: string | undefined;
  externalId?: string | undefined;
  meta?: object | undefined;
  expires?: number | undefined;
  enabled?: boolean | undefined;
  credits?: CreditsInput | undefined;
  ratelimits?: LimitInput[] | undefined;
  allowedIps?: string[] | undefined;
  roles?: string[] | undefined;
  permissions?: string[] | undefined;
  planId?: string | undefined;
}
type Removable = Omit<NewKeyInput, 'prefix' | 'enabled' | 'roles' | 'permissions'>;
/** null removes a value. */
export type KeyChanges = Pick<NewKeyInput, 'enabled' | 'roles' | 'permissions'> & {
  [Name in keyof Removable]: Removable[Name] | null;
};
export interface VerifyInput {
  key: string;
  keyspaces?: string[] | undefined;
  credits?: { cost: number } | undefined;
  ip?: string | undefined;
  ratelimits?: ({ name: string; cost?: number | undefined; limit?: number | undefined } & Periodic)[] | undefined;
}
export interface CheckInput extends Periodic {
  namespace: string;
  identifier: string;
  limit: number;
  cost?: number | undefined;
}

/** A verification that was counted. */
interface Verification {
  time: number;
  key: Key;
  externalId: string | undefined;
  outcome: string;
  spentCredits: number;
}

const dayMs = 86_400_000;
/** The latest `expires` of a key. */
const expiresMax = 4_102_444_800_000;
const unique = <Item>(items: readonly Item[]): Item[] => [...new Set(items)];
const isEmpty = (meta: object) => Object.keys(meta).length === 0;
const notEmpty = (meta: object | null | undefined) => (meta && !isEmpty(meta) ? meta : undefined);

/** The time of the first refill after `now` (docs/contract.md §14). */
function refillAfter(now: number, { interval, refillDay = 1 }: RefillInput): number {
  const moments: number[] = [];
  const date = new Date(now);
  for (let ahead = 0; ahead <= 2; ahead++) {
    if (interval === 'daily') {
      moments.push(Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate() + ahead));
    } else {
      const lastDay = new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + ahead + 1, 0)).getUTCDate();
      moments.push(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + ahead, Math.min(refillDay, lastDay)));
    }
  }
  return moments.find((moment) => moment > now)!;
}

/** Whether a permission of a key covers one of a query (docs/contract.md §7). */
const covers = (held: string, asked: string): boolean =>
  held === asked || (held.endsWith('.*') && asked.startsWith(held.slice(0, -1)));

function holds(query: Query, held: readonly string[]): boolean {
  if (typeof query === 'string') return held.some((slug) => covers(slug, query));
  const sides = [holds(query.left, held), holds(query.right, held)];
  return query.operator === 'AND' ? sides[0]! && sides[1]! : sides[0]! || sides[1]!;
}

/** The bits of an address, 32 of IPv4 and 128 of IPv6. The URL parser reads the notations of IPv6. */
function bitsOf(text: string): string {
  const binary = (part: number, length: number) => part.toString(2).padStart(length, '0');
  if (!text.includes(':')) return text.replace(/(\d+)\.?/g, (_, byte) => binary(Number(byte), 8));
  const [head = '', tail = ''] = new URL(`http://[${text}]`).hostname.slice(1, -1).split('::');
  const groups = (side: string) => (side === '' ? [] : side.split(':').map((each) => Number.parseInt(each, 16)));
  const zeros = new Array<number>(8 - groups(head).length - groups(tail).length).fill(0);
  const bits = [...groups(head), ...zeros, ...groups(tail)].map((group) => binary(group, 16)).join('');
  return bits.startsWith(mappedBits) ? bits.slice(96) : bits;
}
const mappedBits = '0'.repeat(80) + '1'.repeat(16);

/** The family of a range, and the bits of its prefix. */
function prefixOf(range: string) {
  const [text = '', length] = range.split('/');
  const bits = bitsOf(text);
  const before = bits.length === 32 && text.includes(':') ? 96 : 0;
  return { family: bits.length, prefix: length === undefined ? bits : bits.slice(0, Number(length) - before) };
}

/** Ranges as responses have them. */
const canonical = (ranges: readonly string[]): string[] => {
  const texts = ranges.map((range) => {
    const { family, prefix } = prefixOf(range);
    const bits = prefix.padEnd(family, '0');
    const parts = bits.match(family === 32 ? /.{8}/g : /.{16}/g)!.map((part) => Number.parseInt(part, 2));
    const ipv6 = () => new URL(`http://[${parts.map((part) => part.toString(16)).join(':')}]`).hostname.slice(1, -1);
    const address = family === 32 ? parts.join('.') : ipv6();
    return prefix.length === family ? address : `${address}/${prefix.length}`;
  });
  return unique(texts);
};

const admits = (ranges: readonly string[], ip: string | undefined): boolean =>
  ip !== undefined &&
  ranges.map(prefixOf).some(({ family, prefix }) => bitsOf(ip).length === family && bitsOf(ip).startsWith(prefix));

const matches = (pattern: string, identifier: string): boolean =>
  new RegExp(
    `^${pattern
      .split('*')
      .map((part) => part.replace(/[^a-z]/g, '\\$&'))
      .join('.*')}$`,
    's',
  ).test(identifier);

/** The records of a kind, which have an id and another unique name. */
class Records<Item extends { id: Id }> {
  all: Item[] = [];
  readonly #kind: UniqueRecord;
  readonly #nameOf: (item: Item) => string;

  constructor(kind: UniqueRecord, nameOf: (item: Item) => string) {
    this.#kind = kind;
    this.#nameOf = nameOf;
  }

  named(name: string): Item | undefined {
    return this.all.find((item) => this.#nameOf(item) === name);
  }

  find = (ref: string): Item =>
    this.all.find(({ id }) => id.value === ref) ?? this.named(ref) ?? refuse(`${this.#kind}_not_found`);

  add(item: Item): Item {
    if (this.named(this.#nameOf(item))) refuse(`${this.#kind}_already_exists`);
    this.all.push(item);
    return item;
  }

  /** Changes an item, which may have another name then. */
  change(ref: string, changes: Partial<Item>): Item {
    const item = this.find(ref);
    const changed = { ...item, ...changes };
    if (this.#nameOf(changed) !== this.#nameOf(item) && this.named(this.#nameOf(changed)))
      refuse(`${this.#kind}_already_exists`);
    return Object.assign(item, changed);
  }

  remove(ref: string): Item {
    const gone = this.find(ref);
    this.all = this.all.filter((item) => item !== gone);
    return gone;
  }
}

export class Model {
  now: number;
  readonly keyRetentionMs: number;
  apis: Api[] = [];
  keys: Key[] = [];
  identities = new Records<Identity>('identity', ({ externalId }) => externalId);
  deletedIdentities: Identity[] = [];
  permissions = new Records<Permission>('permission', ({ slug }) => slug);
  roles = new Records<Role>('role', ({ name }) => name);
  plans = new Records<Plan>('plan', ({ planId }) => planId);
  namespaces: Namespace[] = [];
  /** Of all temporary limits. */
  #ends: number[] = [];
  verifications: Verification[] = [];

  constructor(now: number, keyRetentionMs: number) {
    this.now = now;
    this.keyRetentionMs = keyRetentionMs;
  }

  /** Future times at which units leave a counter, in no order. */
  leaving(): number[] {
    const owners: Owner[] = [...this.keys, ...this.identities.all, ...this.namespaces];
    const moments = owners
      .flatMap(({ counters }) => counters)
      .flatMap(({ live, duration }) => live.map(({ end }) => (duration < quotaCodes ? end + duration : end)));
    return moments.filter((moment) => moment >= this.now);
  }

  /**
   * The last end of a temporary limit. Before it, the limit may apply again or not (docs/contract.md §8).
   */
  lastEnd = () => Math.max(0, ...this.#ends.filter((end) => end <= this.now));
  nextEnds = () => this.#ends.filter((end) => end > this.now);

  // Rules that several operations share.

  #liveKey(find: (key: Key) => boolean): Key {
    return this.keys.find((key) => key.state === 'live' && !key.api.deleted && find(key)) ?? refuse('key_not_found');
  }

  keyById = (keyId: string): Key => this.#liveKey((key) => key.id.value === keyId);

  #roles(names: readonly string[]): Role[] {
    return unique(names).map((name) => this.roles.named(name) ?? refuse('role_not_found'));
  }

  /** Refuses fields of a key that name records which do not exist. */
  #requireNamed({ roles = [] }: NewKeyInput | KeyChanges) {
    this.#roles(roles);
  }

  #permissionsOrNew(slugs: readonly string[]): Permission[] {
    const make = (slug: string) => this.permissions.add({ id: new Id('perm'), name: slug, slug });
    return unique(slugs).map((slug) => this.permissions.named(slug) ?? make(slug));
  }

  #identityOrNew(externalId: string): Identity {
    return this.identities.named(externalId) ?? this.identities.add(new Identity(externalId));
  }

  #namespace(ref: string): Namespace | undefined {
    return this.namespaces.find(({ id, name }) => name === ref || id.value === ref);
  }

  #checkLimits(ratelimits: readonly { name: string }[] | null | undefined) {
    if (ratelimits && unique(ratelimits.map(({ name }) => name)).length < ratelimits.length) refuse('invalid_input');
  }

  #checkCredits(credits: CreditsInput | null | undefined) {
    if (!credits?.refill) return;
    if (credits.refill.refillDay !== undefined && credits.refill.interval === 'daily') refuse('invalid_input');
    if (credits.remaining === null) refuse('invalid_input');
  }

  #limitsFrom(wanted: readonly LimitInput[], had: readonly Limit[]): Limit[] {
    return wanted.map((given) => {
      const before = this.#inForce(had).find(({ name }) => name === given.name);
      // A limit that has ended is stored until the next verification (lua/decide/verification/currentLimits.lua).
      const ended = had.find(({ name }) => name === given.name)?.id;
      const { id = new Id('rl', ended), duration: former = 0 } = before ?? {};
      const { period, anchor: _anchor, duration, until, type: _type, ...values } = given;
      // A limit without a period stays a quota: its duration was read.
      const quota = period ? undefined : quotaOf(former);
      if (quota && !hasLength(quota.period, duration!)) refuse('invalid_input');
      const limit = { ...limitDefaults, ...values, duration: quota ? former : storedDuration(given), id };
      return this.#ending(limit, until, before);
    });
  }

  /** A limit with its end. `before` is the limit in force with its name. */
  #ending(limit: Limit, until: number | null | undefined, before: Limit | undefined): Limit {
    const isSame = limit.limit === before?.limit && limit.duration === before.duration;
    const end = until === undefined && isSame ? before?.until : (until ?? undefined);
    if (end === undefined) return limit;
    if (end <= this.now) refuse('invalid_input');
    const permanent = before?.until === undefined ? before : before.former;
    const isQuota = ({ duration }: LimitValues) => duration >= quotaCodes;
    if (permanent && isQuota(before!) !== isQuota(limit)) refuse('invalid_input');
    this.#ends.push(end);
    if (!permanent) return { ...limit, until: end };
    const { id: _id, name: _name, ...former } = permanent as Limit;
    return { ...limit, until: end, former };
  }

  #inForce = (limits: readonly Limit[]): Limit[] => limits.flatMap((limit) => limitAt(this.now, limit) ?? []);

  #planOf = ({ planId }: LimitOwner): Plan | undefined => (planId === undefined ? undefined : this.plans.named(planId));

  /** The plan of the key, then that of its identity. */
  #plansOf = (key: Key): Plan[] => [key, key.identity].flatMap((owner) => (owner && this.#planOf(owner)) ?? []);

  /** The limits of a key or an identity: its own, and those of its plan of whose names it has none. */
  #limitsOf(owner: LimitOwner): Limit[] {
    const own = this.#inForce(owner.limits);
    const planned = this.#planOf(owner)?.limits ?? [];
    return [...own, ...planned.filter(({ name }) => !own.some((limit) => limit.name === name))];
  }

  /** Refuses limits and a plan that a new key or identity cannot have. */
  #requireNew({ ratelimits = [], planId }: { ratelimits?: LimitInput[] | undefined; planId?: string | undefined }) {
    this.#limitsFrom(ratelimits, []);
    this.#requirePlan(planId);
  }

  #requirePlan(planId: string | null | undefined) {
    if (typeof planId === 'string' && !this.plans.named(planId)) refuse('plan_not_found');
  }

  shown = <Shown extends Omit<Limit, 'id'>>({ duration, former, ...limit }: Shown) => ({
    ...limit,
    ...shownDuration(duration, this.now),
    former: former && { ...former, ...presentedDuration(former.duration, this.now) },
  });

  shownLimits = (limits: readonly Limit[]) => this.#inForce(limits).map((limit) => this.shown(limit));

  /** A refill more than two periods in the future was scheduled while the clock was ahead. It is scheduled again. */
  #settleRefill({ refill }: Key) {
    if (!refill) return;
    const periodsMs = (refill.interval === 'daily' ? 2 : 62) * dayMs;
    if (refill.due - this.now > periodsMs) refill.due = refillAfter(this.now, refill);
  }

  /** Applies a refill that is due. */
  #refill(key: Key) {
    if (!key.refill || this.now < key.refill.due) return;
    key.balance = key.refill.amount;
    key.refill.due = refillAfter(this.now, key.refill);
  }

  /** What a key is charged to: itself, or the key that has its balance. Nothing is left of one that was erased. */
  #account(key: Key): Key {
    if (!key.payer) return key;
    if (key.payer.state !== 'erased') return key.payer;
    return Object.assign(new Key(key.api), { balance: 0 });
  }

  /** Refuses a change of the credits of a key whose balance another key has. */
  #requireOwnBalance(key: Key) {
    if (key.payer?.state === 'live') refuse('precondition_failed');
  }

  /** Before a change of its credits: a key gets its own balance, if the key that had it was deleted. */
  #part(key: Key) {
    if (key.payer) Object.assign(key, { payer: undefined, balance: 0 });
  }

  #setRefill(key: Key, refill: RefillInput | null | undefined) {
    key.refill = refill ? { ...refill, due: refillAfter(this.now, refill) } : undefined;
  }

  #slugsOf = (holders: readonly { permissions: Permission[]; roles: Role[] }[]): string[] =>
    unique(
      holders.flatMap(({ permissions, roles }) =>
        [...permissions, ...roles.flatMap((role) => role.permissions)].map(({ slug }) => slug),
      ),
    );

  // The records of docs/contract.md §4. Undefined members are omitted.

  #refillRecord = (refill: RefillInput | undefined) =>
    refill && {
      interval: refill.interval,
      amount: refill.amount,
      refillDay: refill.interval === 'monthly' ? (refill.refillDay ?? 1) : undefined,
    };

  #identityRecord = (identity: Identity) => ({
    id: identity.id,
    externalId: identity.externalId,
    meta: identity.meta,
    ratelimits: this.shownLimits(identity.limits),
    planId: identity.planId,
  });

  #listedIdentity = (identity: Identity) => ({
    ...this.#identityRecord(identity),
    keyCount: this.keys.filter((key) => key.identity === identity && key.state === 'live').length,
  });

  #keyRecord(key: Key) {
    const { refill, balance } = this.#account(key);
    const remaining = refill && this.now >= refill.due ? refill.amount : balance;
    const permissions = this.#slugsOf([key]);
    const ratelimits = this.shownLimits(key.limits);
    return {
      keyId: key.id,
      apiId: key.api.id,
      start: key.start,
      enabled: key.enabled,
      createdAt: key.createdAt,
      prefix: key.prefix,
      name: key.name,
      externalId: key.identity?.externalId,
      meta: key.meta,
      expires: key.expires,
      updatedAt: key.updatedAt,
      lastUsedAt: key.lastUsedAt,
      successor: key.successor?.id,
      drawsOn: key.payer?.id,
      drawnBy: key.drawnBy.length > 0 ? key.drawnBy.map(({ id }) => id) : undefined,
      permissions: permissions.length > 0 ? permissions : undefined,
      roles: key.roles.length > 0 ? key.roles.map(({ name }) => name) : undefined,
      credits: remaining === undefined ? undefined : { remaining, refill: this.#refillRecord(key.refill) },
      identity: key.identity && this.#identityRecord(key.identity),
      ratelimits: ratelimits.length > 0 ? ratelimits : undefined,
      allowedIps: key.allowedIps,
      planId: key.planId,
    };
  }

  // APIs and keys.

  createApi(name: string) {
    const api = { id: new Id('api'), name, deleted: false, keptUntil: 0 };
    this.apis.push(api);
    return { apiId: api.id };
  }

  #api(apiId: string): Api {
    return this.apis.find(({ id, deleted }) => id.value === apiId && !deleted) ?? refuse('api_not_found');
  }

  updateApi(apiId: string, name: string) {
    this.#api(apiId).name = name;
    return {};
  }

  deleteApi(apiId: string) {
    const api = this.#api(apiId);
    [api.deleted, api.keptUntil] = [true, this.now + this.keyRetentionMs];
    return {};
  }

  restoreApi(apiId: string) {
    const isKept = ({ id, deleted, keptUntil }: Api) => id.value === apiId && deleted && keptUntil > 0;
    const api = this.apis.find(isKept) ?? refuse('api_not_found');
    api.deleted = false;
    return {};
  }

  listKeys(apiId: string, externalId?: string) {
    const api = this.#api(apiId);
    return this.keys
      .filter((key) => key.api === api && key.state === 'live')
      .filter((key) => externalId === undefined || key.identity?.externalId === externalId)
      .map((key) => this.#keyRecord(key));
  }

  #newKey(api: Api, input: NewKeyInput): Key {
    const key = new Key(api);
    key.prefix = input.prefix;
    key.name = input.name;
    key.meta = notEmpty(input.meta);
    key.expires = input.expires;
    key.allowedIps = input.allowedIps && canonical(input.allowedIps);
    key.enabled = input.enabled ?? true;
    key.balance = input.credits?.remaining ?? undefined;
    this.#setRefill(key, input.credits?.refill);
    key.limits = this.#limitsFrom(input.ratelimits ?? [], []);
    key.roles = this.#roles(input.roles ?? []);
    key.permissions = this.#permissionsOrNew(input.permissions ?? []);
    key.link = input.externalId === undefined ? undefined : this.#identityOrNew(input.externalId);
    key.planId = input.planId;
    key.createdAt = this.now;
    this.keys.push(key);
    return key;
  }

  createKey(apiId: string, input: NewKeyInput): Key {
    this.#checkCredits(input.credits);
    this.#checkLimits(input.ratelimits);
    const api = this.#api(apiId);
    this.#requireNamed(input);
    this.#requireNew(input);
    return this.#newKey(api, input);
  }

  /** Imports keys by secret. Returns the new keys, undefined for a secret that exists. */
  migrateKeys(apiId: string, inputs: readonly (NewKeyInput & { secret: string })[]): (Key | undefined)[] {
    for (const { credits, ratelimits } of inputs) {
      this.#checkCredits(credits);
      this.#checkLimits(ratelimits);
    }
    if (unique(inputs.map(({ secret }) => secret)).length < inputs.length) refuse('invalid_input');
    const api = this.#api(apiId);
    const exists = (input: { secret: string }) =>
      this.keys.some(({ secret, state }) => secret === input.secret && state !== 'erased');
    for (const input of inputs) {
      this.#requireNamed(input);
      if (!exists(input)) this.#requireNew(input);
    }
    return inputs.map((input) => {
      if (exists(input)) return undefined;
      const key = this.#newKey(api, input);
      key.secret = input.secret;
      return key;
    });
  }

  getKey = (keyId: string) => this.#keyRecord(this.keyById(keyId));
  whoami = (secret: string) => this.#keyRecord(this.#liveKey((key) => key.secret === secret));

  updateKey(keyId: string, changes: KeyChanges) {
    const { credits } = changes;
    this.#checkCredits(credits);
    this.#checkLimits(changes.ratelimits);
    const key = this.keyById(keyId);
    if (credits !== undefined) this.#requireOwnBalance(key);
    const limits =
      changes.ratelimits === undefined ? key.limits : this.#limitsFrom(changes.ratelimits ?? [], key.limits);
    this.#requirePlan(changes.planId);
    const limited = credits?.remaining !== undefined ? credits.remaining !== null : key.balance !== undefined;
    if (credits?.refill && !limited) refuse('invalid_input');
    this.#requireNamed(changes);

    if (credits !== undefined) this.#part(key);
    this.#refill(key);
    if (credits === null || credits?.remaining === null) {
      key.balance = undefined;
      key.refill = undefined;
    } else if (credits) {
      if (credits.remaining !== undefined) key.balance = credits.remaining;
      if (credits.refill !== undefined) this.#setRefill(key, credits.refill);
    }
    if (changes.name !== undefined) key.name = changes.name ?? undefined;
    if (changes.meta !== undefined) key.meta = notEmpty(changes.meta);
    if (changes.allowedIps !== undefined)
      key.allowedIps = changes.allowedIps ? canonical(changes.allowedIps) : undefined;
    if (changes.expires !== undefined) key.expires = changes.expires ?? undefined;
    if (changes.enabled !== undefined) key.enabled = changes.enabled;
    key.limits = limits;
    if (changes.planId !== undefined) key.planId = changes.planId ?? undefined;
    if (changes.roles) key.roles = this.#roles(changes.roles);
    if (changes.permissions) key.permissions = this.#permissionsOrNew(changes.permissions);
    if (changes.externalId === null) key.link = undefined;
    else if (changes.externalId !== undefined) key.link = this.#identityOrNew(changes.externalId);
    key.updatedAt = this.now;
    return {};
  }

  updateCredits(keyId: string, operation: 'set' | 'increment' | 'decrement', value: number | null | undefined) {
    if (value === undefined || (value === null && operation !== 'set')) refuse('invalid_input');
    const key = this.keyById(keyId);
    this.#requireOwnBalance(key);
    this.#part(key);
    const balance = key.refill && this.now >= key.refill.due ? key.refill.amount : key.balance;
    if (operation !== 'set' && balance === undefined) refuse('invalid_input');
    if (operation === 'increment' && value! > Number.MAX_SAFE_INTEGER - balance!) refuse('invalid_input');

    this.#refill(key);
    if (operation === 'increment') key.balance! += value!;
    else if (operation === 'decrement') key.balance = Math.max(0, key.balance! - value!);
    else key.balance = value ?? undefined;
    if (key.balance === undefined) key.refill = undefined;
    key.updatedAt = this.now;
    return { remaining: key.balance ?? null, refill: this.#refillRecord(key.refill) };
  }

  deleteKey(keyId: string, permanent: boolean) {
    const key = this.keyById(keyId);
    key.state = permanent ? 'erased' : 'kept';
    key.keptUntil = this.now + this.keyRetentionMs;
    return {};
  }

  rerollKey(keyId: string, expiration: number, credits?: 'copy' | 'move'): Key {
    const old = this.keyById(keyId);
    if (old.payer) refuse('precondition_failed');
    const isLive = ({ state, expires = expiresMax }: Key) => state === 'live' && this.now < expires;
    const drawers = this.keys.filter(({ payer }) => payer === old);
    const isMoved = credits === 'move' && old.balance !== undefined;
    if (isMoved && drawers.filter(isLive).length >= 16) refuse('precondition_failed');
    this.#refill(old);
    const key = new Key(old.api);
    const { prefix, name, meta, link, enabled, expires, balance, roles, permissions, allowedIps, planId } = old;
    Object.assign(key, { prefix, name, meta, link, enabled, expires, balance, roles, permissions, allowedIps, planId });
    key.refill = old.refill && { ...old.refill };
    key.limits = this.#inForce(old.limits).map((limit) => ({ ...limit, id: new Id('rl') }));
    key.createdAt = this.now;
    this.keys.push(key);
    if (isMoved) {
      for (const drawer of drawers)
        Object.assign(drawer, isLive(drawer) ? { payer: key } : { payer: undefined, balance: 0 });
      key.drawnBy = [old, ...old.drawnBy.filter(({ payer }) => payer === key)];
      Object.assign(old, { payer: key, drawnBy: [], refill: undefined });
    }
    old.expires = Math.min(old.expires ?? expiresMax, this.now + expiration);
    old.updatedAt = this.now;
    old.successor = key;
    return key;
  }

  changePermissions(keyId: string, mode: 'add' | 'remove' | 'set', slugs: readonly string[]) {
    const key = this.keyById(keyId);
    const given =
      mode === 'remove' ? unique(slugs).map((slug) => this.#permissionBySlug(slug)) : this.#permissionsOrNew(slugs);
    this.#refill(key);
    key.permissions = combined(mode, key.permissions, given);
    key.updatedAt = this.now;
    return key.permissions;
  }

  #permissionBySlug(slug: string): Permission {
    return this.permissions.named(slug) ?? refuse('permission_not_found');
  }

  changeRoles(keyId: string, mode: 'add' | 'remove' | 'set', names: readonly string[]) {
    const key = this.keyById(keyId);
    const given = this.#roles(names);
    this.#refill(key);
    key.roles = combined(mode, key.roles, given);
    key.updatedAt = this.now;
    return key.roles;
  }

  /** `caller`: whether the root key may verify keys of an API; undefined if it may verify no keys at all. */
  verifyKey(
    input: VerifyInput,
    query: Query | 'malformed' | undefined,
    caller: ((apiId: string) => boolean) | undefined,
  ) {
    const items = input.ratelimits ?? [];
    if (query === 'malformed') refuse('permissions_query_syntax');
    this.#checkLimits(items);
    if (items.some(({ limit, duration, period }) => (limit === undefined) !== (duration === undefined && !period)))
      refuse('invalid_input');
    if (!caller) refuse('insufficient_permissions');

    const key = this.keys.find(({ secret, state, api }) => secret === input.key && state === 'live' && !api.deleted);
    const isOfKeyspaces = ({ api }: Key) => input.keyspaces?.includes(api.id.value!) ?? true;
    if (!key || !caller!(key.api.id.value!) || !isOfKeyspaces(key)) return { valid: false, code: 'NOT_FOUND' };

    const account = this.#account(key);
    const plans = this.#plansOf(key);
    const slugs = this.#slugsOf([key, ...plans]);
    const roles = unique([key, ...plans].flatMap((holder) => holder.roles));
    let code = 'VALID';
    if (!key.enabled) code = 'DISABLED';
    else if (key.expires !== undefined && this.now >= key.expires) code = 'EXPIRED';
    else if (key.allowedIps && !admits(key.allowedIps, input.ip)) code = 'FORBIDDEN';
    else if (query !== undefined && !holds(query, slugs)) code = 'INSUFFICIENT_PERMISSIONS';

    let checked: { reported: object; counter: Counter; limit: number; cost: number; exceeded: boolean }[] = [];
    if (code === 'VALID') {
      checked = this.#selected(key, items).map(({ id, limit, owner, cost }) => {
        const counter = owner.counter(limit.name, limit.duration);
        const exceeded = counter.used(this.now) + cost > limit.limit;
        const reported = { ...this.shown(limit), id };
        return { reported, counter, limit: limit.limit, cost, exceeded };
      });
      this.#settleRefill(key);
      this.#refill(account);
      if (checked.some(({ exceeded }) => exceeded)) code = 'RATE_LIMITED';
      else if (account.balance !== undefined && account.balance < (input.credits?.cost ?? 1)) code = 'USAGE_EXCEEDED';
    }
    this.#settleRefill(key);
    this.#refill(account);

    let spentCredits = 0;
    if (code === 'VALID') {
      if (account.balance !== undefined) {
        spentCredits = input.credits?.cost ?? 1;
        account.balance -= spentCredits;
      }
      for (const { counter, limit, cost } of checked) counter.charge(this.now, limit, cost);
      key.lastUsedAt = this.now;
    }
    this.verifications.push({ time: this.now, key, externalId: key.identity?.externalId, outcome: code, spentCredits });
    const ratelimits = checked.map(({ reported, counter, limit, cost, exceeded }) => ({
      ...reported,
      exceeded,
      remaining: Math.max(0, limit - counter.used(this.now)),
      reset: exceeded ? counter.deniedReset(this.now, limit, cost) : counter.admittedReset(this.now),
    }));
    return {
      valid: code === 'VALID',
      code,
      keyId: key.id,
      keyspaceId: input.keyspaces && key.api.id,
      enabled: key.enabled,
      name: key.name,
      meta: key.meta,
      expires: key.expires,
      credits: account.balance,
      permissions: slugs.length > 0 ? slugs : undefined,
      roles: roles.length > 0 ? roles.map(({ name }) => name) : undefined,
      identity: key.identity && {
        ...this.#identityRecord(key.identity),
        ratelimits: this.#limitsOf(key.identity).map((limit) => this.shown(limit)),
        planId: undefined,
      },
      plan: plans[0] && { planId: plans[0].planId, meta: plans[0].meta },
      ratelimits: ratelimits.length > 0 ? ratelimits : undefined,
    };
  }

  /** The limits that a verification checks, each with its cost (docs/contract.md §6). */
  #selected(key: Key, items: NonNullable<VerifyInput['ratelimits']>) {
    type Selected = { id: Id | ''; limit: Omit<Limit, 'id'>; owner: Owner; cost: number };
    const selected: Selected[] = [];
    const ofKey = this.#limitsOf(key);
    const ofIdentity = key.identity ? this.#limitsOf(key.identity) : [];
    const isOfKey = ({ name }: Limit) => ofKey.some((limit) => limit.name === name);
    const merged = [
      ...ofKey.map((limit) => ({ limit, owner: key as Owner })),
      ...ofIdentity.filter((limit) => !isOfKey(limit)).map((limit) => ({ limit, owner: key.identity as Owner })),
    ];
    for (const { name, cost = 1, limit, ...lasts } of items) {
      const found = merged.find((one) => one.limit.name === name);
      if (limit !== undefined) {
        const duration = storedDuration(lasts);
        selected.push({ id: '', limit: { ...limitDefaults, name, limit, duration }, owner: key, cost });
      } else if (found) selected.push({ id: found.limit.id, ...found, cost });
      else refuse('precondition_failed');
    }
    for (const one of merged) {
      // An ad hoc limit replaces the key's, not the identity's.
      const named = items.some(
        ({ name, limit }) => name === one.limit.name && (limit === undefined || one.owner === key),
      );
      if (one.limit.autoApply && !named) selected.push({ id: one.limit.id, ...one, cost: 1 });
    }
    return selected;
  }

  // Identities.

  createIdentity(externalId: string, meta: object = {}, ratelimits: LimitInput[] = [], planId?: string) {
    this.#checkLimits(ratelimits);
    if (!this.identities.named(externalId)) this.#requireNew({ ratelimits, planId });
    const identity = this.identities.add(new Identity(externalId));
    identity.meta = meta;
    identity.limits = this.#limitsFrom(ratelimits, []);
    identity.planId = planId;
    return { identityId: identity.id };
  }

  getIdentity = (ref: string) => this.#listedIdentity(this.identities.find(ref));

  listIdentities = (search = '') =>
    this.identities.all
      .filter(({ id, externalId }) =>
        [id.value ?? '', externalId].some((text) => text.toLowerCase().includes(search.toLowerCase())),
      )
      .map((identity) => this.#listedIdentity(identity));

  updateIdentity(ref: string, meta?: object, ratelimits?: LimitInput[], planId?: string | null) {
    this.#checkLimits(ratelimits);
    const identity = this.identities.find(ref);
    const limits = ratelimits ? this.#limitsFrom(ratelimits, identity.limits) : identity.limits;
    this.#requirePlan(planId);
    identity.limits = limits;
    if (planId !== undefined) identity.planId = planId ?? undefined;
    if (meta) identity.meta = meta;
    return this.#listedIdentity(identity);
  }

  deleteIdentity(ref: string) {
    const gone = this.identities.remove(ref);
    [gone.deleted, gone.keptUntil] = [true, this.now + this.keyRetentionMs];
    this.deletedIdentities.push(gone);
    return {};
  }

  restoreIdentity(identityId: string) {
    const identity = this.deletedIdentities.find(({ id }) => id.value === identityId) ?? refuse('identity_not_found');
    this.identities.add(identity);
    this.identities.all.sort((one, other) => one.order - other.order);
    this.deletedIdentities = this.deletedIdentities.filter((one) => one !== identity);
    identity.deleted = false;
    if (!this.#planOf(identity)) identity.planId = undefined;
    return {};
  }

  // Plans.

  #usersOf = ({ planId }: Plan) => ({
    keys: this.keys.filter((key) => key.state === 'live' && key.planId === planId),
    identities: this.identities.all.filter((identity) => identity.planId === planId),
  });

  shownPlan = (plan: Plan) => ({
    planId: plan.planId,
    ratelimits: plan.limits.map((limit) => this.shown(limit)),
    permissions: plan.permissions.map(({ slug }) => slug),
    roles: plan.roles.map(({ name }) => name),
    meta: plan.meta,
    createdAt: plan.createdAt,
    updatedAt: plan.updatedAt,
    keyCount: this.#usersOf(plan).keys.length,
    identityCount: this.#usersOf(plan).identities.length,
  });

  /** The planId of the plan that has a limit. */
  planOfLimit = (id: string): string | undefined =>
    this.plans.all.find(({ limits }) => limits.some((limit) => limit.id.value === id))?.planId;

  createPlan(planId: string, { ratelimits = [], permissions = [], roles = [], meta }: PlanInput) {
    this.#checkLimits(ratelimits);
    if (this.plans.named(planId)) refuse('plan_already_exists');
    this.plans.add({
      id: new Id('plan'),
      planId,
      limits: this.#limitsFrom(ratelimits, []),
      roles: this.#roles(roles),
      permissions: this.#permissionsOrNew(permissions),
      meta: notEmpty(meta),
      createdAt: this.now,
    });
    return { planId };
  }

  updatePlan(planId: string, { ratelimits, permissions, roles, meta }: PlanInput) {
    this.#checkLimits(ratelimits);
    const plan = this.plans.find(planId);
    const limits = ratelimits ? this.#limitsFrom(ratelimits, plan.limits) : plan.limits;
    if (roles) plan.roles = this.#roles(roles);
    plan.limits = limits;
    if (permissions) plan.permissions = this.#permissionsOrNew(permissions);
    if (meta !== undefined) plan.meta = notEmpty(meta);
    plan.updatedAt = this.now;
    return this.shownPlan(plan);
  }

  deletePlan(planId: string, replaceWith?: string) {
    if (planId === replaceWith) refuse('invalid_input');
    const plan = this.plans.find(planId);
    const { keys, identities } = this.#usersOf(plan);
    const users = [...keys, ...identities];
    if (users.length > 0 && replaceWith === undefined) refuse('precondition_failed');
    this.#requirePlan(replaceWith);
    for (const user of users) user.planId = replaceWith;
    this.plans.remove(planId);
    return {};
  }

  // Permissions and roles.

  createPermission(name: string, slug: string, description?: string) {
    return { permissionId: this.permissions.add({ id: new Id('perm'), name, slug, description }).id };
  }

  updatePermission(ref: string, changes: Partial<Permission>) {
    return this.permissions.change(ref, changes);
  }

  deletePermission(ref: string) {
    const gone = this.permissions.remove(ref);
    for (const holder of [...this.keys, ...this.roles.all, ...this.plans.all])
      holder.permissions = holder.permissions.filter((permission) => permission !== gone);
    return {};
  }

  createRole(name: string, description?: string, permissions: string[] = []) {
    const role = this.roles.add({ id: new Id('role'), name, description, permissions: [] });
    role.permissions = this.#permissionsOrNew(permissions);
    return { roleId: role.id };
  }

  updateRole(ref: string, changes: Partial<Role>) {
    const { id, name, description } = this.roles.change(ref, changes);
    return { id, name, description };
  }

  setRolePermissions(ref: string, slugs: string[]) {
    const role = this.roles.find(ref);
    role.permissions = this.#permissionsOrNew(slugs);
    return role.permissions;
  }

  deleteRole(ref: string) {
    const gone = this.roles.remove(ref);
    for (const holder of [...this.keys, ...this.plans.all]) holder.roles = holder.roles.filter((role) => role !== gone);
    return {};
  }

  // Rate limits.

  #override(namespace: Namespace, identifier: string): Override | undefined {
    const overrides = namespace.overridesAt(this.now);
    const exact = overrides.find((override) => override.identifier === identifier);
    if (exact) return exact;
    const literals = ({ identifier: pattern }: Override) => pattern.replaceAll('*', '').length;
    // In order of creation, and sorting is stable: the oldest among equals stays first.
    return overrides
      .filter(({ identifier: pattern }) => pattern.includes('*') && matches(pattern, identifier))
      .sort((a, b) => literals(b) - literals(a))[0];
  }

  multiLimit(inputs: readonly CheckInput[]) {
    for (const { namespace } of inputs) {
      if (!this.#namespace(namespace) && namespace.startsWith('rlns_')) refuse('namespace_not_found');
    }
    const taken = new Map<Counter, number>();
    const checks = inputs.map(({ namespace: ref, identifier, cost = 1, ...asked }) => {
      const namespace = this.#namespaceOrNew(ref);
      const override = this.#override(namespace, identifier);
      const { limit, duration } = override ?? { limit: asked.limit, duration: storedDuration(asked) };
      const counter = namespace.counter(identifier, duration);
      const before = taken.get(counter) ?? 0;
      const passed = limit > 0 && counter.used(this.now) + before + cost <= limit;
      if (passed) taken.set(counter, before + cost);
      return { ref, identifier, override, limit, counter, cost, before, passed };
    });
    const passed = checks.every((check) => check.passed);
    if (passed) for (const { counter, limit, cost } of checks) counter.charge(this.now, limit, cost);
    const limits = checks.map(({ ref, identifier, override, limit, counter, cost, before, passed }) => ({
      namespace: ref,
      identifier,
      limit,
      remaining: Math.max(0, limit - counter.used(this.now)),
      // This item must fit together with the earlier items of the call that fit.
      reset: passed ? counter.admittedReset(this.now) : counter.deniedReset(this.now, limit, before + cost),
      passed,
      overrideId: override?.overrideId,
    }));
    return { passed, limits };
  }

  limit(input: CheckInput) {
    const { passed, limits } = this.multiLimit([input]);
    const { limit, remaining, reset, overrideId } = limits[0]!;
    return { success: passed, limit, remaining, reset, overrideId };
  }

  #namespaceOrNew(ref: string): Namespace {
    const found = this.#namespace(ref);
    if (found) return found;
    const namespace = new Namespace(ref);
    this.namespaces.push(namespace);
    return namespace;
  }

  setOverride({
    namespace: ref,
    identifier,
    limit,
    until,
    ...lasts
  }: Omit<CheckInput, 'cost'> & { until?: number | undefined }) {
    if (!this.#namespace(ref) && ref.startsWith('rlns_')) refuse('namespace_not_found');
    const duration = storedDuration(lasts);
    this.#removeEnded();
    const { overrides } = this.#namespaceOrNew(ref);
    let override = overrides.find((one) => one.identifier === identifier);
    const before = override && overrideAt(this.now, override);
    if (!override) {
      override = { overrideId: new Id('rlor'), identifier, limit, duration, createdAt: this.now };
      overrides.push(override);
    }
    const permanent = before?.until === undefined ? before : before.former;
    const former = until !== undefined && permanent && { limit: permanent.limit, duration: permanent.duration };
    Object.assign(override, { limit, duration, until, former: former || undefined });
    return { overrideId: override.overrideId };
  }

  #removeEnded() {
    for (const namespace of this.namespaces)
      namespace.overrides = namespace.overrides.filter((override) => overrideAt(this.now, override));
  }

  #overrides(ref: string): Namespace {
    return this.#namespace(ref) ?? refuse('namespace_not_found');
  }

  listOverrides(ref: string) {
    const namespace = this.#overrides(ref);
    const { id, name } = namespace;
    const shown = ({ duration }: { duration: number }) => presentedDuration(duration, this.now);
    return namespace.overridesAt(this.now).map(({ former, ...override }) => ({
      ...override,
      ...shown(override),
      ...(former && { former: { limit: former.limit, ...shown(former) } }),
      namespace: name,
      namespaceId: id,
    }));
  }

  getOverride(ref: string, identifier: string) {
    const found = this.listOverrides(ref).find((override) => override.identifier === identifier);
    return found ?? refuse('override_not_found');
  }

  deleteOverride(ref: string, identifier: string) {
    this.getOverride(ref, identifier);
    const namespace = this.#overrides(ref);
    namespace.overrides = namespace.overrides.filter((override) => override.identifier !== identifier);
    return {};
  }

  // The sweeper's work is visible in few ways only: a hash can be imported again once its key is erased, keys of a
  // deleted API do not count for their identities any more, and what it has removed cannot be restored.

  sweep() {
    this.#removeEnded();
    const { now } = this;
    for (const api of this.apis) if (api.deleted && now >= api.keptUntil) api.keptUntil = 0;
    this.deletedIdentities = this.deletedIdentities.filter(({ keptUntil }) => now < keptUntil);
    for (const key of this.keys) {
      if (key.state === 'live') this.#refill(key);
      const forgotten = key.state === 'kept' && now >= key.keptUntil;
      const isOfRemoved = key.api.deleted && key.api.keptUntil === 0;
      if (forgotten || isOfRemoved) key.state = 'erased';
    }
  }

  /** Verifications of an API since a time, by day, key, externalId and outcome, in no order. */
  usage(apiId: string, since: number) {
    const rows = new Map<string, { count: number; spentCredits: number }>();
    for (const { time, key, externalId, outcome, spentCredits } of this.verifications) {
      if (key.api.id.value !== apiId || time < since) continue;
      const group = { time: Math.floor(time / dayMs) * dayMs, keyId: key.id.value, externalId, outcome };
      const row = rows.get(JSON.stringify(group)) ?? { count: 0, spentCredits: 0 };
      rows.set(JSON.stringify(group), { count: row.count + 1, spentCredits: row.spentCredits + spentCredits });
    }
    return [...rows].map(([group, counts]) => ({ ...JSON.parse(group), ...counts }));
  }
}

function combined<Item>(mode: 'add' | 'remove' | 'set', had: readonly Item[], given: readonly Item[]): Item[] {
  if (mode === 'set') return [...given];
  return mode === 'add' ? unique([...had, ...given]) : had.filter((item) => !given.includes(item));
}
