import { expect, test } from 'vitest';
import { ApiError } from '../../src/errors.ts';
import { errorResponse } from '../../src/http/errorResponse.ts';

const request = { requestId: 'req_1', accept: 'application/json' };

test('an error response has the envelope and nothing else', () => {
  const error = new ApiError('invalid_input', 'No.', {
    fields: [{ location: 'body.x', message: 'is odd' }],
    cause: 'secret',
  });
  const response = errorResponse(error, request);
  expect(response).toMatchObject({ status: 400, contentType: 'application/json', headers: [] });
  expect(JSON.parse(response.body)).toEqual({
    meta: { requestId: 'req_1' },
    error: {
      title: 'Invalid input',
      detail: 'No.',
      status: 400,
      type: '/errors/invalid_input',
      errors: [{ location: 'body.x', message: 'is odd' }],
    },
  });
});

test('its media type is problem+json when Accept names it, when the operation declares it, and for 429', () => {
  const error = new ApiError('key_not_found', 'No.');
  const accept = 'text/html, Application/Problem+JSON;q=0.5';
  expect(errorResponse(error, { ...request, accept }).contentType).toBe('application/problem+json');
  expect(errorResponse(error, request, { problemJson: true }).contentType).toBe('application/problem+json');
  // No operation has an error with status 429 yet.
  const tooMany = Object.defineProperty(new ApiError('internal', 'No.'), 'status', { value: 429 });
  expect(errorResponse(tooMany, request).contentType).toBe('application/problem+json');
});

test('503 has Retry-After, 405 has Allow', () => {
  expect(errorResponse(new ApiError('store_unavailable', 'No.'), request).headers).toEqual([['Retry-After', '1']]);
  expect(errorResponse(new ApiError('method_not_allowed', 'No.'), request, { allow: 'POST' }).headers).toEqual([
    ['Allow', 'POST'],
  ]);
});
