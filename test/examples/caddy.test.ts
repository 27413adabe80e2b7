// examples/caddy/Caddyfile in a real Caddy.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from '../support/processes.ts';
import { describeGateway, missingProgram } from './gateway.ts';

describeGateway('Caddy', {
  file: 'caddy/Caddyfile',
  open: [['vars tollgate_away closed', 'vars tollgate_away open']],
  missing: missingProgram('caddy', 'version'),
  start(dir, example) {
    writeFileSync(join(dir, 'Caddyfile'), `{\n\tadmin off\n\tauto_https off\n}\n${example}`);
    const env = { ...process.env, HOME: dir, XDG_DATA_HOME: dir, XDG_CONFIG_HOME: dir };
    return run('caddy', ['run', '--adapter', 'caddyfile', '--config', join(dir, 'Caddyfile')], { env });
  },
  addresses: {
    listen: '\n:80 {',
    tollgate: 'reverse_proxy 127.0.0.1:8080',
    api: 'reverse_proxy 127.0.0.1:3000',
  },
  away: 503,
  misconfigured: 500,
  ratelimitOnSuccess: true,
  largeHeader: 500,
});
