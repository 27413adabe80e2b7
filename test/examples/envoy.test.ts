// examples/envoy/envoy.yaml in a real Envoy.

import { expect, test } from 'vitest';
import { envoy } from '../../bench/support/gateways.mjs';
import { describeGateway, missingProgram } from './gateway.ts';

const allowed = '[{ exact: x-tollgate-permissions }]';
/** Passes a header on to the check. */
const allow = (name: string) => [allowed, allowed.replace(' }]', ` }, { exact: ${name} }]`)] as const;
const address = [
  ['# - append: { header: { key: x-real-ip', '- append: { header: { key: x-real-ip'],
  allow('x-real-ip'),
] as const;

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
  address,
  more({ start, newKey, ask }) {
    test('the address without DIRECT, and X-Forwarded-For as it came, are what the client sends', async () => {
      const { key } = await newKey({ allowedIps: ['127.0.0.1'] });
      for (const value of ['%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%', '%REQ(x-forwarded-for)%']) {
        const { port } = await start([...address, ['%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%', value]]);
        const statusOf = async (headers: string[]) =>
          (await ask('/', { key, port, from: '127.0.0.2', headers })).status;
        expect(await statusOf([])).toBe(403);
        expect(await statusOf(['X-Forwarded-For: 127.0.0.1'])).toBe(200);
      }
    });
  },
});
