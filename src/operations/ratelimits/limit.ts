import Type, { type Static } from 'typebox';
import { lastsMax } from '../../domain/limit.ts';
import { storedDuration } from '../../domain/quota.ts';
import { decides, Printed } from '../../operation.ts';
import type { Store } from '../../store.ts';
import { checkPeriod, requireQuotas } from '../rules.ts';
import {
  Fields,
  Identifier,
  Int,
  OverrideId,
  orPeriod,
  out,
  periodFields,
  Remaining,
  Text,
  unitsMeaning,
} from '../schemas.ts';

export const LimitCheck = Fields({
  namespace: Text(1, 512, 'Name or id (`rlns_…`) of a namespace. An unknown name is created.'),
  identifier: Identifier,
  limit: Int(1, `${unitsMeaning}.`),
  duration: Type.Optional(Int([1000, lastsMax], `Duration in milliseconds, at most 366 days. ${orPeriod}`)),
  ...periodFields,
  cost: Type.Optional(Int(0, 'Units to charge. 0 checks whether the count is within the limit without charging.', 1)),
});

/** The checks of a request as they are decided. `at` is the location of one. */
export function checksOf(given: readonly Static<typeof LimitCheck>[], store: Store, at: (index: number) => string) {
  for (const [index, check] of given.entries()) checkPeriod(check, at(index));
  requireQuotas(given, store);
  return given.map(({ namespace, identifier, limit, cost = 1, ...rest }) => ({
    namespace,
    identifier,
    limit,
    durationMs: storedDuration(rest),
    cost,
  }));
}

export const limit = decides({
  name: 'ratelimits.limit',
  alias: 'ratelimit.limit',
  summary: 'Check a rate limit for an identifier, and charge it if the request may proceed.',
  input: LimitCheck,
  output: Type.Object({
    success: out.flag('True if the request may proceed.'),
    limit: out.int('Limit that applied: that of an override if one matches, else that of the request.'),
    remaining: Remaining,
    reset: out.int('Reset time in Unix milliseconds.'),
    overrideId: Type.Optional(OverrideId),
  }),
  errors: ['namespace_not_found', 'too_many_records'],
  needs: { ratelimit: ['limit'] },

  prepare(input, rootKey, store) {
    const given = checksOf([input], store, () => 'body');
    return new Printed(store.decide.limitChecks.prepare(rootKey, given), ({ passed, checks }) => {
      const { remaining, resetAtMs, override: used, limit: effective } = checks[0]!;
      const override = used ? `,"overrideId":"${used.id}"` : '';
      return `{"success":${passed},"limit":${effective},"remaining":${remaining},"reset":${resetAtMs}${override}}`;
    });
  },
});
