// Columns of the tables that the console and the command line display: the name and the value of each, declared once.
// Either may format a cell of its own; the files of both contain the value.

type Value = string | number | undefined;
/** `time` is in Unix milliseconds. `nowMs` is the time of the display. */
export interface Shared<Row> {
  kind: 'text' | 'count' | 'time';
  value: (row: Row, nowMs: number) => Value;
}
/** By the heading. */
type SharedColumns<Row> = Record<string, Shared<Row>>;

const text = <Row>(value: (row: Row, nowMs: number) => Value): Shared<Row> => ({ kind: 'text', value });
const count = <Row>(value: (row: Row) => number | undefined) => ({ kind: 'count' as const, value });
const time = <Row>(value: (row: Row) => number | undefined) => ({ kind: 'time' as const, value });

/** The outcomes that are counted, in the order of charts: what is good first. */
export const outcomes = [
  'VALID',
  'RATE_LIMITED',
  'USAGE_EXCEEDED',
  'INSUFFICIENT_PERMISSIONS',
  'FORBIDDEN',
  'DISABLED',
  'EXPIRED',
] as const;
type Counted = (typeof outcomes)[number];

export const refusals = outcomes.slice(1) as Exclude<Counted, 'VALID'>[];
export interface Billed {
  externalId?: string | undefined;
  count: number;
  outcomes: Partial<Record<Counted, number>>;
  spentCredits: number;
}

export const noCustomer = '(no customer)';

/** A bill charges for `Valid`. The columns of the outcomes add up to `Verifications`. */
export const billColumns = {
  Customer: text(({ externalId }: Billed) => externalId),
  Valid: count(({ outcomes }: Billed) => outcomes.VALID ?? 0),
  Refused: count(({ count: all, outcomes }: Billed) => all - (outcomes.VALID ?? 0)),
  Verifications: count((row: Billed) => row.count),
  Credits: count(({ spentCredits }: Billed) => spentCredits),
  ...(Object.fromEntries(
    refusals.map((outcome) => [outcome, count((row: Billed) => row.outcomes[outcome] ?? 0)]),
  ) as unknown as Record<(typeof refusals)[number], { kind: 'count'; value: (row: Billed) => number }>),
} satisfies SharedColumns<Billed>;

interface Balance {
  credits?: { remaining: number } | undefined;
}
interface Key extends Balance {
  keyId: string;
  start: string;
  name?: string | undefined;
  externalId?: string | undefined;
  apiId: string;
  enabled: boolean;
  createdAt: number;
  lastUsedAt?: number | undefined;
  expires?: number | undefined;
  restorableUntil?: number | undefined;
  identity?: Balance | undefined;
}
type Lasting = Pick<Key, 'enabled' | 'expires'> & Partial<Pick<Key, 'restorableUntil' | 'credits' | 'identity'>>;
export type KeyState = 'deleted' | 'disabled' | 'expired' | 'used_up' | 'enabled';

/** The credits that a key may spend: its own, else those of its identity. Undefined if they are unlimited. */
export const creditsLeft = ({ credits, identity }: Pick<Key, 'credits' | 'identity'>): number | undefined =>
  (credits ?? identity?.credits)?.remaining;

/** Why a key, or a root key, is refused now; `enabled` if it is not. */
export function stateOf(key: Lasting, nowMs: number): KeyState {
  if (key.restorableUntil !== undefined) return 'deleted';
  if (!key.enabled) return 'disabled';
  if (key.expires !== undefined && key.expires <= nowMs) return 'expired';
  return creditsLeft(key) === 0 || key.identity?.credits?.remaining === 0 ? 'used_up' : 'enabled';
}

export const keyColumns = {
  Id: text(({ keyId }: Key) => keyId),
  Key: text(({ start }: Key) => start),
  Name: text(({ name }: Key) => name),
  Customer: text(({ externalId }: Key) => externalId),
  'API id': text(({ apiId }: Key) => apiId),
  State: text(stateOf as (key: Key, nowMs: number) => KeyState),
  Created: time(({ createdAt }: Key) => createdAt),
  'Last used': time(({ lastUsedAt }: Key) => lastUsedAt),
  Expires: time(({ expires }: Key) => expires),
  Credits: count(creditsLeft as (key: Key) => number | undefined),
  'Can be restored until': time(({ restorableUntil }: Key) => restorableUntil),
} satisfies SharedColumns<Key>;

interface RootKey extends Lasting {
  rootKeyId: string;
  start: string;
  name?: string | undefined;
  permissions: readonly string[];
  createdAt: number;
  lastUsedAt?: number | undefined;
}

export const rootKeyColumns = {
  Id: text(({ rootKeyId }: RootKey) => rootKeyId),
  'Root key': text(({ start }: RootKey) => start),
  Name: text(({ name }: RootKey) => name),
  State: text(stateOf as (key: RootKey, nowMs: number) => KeyState),
  Created: time(({ createdAt }: RootKey) => createdAt),
  'Last used': time(({ lastUsedAt }: RootKey) => lastUsedAt),
  Expires: time(({ expires }: RootKey) => expires),
  Grants: text(({ permissions }: RootKey) => permissions.join(' ')),
} satisfies SharedColumns<RootKey>;

interface Api {
  id: string;
  name: string;
  keyCount: number;
  createdAt: number;
  restorableUntil?: number | undefined;
}

export const apiColumns = {
  Id: text(({ id }: Api) => id),
  Name: text(({ name }: Api) => name),
  Keys: count(({ keyCount }: Api) => keyCount),
  Created: time(({ createdAt }: Api) => createdAt),
  'Can be restored until': time(({ restorableUntil }: Api) => restorableUntil),
} satisfies SharedColumns<Api>;

interface Identity extends Balance {
  id: string;
  externalId: string;
  keyCount: number;
  restorableUntil?: number | undefined;
}

export const identityColumns = {
  Customer: text(({ externalId }: Identity) => externalId),
  Id: text(({ id }: Identity) => id),
  Keys: count(({ keyCount }: Identity) => keyCount),
  Credits: count(({ credits }: Identity) => credits?.remaining),
  'Can be restored until': time(({ restorableUntil }: Identity) => restorableUntil),
} satisfies SharedColumns<Identity>;

interface OpenHold {
  id: string;
  createdAt: number;
  expires: number;
  onExpiry: string;
  credits?: number | undefined;
}

export const holdColumns = {
  Hold: text(({ id }: OpenHold) => id),
  Since: time(({ createdAt }: OpenHold) => createdAt),
  Until: time(({ expires }: OpenHold) => expires),
  Then: text(({ onExpiry }: OpenHold) => onExpiry),
  Credits: count(({ credits }: OpenHold) => credits),
} satisfies SharedColumns<OpenHold>;

interface Event {
  time: number;
  operation: string;
  resource: { id: string };
  rootKeyId: string;
  rootKeyName?: string | undefined;
  address?: string | undefined;
}

export const eventColumns = {
  'Time, UTC': time((event: Event) => event.time),
  Operation: text(({ operation }: Event) => operation),
  Resource: text(({ resource }: Event) => resource.id),
  'Root key': text(({ rootKeyId }: Event) => rootKeyId),
  'Name of the root key': text(({ rootKeyName }: Event) => rootKeyName),
  Address: text(({ address }: Event) => address),
} satisfies SharedColumns<Event>;

interface Override {
  identifier: string;
  limit: number;
  until?: number | undefined;
  createdAt: number;
}

export const overrideColumns = {
  Identifier: text(({ identifier }: Override) => identifier),
  Limit: count(({ limit }: Override) => limit),
  Until: time(({ until }: Override) => until),
  Created: time(({ createdAt }: Override) => createdAt),
} satisfies SharedColumns<Override>;

interface Temporary {
  kind: string;
  until: number;
  name?: string | undefined;
  keyId?: string | undefined;
  externalId?: string | undefined;
  namespace?: string | undefined;
  identifier?: string | undefined;
}

export const temporaryColumns = {
  Ends: time(({ until }: Temporary) => until),
  Kind: text(({ kind }: Temporary) => kind),
  Of: text(
    ({ keyId, externalId, namespace, identifier }: Temporary) => keyId ?? externalId ?? `${namespace}: ${identifier}`,
  ),
  Limit: text(({ name = 'override' }: Temporary) => name),
} satisfies SharedColumns<Temporary>;

interface Refusals {
  time: number;
  outcome: string;
  keyId: string;
  externalId?: string | undefined;
  permissions?: string | undefined;
  permissionsCut?: boolean | undefined;
  ratelimit?: string | undefined;
  cost?: number | undefined;
  remaining?: number | undefined;
  count: number;
  tags?: readonly string[] | undefined;
}

export const refusalColumns = {
  'Time, UTC': time((row: Refusals) => row.time),
  Outcome: text(({ outcome }: Refusals) => outcome),
  Key: text(({ keyId }: Refusals) => keyId),
  Customer: text(({ externalId }: Refusals) => externalId),
  'Permissions asked': text(
    ({ permissions, permissionsCut }: Refusals) => permissions && `${permissions}${permissionsCut ? '…' : ''}`,
  ),
  Limit: text(({ ratelimit }: Refusals) => ratelimit),
  Cost: count(({ cost }: Refusals) => cost),
  Left: count(({ remaining }: Refusals) => remaining),
  Refusals: count((row: Refusals) => row.count),
  Tags: text(({ tags = [] }: Refusals) => tags.join(' ')),
} satisfies SharedColumns<Refusals>;
