import Type from 'typebox';
import { decides, Printed } from '../../operation.ts';
import { CounterDuration, Fields, Identifier, Int, OverrideId, out, Remaining, Text } from '../schemas.ts';

export const LimitCheck = Fields({
  namespace: Text(1, 512, 'Name or id (`rlns_…`) of a namespace. An unknown name is created.'),
  identifier: Identifier,
  limit: Int(1, 'Units admitted in any interval of `duration`.'),
  duration: CounterDuration,
  cost: Type.Optional(Int(0, 'Units to charge. 0 checks whether the count is within the limit without charging.', 1)),
});

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

  prepare({ namespace, identifier, limit, duration, cost = 1 }, rootKey, store) {
    const check = { namespace, identifier, limit, durationMs: duration, cost };
    return new Printed(store.decide.limitChecks.prepare(rootKey, [check]), ({ passed, checks }) => {
      const { remaining, resetAtMs, override: used, limit: effective } = checks[0]!;
      const override = used ? `,"overrideId":"${used.id}"` : '';
      return `{"success":${passed},"limit":${effective},"remaining":${remaining},"reset":${resetAtMs}${override}}`;
    });
  },
});
