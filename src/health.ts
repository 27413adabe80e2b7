// Asks the server of these settings whether it is alive, for the HEALTHCHECK of the image. Exit code 1 if it is not.

import { get as getPlain } from 'node:http';
import { get as getSecure } from 'node:https';
import { loadConfig, tlsSettings } from './config.ts';

const waitMs = 4_000;
const localOf: Record<string, string> = { '0.0.0.0': '127.0.0.1', '::': '::1' };

const config = loadConfig();
const { host, port } = config;
// Its certificate is not for a local address. No secret is sent, and only the status is read.
const options = { host: localOf[host] ?? host, port, path: '/health/live', timeout: waitMs, rejectUnauthorized: false };
const get = tlsSettings(config) ? getSecure : getPlain;
const request = get(options, ({ statusCode }) => {
  console.log(`status ${statusCode}`);
  process.exit(statusCode === 200 ? 0 : 1);
});
request.on('timeout', () => request.destroy(new Error(`no response within ${waitMs} ms`)));
request.on('error', ({ message }) => {
  console.error(`tollgate: ${message}`);
  process.exit(1);
});
