// CORS as the comments of a gateway's example turn it on: pages of another origin can call the API, and read why they
// may not.

import { expect, test } from 'vitest';
import type { Context } from './gateway.ts';

const origin = 'https://app.example';
const preflight = [
  `Origin: ${origin}`,
  'Access-Control-Request-Method: PUT',
  'Access-Control-Request-Headers: authorization,content-type',
];
const list = (value = '') => value.toLowerCase().split(/, */);

export function describeCors({ extended, newKey, ask, reached }: Context) {
  test('CORS: the gateway answers preflights, which have no key; none reaches the API', async () => {
    const port = extended().port;
    for (const path of ['/', '/documents/7']) {
      const { status, headers } = await ask(path, { method: 'OPTIONS', headers: preflight, port });
      expect([200, 204]).toContain(status);
      expect(headers.get('access-control-allow-origin')).toBe(origin);
      expect(list(headers.get('access-control-allow-methods'))).toEqual(
        expect.arrayContaining(['get', 'put', 'delete']),
      );
      expect(list(headers.get('access-control-allow-headers'))).toEqual(['authorization', 'content-type']);
      expect(headers.get('access-control-max-age')).toBe('600');
    }
    expect((await ask('/', { method: 'OPTIONS', headers: [`Origin: ${origin}`], port })).status).toBe(401);
    // As written, the example needs a key for every request.
    expect((await ask('/', { method: 'OPTIONS', headers: preflight })).status).toBe(401);
    expect(reached).toEqual([]);
  });

  test('CORS: pages can read responses and refusals, with the state of limits; each header is there once', async () => {
    const port = extended().port;
    const headers = [`Origin: ${origin}`];
    const { key } = await newKey();
    const { key: spent } = await newKey({ credits: { remaining: 0 } });
    for (const [options, status] of [
      [{ key }, 200],
      [{}, 401],
      [{ key: 'k'.repeat(700) }, 401],
      [{ key: spent }, 429],
    ] as const) {
      const answer = await ask('/', { ...options, headers, port });
      expect([answer.status, answer.headers.get('access-control-allow-origin')]).toEqual([status, origin]);
      expect(list(answer.headers.get('access-control-expose-headers')).sort()).toEqual([
        'ratelimit',
        'ratelimit-policy',
        'retry-after',
        'x-tollgate-code',
      ]);
    }
    expect((await ask('/documents', { key, headers, port })).headers.get('access-control-allow-origin')).toBe(origin);
  });
}
