// Columns of the tables that the console and the command line display: the name and the value of each, declared once.
// Either may format a cell of its own; the files of both contain the value.

import type { Owed } from './price.ts';

type Value = string | number | undefined;
/** `time` is in Unix milliseconds. `nowMs` is the time of the display. */
export interface Shared<Row> {
  kind: 'text' | 'count' | 'time';
  value: (row: Row, nowMs: number) => Value;
}

const made = <Row, Of extends Value>(kind: Shared<Row>['kind'], value: (row: Row, nowMs: number) => Of) => ({
  kind,
  value,
});

type Having<Field, Of> = Field extends `${infer Name}?`
  ? { [N in Name]?: Of | undefined }
  : { [N in Field & string]: Of };
/** A column of a field of the rows: of `name?` they may have none. */
const fieldOf =
  <Of extends Value>(kind: Shared<never>['kind']) =>
  <const Field extends string>(field: Field) => {
    const name = field.replace('?', '');
    return made(kind, (row: Having<Field, Of>) => (row as Record<string, Of | undefined>)[name]);
  };
const text = fieldOf<string>('text');
const count = fieldOf<number>('count');
const time = fieldOf<number>('time');

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
  planId?: string | undefined;
  owed?: Owed | undefined;
  count: number;
  outcomes: Partial<Record<Counted, number>>;
  spentCredits: number;
}

export const noCustomer = '(no customer)';

/** A bill charges for `Valid`. The columns of the outcomes add up to `Verifications`. `Plan` is the present one. */
export const billColumns = {
  Customer: text('externalId?'),
  Valid: made('count', ({ outcomes }: Billed) => outcomes.VALID ?? 0),
  Refused: made('count', ({ count: all, outcomes }: Billed) => all - (outcomes.VALID ?? 0)),
  Verifications: count('count'),
  Credits: count('spentCredits'),
  ...(Object.fromEntries(
    refusals.map((outcome) => [outcome, made('count', (row: Billed) => row.outcomes[outcome] ?? 0)]),
  ) as unknown as Record<(typeof refusals)[number], Shared<Billed>>),
  Plan: text('planId?'),
  Owed: made('text', ({ owed }: Billed) => owed?.amount),
  Currency: made('text', ({ owed }: Billed) => owed?.currency),
};

interface Balance {
  credits?: { remaining: number } | undefined;
}
interface Spending extends Balance {
  identity?: Balance | undefined;
}
interface Lasting extends Spending {
  enabled: boolean;
  expires?: number | undefined;
  restorableUntil?: number | undefined;
}
export type KeyState = 'deleted' | 'disabled' | 'expired' | 'used_up' | 'enabled';

/** The credits that a key may spend: its own, else those of its identity. Undefined if they are unlimited. */
export const creditsLeft = ({ credits, identity }: Spending): number | undefined =>
  (credits ?? identity?.credits)?.remaining;

/** Why a key, or a root key, is refused now; `enabled` if it is not. */
export function stateOf(key: Lasting, nowMs: number): KeyState {
  if (key.restorableUntil !== undefined) return 'deleted';
  if (!key.enabled) return 'disabled';
  if (key.expires !== undefined && key.expires <= nowMs) return 'expired';
  return creditsLeft(key) === 0 || key.identity?.credits?.remaining === 0 ? 'used_up' : 'enabled';
}

export const keyColumns = {
  Id: text('keyId'),
  Key: text('start'),
  Name: text('name?'),
  Customer: text('externalId?'),
  Plan: text('planId?'),
  'API id': text('apiId'),
  State: made('text', stateOf),
  Created: time('createdAt'),
  'Last used': time('lastUsedAt?'),
  Expires: time('expires?'),
  Credits: made('count', creditsLeft),
  'Can be restored until': time('restorableUntil?'),
};

export const rootKeyColumns = {
  Id: text('rootKeyId'),
  'Root key': text('start'),
  Name: text('name?'),
  State: made('text', stateOf),
  Created: time('createdAt'),
  'Last used': time('lastUsedAt?'),
  Expires: time('expires?'),
  Grants: made('text', ({ permissions }: { permissions: readonly string[] }) => permissions.join(' ')),
};

export const apiColumns = {
  Id: text('id'),
  Name: text('name'),
  Keys: count('keyCount'),
  Created: time('createdAt'),
  'Can be restored until': time('restorableUntil?'),
};

export const identityColumns = {
  Customer: text('externalId'),
  Id: text('id'),
  Plan: text('planId?'),
  Keys: count('keyCount'),
  Credits: made('count', ({ credits }: Balance) => credits?.remaining),
  'Can be restored until': time('restorableUntil?'),
};

export const planColumns = {
  Plan: text('planId'),
  Keys: count('keyCount'),
  Customers: count('identityCount'),
  Created: time('createdAt'),
  Changed: time('updatedAt?'),
};

export const holdColumns = {
  Hold: text('id'),
  Since: time('createdAt'),
  Until: time('expires'),
  Then: text('onExpiry'),
  Credits: count('credits?'),
};

export const eventColumns = {
  'Time, UTC': time('time'),
  Operation: text('operation'),
  Resource: made('text', ({ resource }: { resource: { id: string } }) => resource.id),
  'Root key': text('rootKeyId'),
  'Name of the root key': text('rootKeyName?'),
  Address: text('address?'),
};

export const overrideColumns = {
  Identifier: text('identifier'),
  Limit: count('limit'),
  Until: time('until?'),
  Created: time('createdAt'),
};

interface Owned {
  keyId?: string | undefined;
  externalId?: string | undefined;
  namespace?: string | undefined;
  identifier?: string | undefined;
}

export const temporaryColumns = {
  Ends: time('until'),
  Kind: text('kind'),
  Of: made('text', (of: Owned) => of.keyId ?? of.externalId ?? `${of.namespace}: ${of.identifier}`),
  Limit: made('text', ({ name = 'override' }: { name?: string | undefined }) => name),
};

interface Asking {
  permissions?: string | undefined;
  permissionsCut?: boolean | undefined;
}

export const refusalColumns = {
  'Time, UTC': time('time'),
  Outcome: text('outcome'),
  Key: text('keyId'),
  Customer: text('externalId?'),
  Plan: text('planId?'),
  'Permissions asked': made(
    'text',
    ({ permissions, permissionsCut }: Asking) => permissions && `${permissions}${permissionsCut ? '…' : ''}`,
  ),
  Limit: text('ratelimit?'),
  Cost: count('cost?'),
  Left: count('remaining?'),
  Refusals: count('count'),
  Tags: made('text', ({ tags = [] }: { tags?: readonly string[] | undefined }) => tags.join(' ')),
};
