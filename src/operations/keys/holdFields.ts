// The fields of holds, as callers send and read them.

import Type from 'typebox';
import type { ChangedHold } from '../../decide/holds.ts';
import type { PresentedRootKey } from '../../domain/caller.ts';
import { print } from '../../domain/json.ts';
import { Printed } from '../../operation.ts';
import type { Store } from '../../store.ts';
import { Debt, DescribedFields, ExpiresAt, Int, may, OneOf, optional, out, Text, Units } from '../schemas.ts';

/** The first version of the data that can store holds, and debts. */
export const holdsSince = 6;

export const HoldId = Text(1, 128, 'Id of a hold, as `keys.verifyKey` returned it (`hold_…`).');

export const holdTtl = { minimum: 1000, maximum: 86_400_000 };
export const HoldTtl = Int([holdTtl.minimum, holdTtl.maximum], 'Milliseconds from now to the expiry of the hold.');

/** In keys.verifyKey. */
export const Hold = DescribedFields('Holds what this verification charges, until `keys.settleHold`.', {
  ttl: HoldTtl,
  ...optional({
    onExpiry: OneOf(
      ['release', 'charge'],
      'What happens to a hold that nobody settles: everything is given back, or spent.',
      'release',
    ),
    id: Text(
      3,
      64,
      'Id of your own, so that the call can be repeated: while the hold of this key and id is open, the same hold is returned and nothing is charged again.',
      { pattern: '^[a-zA-Z0-9_.-]+$' },
    ),
  }),
});

export const HeldOutput = out.object(
  'The hold, if `valid` is true and one was asked for, or a slot of a concurrency limit was taken.',
  {
    id: out.text('Id of the hold (`hold_…`), for `keys.settleHold`.'),
    expires: ExpiresAt,
  },
);

export const changedHoldOutput = Type.Object({
  keyId: out.text('Id of the key.'),
  credits: may.int('Balance of the key after this; that of its identity if the key has none. Absent without either.'),
  debt: Type.Optional(Debt),
  identity: may.object('The identity whose balance the hold charged. Absent if there is none.', {
    credits: out.int('Balance of the identity after this.'),
    debt: Type.Optional(Debt),
  }),
  ratelimits: Units(
    'Name of the limit.',
    'Units that were charged in all.',
    'The limits that the hold charged, without those whose slots it took.',
  ),
  late: out.flag('True if the hold had been given back before.'),
});

/** The balance as responses have it. */
const balanceFields = (balance: number | undefined) =>
  balance === undefined ? {} : { credits: Math.max(0, balance), ...(balance < 0 && { debt: -balance }) };

const changedHoldOf = ({ keyId, balance, identityBalance, ratelimits, late }: ChangedHold) => ({
  keyId,
  ...balanceFields(balance ?? identityBalance),
  ...(identityBalance !== undefined && { identity: balanceFields(identityBalance) }),
  ratelimits,
  late,
});

/** Ends a hold, and prints the response. */
export const endHold = (
  store: Store,
  rootKey: PresentedRootKey,
  holdId: string,
  change: Parameters<Store['decide']['holds']['prepareChange']>[2],
) => new Printed(store.decide.holds.prepareChange(rootKey, holdId, change), (changed) => print(changedHoldOf(changed)));
