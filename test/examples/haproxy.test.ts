// examples/haproxy in a real HAProxy.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { run } from '../support/processes.ts';
import { describeGateway, missingProgram } from './gateway.ts';

describeGateway('HAProxy', {
  file: 'haproxy/haproxy.cfg',
  open: [['setenv TOLLGATE_AWAY closed', 'setenv TOLLGATE_AWAY open']],
  missing: missingProgram('haproxy', '-v'),
  start(dir, example) {
    writeFileSync(join(dir, 'tollgate.lua'), readFileSync('examples/haproxy/tollgate.lua'));
    writeFileSync(join(dir, 'haproxy.cfg'), example.replace('/etc/haproxy/', `${dir}/`));
    return run('haproxy', ['-db', '-f', join(dir, 'haproxy.cfg')]);
  },
  addresses: { listen: 'bind :80', tollgate: '//127.0.0.1:8080/', api: 'server api 127.0.0.1:3000' },
  away: 503,
  misconfigured: 500,
  ratelimitOnSuccess: true,
  more({ start, newKey, ask, reached }) {
    test('an error in the Lua passes nothing, though HAProxy goes on after it', async () => {
      for (const mode of ['closed', 'open']) {
        const { port } = await start([
          ['setenv TOLLGATE_URL', 'setenv TOLLGATE_NO_URL'],
          ['setenv TOLLGATE_AWAY closed', `setenv TOLLGATE_AWAY ${mode}`],
        ]);
        const { key } = await newKey();
        for (let request = 0; request < 3; request++) expect((await ask('/', { key, port })).status).toBe(500);
      }
      expect(reached).toEqual([]);
    });
  },
});
