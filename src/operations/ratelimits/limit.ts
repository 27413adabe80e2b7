import Type from 'typebox';
import { decides } from '../../operation.ts';
import { CounterDuration, Fields, Int } from '../schemas.ts';

export const LimitCheck = Fields({
  namespace: Type.String({
    minLength: 1,
    maxLength: 512,
    description: 'A name, or the id of a namespace, `rlns_…`. Unknown names are created.',
  }),
  identifier: Type.String({ minLength: 1, maxLength: 512, description: 'Whom or what to limit.' }),
  limit: Int({ minimum: 1, description: 'Units admitted in any interval of `duration`.' }),
  duration: CounterDuration,
  cost: Type.Optional(
    Int({
      minimum: 0,
      default: 1,
      description: 'Units. 0 asks whether the count is within the limit, and charges nothing.',
    }),
  ),
});

export const limit = decides({
  name: 'ratelimits.limit',
  alias: 'ratelimit.limit',
  summary: 'Charge a request to an identifier and say whether it may proceed.',
  input: LimitCheck,
  output: Type.Object({
    success: Type.Boolean(),
    limit: Type.Integer({ description: 'The one that counted: an override replaces the requested one.' }),
    remaining: Type.Integer(),
    reset: Type.Integer({ description: 'Unix milliseconds.' }),
    overrideId: Type.Optional(Type.String()),
  }),
  errors: ['namespace_not_found', 'too_many_records'],
  needs: { ratelimit: ['limit'] },

  async decide({ namespace, identifier, limit, duration, cost = 1 }, rootKey, { store }) {
    const { passed, checks } = await store.limit(rootKey, [
      { namespace, identifier, limit, durationMs: duration, cost },
    ]);
    const { remaining, resetAtMs, overrideId, limit: effective } = checks[0]!;
    const override = overrideId === undefined ? '' : `,"overrideId":"${overrideId}"`;
    return `{"success":${passed},"limit":${effective},"remaining":${remaining},"reset":${resetAtMs}${override}}`;
  },
});
