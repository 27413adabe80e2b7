// examples/traefik/tollgate.yml in a real Traefik.

import { expect, onTestFinished, test } from 'vitest';
import { traefik } from '../../bench/support/gateways.mjs';
import { addressOf, runServer } from '../support/processes.ts';
import { describeGateway, missingProgram } from './gateway.ts';

describeGateway('Traefik', {
  file: 'traefik/tollgate.yml',
  open: undefined,
  missing: missingProgram('traefik', 'version'),
  start: (dir, example, port) => traefik(dir, example, `127.0.0.1:${port}`),
  addresses: { tollgate: 'address: http://127.0.0.1:8080/', api: 'url: http://127.0.0.1:3000' },
  away: 500,
  misconfigured: 500,
  http2: { onSamePort: true },
  ratelimitOnSuccess: false,
  waitsForTollgate: true,
  longUrl: 431,
  opensForChecks: true,
  joinsNoKeys: true,
  more({ tollgate }) {
    test('UWS_HTTP_MAX_HEADERS_SIZE allows larger headers in a check', async () => {
      const server = runServer({ REDIS_URL: tollgate().redis.url, UWS_HTTP_MAX_HEADERS_SIZE: '16384' });
      onTestFinished(async () => void (await server.stop()));
      const headers = { 'x-forwarded-uri': `/?${'q'.repeat(12_000)}`, 'x-tollgate-root-key': tollgate().rootKey };
      const check = (url: string) => fetch(`${url}/v2/gateway/check`, { headers });
      expect((await check(tollgate().url)).status).toBe(431);
      expect((await check(await addressOf(server))).status).toBe(401);
    });
  },
});
