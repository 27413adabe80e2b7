// Limits as responses have them, with every optional value that src/domain/limit.ts declares.

import { expect } from 'vitest';
import { defaultValues, type LimitValueName, limitValues, type Ratelimit } from '../../src/domain/limit.ts';
import type { Quota } from '../../src/domain/quota.ts';

/**
 * Without `type`, period and anchor: the model of concurrency limits is in holdModel.ts, that of quotas in
 * test/operations/quotas.test.ts. Without `until` and `former`: that of temporary limits is in
 * test/operations/keys/temporaryLimits.test.ts.
 */
type OptionalValues = Omit<Ratelimit, 'id' | 'name' | 'limit' | 'duration' | 'type' | keyof Quota | 'until' | 'former'>;

/** Of each value that may be absent in a request. */
const optionalValues = (storedOf: (stored: number) => number) =>
  Object.fromEntries(
    Object.entries(limitValues).flatMap(([name, value]) => {
      if (!('default' in value) || name === 'type') return [];
      const stored = storedOf(defaultValues[name as LimitValueName]);
      return [[name, value.kind === 'boolean' ? stored === 1 : stored]];
    }),
  ) as unknown as OptionalValues;

/** The values of a limit whose request has none. */
export const limitDefaults = optionalValues((stored) => stored);

/** Another value of each. */
export const limitOthers = optionalValues((stored) => stored + 1);

/**
 * A limit as a test of other values expects it: it and its `former` one without further values than `autoApply`, if
 * they have their default.
 */
export function withoutDefaults<Limit extends object>(limit: Limit): Limit {
  const isFurther = (name: string, value: unknown) =>
    name === 'autoApply' || value !== limitDefaults[name as keyof typeof limitDefaults];
  const entries = Object.entries(limit).filter(([name, value]) => isFurther(name, value));
  return Object.fromEntries(
    entries.map(([name, value]) => [name, name === 'former' && value ? withoutDefaults(value) : value]),
  ) as Limit;
}

/** A configured limit that was given with these fields. */
export const storedLimit = (given: object) => ({ id: expect.stringMatching(/^rl_/), ...limitDefaults, ...given });
