// examples/nginx/tollgate.conf in a real nginx.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { nginx } from '../../bench/support/gateways.mjs';
import { describeGateway, missingProgram } from './gateway.ts';

describeGateway('nginx', {
  file: 'nginx/tollgate.conf',
  open: [['error_page 502 503 504 =403 @tollgate_deny;', 'error_page 502 503 504 =204 @tollgate_allow;']],
  missing: missingProgram('nginx', '-v'),
  start: (dir, example) => nginx(dir, example),
  addresses: { listen: 'listen 80;', tollgate: 'server 127.0.0.1:8080;', api: 'server 127.0.0.1:3000;' },
  away: 503,
  misconfigured: 500,
  ratelimitOnSuccess: true,
  address: [['# proxy_set_header X-Real-IP', 'proxy_set_header X-Real-IP']],
  cost: [['# proxy_set_header X-Tollgate-Cost 1;', 'proxy_set_header X-Tollgate-Cost 2;']],
  hold: [['# proxy_set_header X-Tollgate-Hold 60000;', 'proxy_set_header X-Tollgate-Hold 60000;']],
  removesOnlyNamed: true,
  http2: {
    onSamePort: false,
    changes: (port) => [['    location / {', `    listen 127.0.0.1:${port} http2;\n    location / {`]],
  },
  more({ closed, newKey, ask }) {
    test('refusals write nothing to the error log', async () => {
      const log = () => readFileSync(join(closed().dir, 'error.log'), 'utf8');
      const { key } = await newKey({ credits: { remaining: 0 } });
      const before = log();
      expect((await ask('/', { key })).status).toBe(429);
      expect((await ask('/', { key: 'made_up' })).status).toBe(401);
      expect((await ask('/documents', { key: (await newKey()).key })).status).toBe(403);
      expect(log()).toBe(before);
    });
  },
});
