// examples/caddy/Caddyfile in a real Caddy.

import { caddy, findCaddy } from '../../bench/support/gateways.mjs';
import { describeGateway } from './gateway.ts';

/** Without TLS, Caddy has HTTP/2 only by an option, which is global. */
const withHttp2 = '# with HTTP/2';

describeGateway('Caddy', {
  file: 'caddy/Caddyfile',
  open: [['vars tollgate_away closed', 'vars tollgate_away open']],
  missing: () => (findCaddy() ? undefined : 'there is no Caddy 2.7 or later here'),
  start: (dir, example) => caddy(dir, example, example.startsWith(withHttp2) ? 'servers {\nprotocols h1 h2c\n}' : ''),
  addresses: {
    listen: '\n:80 {',
    tollgate: 'reverse_proxy 127.0.0.1:8080',
    api: 'reverse_proxy 127.0.0.1:3000',
  },
  away: 503,
  misconfigured: 500,
  ratelimitOnSuccess: true,
  address: [['# header_up X-Real-IP', 'header_up X-Real-IP']],
  cost: [['# header_up X-Tollgate-Cost 2', 'header_up X-Tollgate-Cost 2']],
  hold: [['# header_up X-Tollgate-Hold 60000', 'header_up X-Tollgate-Hold 60000']],
  http2: { onSamePort: true, changes: () => [['# An API behind Caddy', `${withHttp2}\n# An API behind Caddy`]] },
});
