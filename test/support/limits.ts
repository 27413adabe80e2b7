// Limits as responses have them. A new field of a limit does not compile without its default here.

import { expect } from 'vitest';
import type { Ratelimit } from '../../src/domain/limit.ts';

/**
 * Without `type`: the model of concurrency limits is in holdModel.ts. Without `until` and `former`: that of temporary
 * limits is in test/operations/keys/temporaryLimits.test.ts.
 */
type OptionalValues = Omit<Ratelimit, 'id' | 'name' | 'limit' | 'duration' | 'type' | 'until' | 'former'>;

/** The values of a limit whose request has none. */
export const limitDefaults: OptionalValues = { autoApply: false };

/** Another value of each. */
export const limitOthers: OptionalValues = { autoApply: true };

/** A configured limit that was given with these fields. */
export const storedLimit = (given: object) => ({ id: expect.stringMatching(/^rl_/), ...limitDefaults, ...given });
