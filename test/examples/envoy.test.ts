// examples/envoy/envoy.yaml in a real Envoy.

import { expect, onTestFinished, test } from 'vitest';
import { envoy } from '../../bench/support/gateways.mjs';
import { addressOf, runServer } from '../support/processes.ts';
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
  more({ start, newKey, ask, tollgate }) {
    const wrong = async (port: number) => {
      const { key } = await newKey({ allowedIps: ['127.0.0.1'] });
      const from = { key, port, from: '127.0.0.2' };
      expect((await ask('/', from)).status).toBe(403);
      expect((await ask('/', { ...from, headers: ['X-Forwarded-For: 127.0.0.1'] })).status).toBe(200);
    };

    test('the address without DIRECT is what the client sends', async () => {
      const direct = '%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%';
      await wrong((await start([...address, [direct, direct.replace('DIRECT_', '')]])).port);
    });

    test('X-Forwarded-For, allowed and named in GATEWAY_IP_HEADER, is what the client sends', async () => {
      const { url, redis, ok } = tollgate();
      const { key } = await ok('rootKeys.createRootKey', { permissions: ['api.*.verify_key'] });
      const settings = { GATEWAY_ROOT_KEY: key, GATEWAY_IP_HEADER: 'X-Forwarded-For' };
      const server = runServer({ REDIS_URL: redis.url, ...settings });
      onTestFinished(async () => void (await server.stop()));
      const portOf = (address: string) => `port_value: ${new URL(address).port} }`;
      const toServer = [portOf(url), portOf(await addressOf(server))] as const;
      await wrong((await start([toServer, allow('x-forwarded-for')])).port);
    });
  },
});
