// Responses to invalid input.

import { expect } from 'vitest';

/** A response with 400 whose error names this place, such as `body.credits.remaining`, perhaps among others. */
export const invalidAt = (location: string) => ({
  status: 400,
  code: 'invalid_input',
  error: { errors: expect.arrayContaining([expect.objectContaining({ location })]) },
});

/** A response with 400 whose error names this place and no other. */
export const onlyInvalidAt = (location: string) => ({
  ...invalidAt(location),
  error: { errors: [expect.objectContaining({ location })] },
});
