// examples/traefik/tollgate.yml in a real Traefik.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from '../support/processes.ts';
import { describeGateway, missingProgram } from './gateway.ts';

describeGateway('Traefik', {
  file: 'traefik/tollgate.yml',
  open: undefined,
  missing: missingProgram('traefik', 'version'),
  start(dir, example, port) {
    writeFileSync(join(dir, 'tollgate.yml'), example);
    const words = [
      `--entrypoints.web.address=127.0.0.1:${port}`,
      `--providers.file.filename=${join(dir, 'tollgate.yml')}`,
      '--global.checknewversion=false',
      '--global.sendanonymoususage=false',
    ];
    return run('traefik', words, { env: { ...process.env, HOME: dir } });
  },
  addresses: { tollgate: 'address: http://127.0.0.1:8080/', api: 'url: http://127.0.0.1:3000' },
  away: 500,
  misconfigured: 500,
  http2: 'same port',
  ratelimitOnSuccess: false,
  waitsForTollgate: true,
  longUrl: 431,
});
