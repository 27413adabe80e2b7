import Type from 'typebox';
import { print } from '../../domain/json.ts';
import { decides, Printed } from '../../operation.ts';
import { OverrideId, Remaining } from '../schemas.ts';
import { LimitCheck } from './limit.ts';

export const multiLimit = decides({
  name: 'ratelimits.multiLimit',
  alias: 'ratelimit.multiLimit',
  summary: 'Check several rate limits. If all pass, all are charged; otherwise none is.',
  input: Type.Array(LimitCheck, { minItems: 1, maxItems: 100 }),
  output: Type.Object({
    passed: Type.Boolean({ description: 'True if all checks passed.' }),
    limits: Type.Array(
      Type.Object({
        namespace: Type.String({ description: 'Namespace, as in the request.' }),
        identifier: Type.String({ description: 'Identifier, as in the request.' }),
        limit: Type.Integer({ description: 'Limit that applied.' }),
        remaining: Remaining,
        reset: Type.Integer({ description: 'Reset time in Unix milliseconds.' }),
        passed: Type.Boolean({ description: 'True if this check alone would pass.' }),
        overrideId: Type.Optional(OverrideId),
      }),
      { description: 'Results in the order of the request.' },
    ),
  }),
  errors: ['namespace_not_found', 'too_many_records'],
  needs: { ratelimit: ['limit'] },

  prepare(input, rootKey, store) {
    const checks = input.map(({ duration, cost = 1, ...check }) => ({ ...check, durationMs: duration, cost }));
    return new Printed(store.decide.limitChecks.prepare(rootKey, checks), (result) => {
      const limits = result.checks.map(({ limit, remaining, resetAtMs, passed, override }, index) => {
        const { namespace, identifier } = checks[index]!;
        return { namespace, identifier, limit, remaining, reset: resetAtMs, passed, overrideId: override?.id };
      });
      return print({ passed: result.passed, limits });
    });
  },
});
