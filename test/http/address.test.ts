// The address of the caller, from a real connection to the event in the audit log.

import { pino } from 'pino';
import { expect, test } from 'vitest';
import { createPipeline } from '../../src/http/pipeline.ts';
import { listen } from '../../src/http/server.ts';
import { operations } from '../../src/operations/index.ts';
import { harness } from '../support/harness.ts';

const app = harness();

test.each([
  ['', 'X-Forwarded-For', '192.0.2.7', '127.0.0.1'],
  ['x-forwarded-for', 'X-Forwarded-For', '10.0.0.1, 192.0.2.7', '192.0.2.7'],
  ['x-real-ip', 'X-Real-IP', '2001:db8::7', '2001:db8::7'],
  ['x-real-ip', 'X-Real-IP', '192.0.2.7:4711', '192.0.2.7'],
  ['x-real-ip', 'X-Real-IP', '[2001:DB8::7]:4711', '2001:db8::7'],
  // Without an address in the header, that of the connection.
  ['x-real-ip', 'X-Real-IP', 'unknown', '127.0.0.1'],
  ['x-real-ip', 'X-Real-IP', 'fe80::1%eth0', '127.0.0.1'],
  ['x-real-ip', 'X-Other', '192.0.2.7', '127.0.0.1'],
])('with the setting %j and %s: %s the address is %s', async (addressHeader, name, value, address) => {
  const { store, rootKey } = app;
  const logged: string[] = [];
  const server = await listen({
    host: '127.0.0.1',
    port: 0,
    bodyBytesMax: 100_000,
    newRequestId: () => 'req_1',
    addressHeader,
    handler: createPipeline(operations, {
      store,
      log: pino({ level: 'warn' }, { write: (line) => void logged.push(line) }),
      metaBytesMax: 100,
    }),
  });
  try {
    for (let i = 0; i < 2; i++) {
      const response = await fetch(`http://127.0.0.1:${server.port}/v2/apis.createApi`, {
        method: 'POST',
        headers: { Authorization: `Bearer ${rootKey}`, 'Content-Type': 'application/json', [name]: value },
        body: '{"name":"from a socket"}',
      });
      expect(response.status).toBe(200);
    }
    const isMissing = addressHeader !== '' && address === '127.0.0.1';
    expect(logged.map((line) => /CLIENT_ADDRESS_HEADER/.test(line))).toEqual(isMissing ? [true] : []);
    const [event] = (await app.call('audit.listEvents', { order: 'desc', limit: 1 })).data;
    expect(event!.address).toBe(address);
  } finally {
    await server.close();
  }
});
