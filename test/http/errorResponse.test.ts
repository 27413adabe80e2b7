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

test('a problem document has the members of the error where RFC 9457 has them, and the envelope', () => {
  const error = new ApiError('invalid_input', 'No.', { fields: [{ location: 'body.x', message: 'is odd' }] });
  const { body } = errorResponse(error, { ...request, accept: 'application/problem+json' });
  const members = error.toBody();
  expect(JSON.parse(body)).toEqual({ ...members, meta: { requestId: 'req_1' }, error: members });
});

test('401 has WWW-Authenticate, 503 has Retry-After, 405 has Allow', () => {
  const headersOf = (options?: object) => errorResponse(new ApiError('unauthorized', 'No.'), request, options).headers;
  expect(headersOf()).toEqual([['WWW-Authenticate', 'Bearer']]);
  expect(headersOf({ challenge: 'ApiKey' })).toEqual([['WWW-Authenticate', 'ApiKey']]);
  expect(errorResponse(new ApiError('store_unavailable', 'No.'), request).headers).toEqual([['Retry-After', '1']]);
  expect(errorResponse(new ApiError('method_not_allowed', 'No.'), request, { allow: 'POST' }).headers).toEqual([
    ['Allow', 'POST'],
  ]);
});
