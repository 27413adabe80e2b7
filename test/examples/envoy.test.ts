// examples/envoy/envoy.yaml in a real Envoy.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from '../support/processes.ts';
import { describeGateway, missingProgram } from './gateway.ts';

describeGateway('Envoy', {
  file: 'envoy/envoy.yaml',
  open: [['failure_mode_allow: false', 'failure_mode_allow: true']],
  missing: missingProgram('envoy', '--version'),
  start(dir, example) {
    const file = join(dir, 'envoy.yaml');
    writeFileSync(file, example);
    return run('envoy', ['--config-path', file, '--disable-hot-restart', '--concurrency', '1', '--log-level', 'error']);
  },
  addresses: {
    listen: '{ address: 0.0.0.0, port_value: 80 }',
    tollgate: 'port_value: 8080 }',
    api: 'port_value: 3000 }',
  },
  away: 503,
  misconfigured: 503,
  openWhenMisconfigured: true,
  http2: 'same port',
  ratelimitOnSuccess: true,
});
