import Type from 'typebox';
import { print } from '../../domain/json.ts';
import { decides, Printed } from '../../operation.ts';
import { OverrideId, out, Remaining } from '../schemas.ts';
import { checksOf, LimitCheck } from './limit.ts';

export const multiLimit = decides({
  name: 'ratelimits.multiLimit',
  alias: 'ratelimit.multiLimit',
  summary: 'Check several rate limits. If all pass, all are charged; otherwise none is.',
  input: Type.Array(LimitCheck, { minItems: 1, maxItems: 100 }),
  output: Type.Object({
    passed: out.flag('True if all checks passed.'),
    limits: out.objects('Results in the order of the request.', {
      namespace: out.text('Namespace, as in the request.'),
      identifier: out.text('Identifier, as in the request.'),
      limit: out.int('Limit that applied.'),
      remaining: Remaining,
      reset: out.int('Reset time in Unix milliseconds.'),
      passed: out.flag('True if this check alone would pass.'),
      overrideId: Type.Optional(OverrideId),
    }),
  }),
  errors: ['namespace_not_found', 'too_many_records'],
  needs: { ratelimit: ['limit'] },

  prepare(input, rootKey, store) {
    const checks = checksOf(input, store, (index) => `body[${index}]`);
    return new Printed(store.decide.limitChecks.prepare(rootKey, checks), (result) => {
      const limits = result.checks.map(({ limit, remaining, resetAtMs, passed, override }, index) => {
        const { namespace, identifier } = checks[index]!;
        return { namespace, identifier, limit, remaining, reset: resetAtMs, passed, overrideId: override?.id };
      });
      return print({ passed: result.passed, limits });
    });
  },
});
