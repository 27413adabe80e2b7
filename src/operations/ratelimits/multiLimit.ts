import Type from 'typebox';
import { print } from '../../domain/json.ts';
import { decides } from '../../operation.ts';
import { LimitCheck } from './limit.ts';

export const multiLimit = decides({
  name: 'ratelimits.multiLimit',
  alias: 'ratelimit.multiLimit',
  summary: 'Make several checks of which all pass and are charged, or none is charged.',
  input: Type.Array(LimitCheck, { minItems: 1, maxItems: 100 }),
  output: Type.Object({
    passed: Type.Boolean({ description: 'All of them.' }),
    limits: Type.Array(
      Type.Object({
        namespace: Type.String(),
        identifier: Type.String(),
        limit: Type.Integer(),
        remaining: Type.Integer(),
        reset: Type.Integer({ description: 'Unix milliseconds.' }),
        passed: Type.Boolean({ description: 'This one would fit; charged only when all do.' }),
        overrideId: Type.Optional(Type.String()),
      }),
      { description: 'In the order of the request.' },
    ),
  }),
  errors: ['namespace_not_found', 'too_many_records'],
  needs: { ratelimit: ['limit'] },

  async decide(input, rootKey, { store }) {
    const checks = input.map(({ duration, cost = 1, ...check }) => ({ ...check, durationMs: duration, cost }));
    const result = await store.limit(rootKey, checks);
    const limits = result.checks.map(({ limit, remaining, resetAtMs, passed, overrideId }, index) => {
      const { namespace, identifier } = input[index]!;
      return { namespace, identifier, limit, remaining, reset: resetAtMs, passed, overrideId };
    });
    return print({ passed: result.passed, limits });
  },
});
