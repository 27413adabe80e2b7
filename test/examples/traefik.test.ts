// examples/traefik/tollgate.yml in a real Traefik.

import { traefik } from '../../bench/support/gateways.mjs';
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
  ipHeader: 'X-Forwarded-For',
  ratelimitOnSuccess: false,
  waitsForTollgate: true,
  opensForChecks: true,
  joinsNoKeys: true,
});
