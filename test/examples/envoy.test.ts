// examples/envoy/envoy.yaml in a real Envoy.

import { envoy } from '../../bench/support/gateways.mjs';
import { describeGateway, missingProgram } from './gateway.ts';

describeGateway('Envoy', {
  file: 'envoy/envoy.yaml',
  open: [['failure_mode_allow: false', 'failure_mode_allow: true']],
  missing: missingProgram('envoy', '--version'),
  start: envoy,
  addresses: {
    listen: '{ address: 0.0.0.0, port_value: 80 }',
    tollgate: 'port_value: 8080 }',
    api: 'address: 127.0.0.1, port_value: 3000 }',
  },
  away: 503,
  misconfigured: 503,
  openWhenMisconfigured: true,
  http2: { onSamePort: true },
  refusesEscapes: true,
  closesWithoutBody: true,
  ratelimitOnSuccess: true,
});
