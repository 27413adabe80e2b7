// examples/haproxy in a real HAProxy.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { haproxy } from '../../bench/support/gateways.mjs';
import { describeGateway, missingProgram } from './gateway.ts';

describeGateway('HAProxy', {
  file: 'haproxy/haproxy.cfg',
  open: [['setenv TOLLGATE_AWAY closed', 'setenv TOLLGATE_AWAY open']],
  missing: missingProgram('haproxy', '-v'),
  start(dir, example, port) {
    const lua = readFileSync('examples/haproxy/tollgate.lua', 'utf8');
    // Several instances run on this machine.
    const own = (text: string) => text.replace('abns@tollgate', `abns@tollgate-${port}`);
    writeFileSync(join(dir, 'broken.lua'), own(lua.replace('local headers =', 'local headers = nothing.of.it')));
    return haproxy(dir, own(example), own(lua));
  },
  addresses: { listen: 'bind :80', tollgate: 'server tollgate 127.0.0.1:8080', api: 'server api 127.0.0.1:3000' },
  away: 503,
  misconfigured: 500,
  ratelimitOnSuccess: true,
  address: [['# http-request set-var(txn.client_address)', 'http-request set-var(txn.client_address)']],
  cost: [
    [
      '# http-request set-var(txn.tollgate_cost) str(2) if { path,url_dec -m beg -i /reports }',
      'http-request set-var(txn.tollgate_cost) str(2)',
    ],
  ],
  hold: [['# http-request set-var(txn.tollgate_hold)', 'http-request set-var(txn.tollgate_hold)']],
  http2: { onSamePort: true },
  more({ start, newKey, ask, reached }) {
    test('after an error in the Lua no request passes, though HAProxy continues', async () => {
      for (const mode of ['closed', 'open']) {
        const { port } = await start([
          ['/etc/haproxy/tollgate.lua', '/etc/haproxy/broken.lua'],
          ['setenv TOLLGATE_AWAY closed', `setenv TOLLGATE_AWAY ${mode}`],
        ]);
        const { key } = await newKey();
        for (let request = 0; request < 3; request++) expect((await ask('/', { key, port })).status).toBe(500);
      }
      expect(reached).toEqual([]);
    });
  },
});
