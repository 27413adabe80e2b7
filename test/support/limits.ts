// Limits as responses have them. A new field of a limit does not compile without its default here.

import { expect } from 'vitest';
import type { Ratelimit } from '../../src/domain/limit.ts';

type OptionalValues = Omit<Ratelimit, 'id' | 'name' | 'limit' | 'duration'>;

/** The values of a limit whose request has none. */
export const limitDefaults: OptionalValues = { autoApply: false };

/** Another value of each. */
export const limitOthers: OptionalValues = { autoApply: true };

/** A configured limit that was given with these fields. */
export const storedLimit = (given: object) => ({ id: expect.stringMatching(/^rl_/), ...limitDefaults, ...given });
