// The texts of the gateway examples, also where the gateway is not installed: every header and setting that they name
// exists, and the page that contains them is equal.

import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { settings } from '../../src/config.ts';
import { gatewayPath, metaHeader, requestHeaders, responseHeaders } from '../../src/http/gateway.ts';

const folders = ['caddy', 'envoy', 'haproxy', 'nginx', 'traefik'];
const files = folders.flatMap((folder) => readdirSync(`examples/${folder}`).map((name) => `${folder}/${name}`));
const read = (file: string) => readFileSync(`examples/${file}`, 'utf8');

const { meta: _, ...answered } = responseHeaders;
const known = [...Object.values(requestHeaders), ...Object.values(answered), ...['Plan', 'Seats'].map(metaHeader)].map(
  (name) => name.toLowerCase(),
);

test('there are seven files', () => {
  expect(files).toEqual([
    'caddy/Caddyfile',
    'envoy/envoy.yaml',
    'haproxy/haproxy.cfg',
    'haproxy/tollgate.lua',
    'nginx/tollgate-lua.conf',
    'nginx/tollgate.conf',
    'traefik/tollgate.yml',
  ]);
});

test('the nginx configuration in docs/gateways.md is the file', () => {
  const [, block] = /^```nginx\n([\s\S]*?)^```$/m.exec(readFileSync('docs/gateways.md', 'utf8'))!;
  expect(block).toBe(read('nginx/tollgate.conf'));
});

describe.each(files)('examples/%s', (file) => {
  const text = read(file);

  test('names only existing headers and settings', () => {
    const headers = text.match(/\bx-tollgate-[a-z-]*[a-z]/gi) ?? [];
    expect(headers.filter((name) => !known.includes(name.toLowerCase()))).toEqual([]);
    const variables = text.match(/\bGATEWAY_[A-Z_]+\b/g) ?? [];
    expect(settings.map(({ variable }) => variable)).toEqual(expect.arrayContaining(variables));
  });

  test('uses the path of the gateway check, or belongs to an example that does', () => {
    if (file !== 'haproxy/haproxy.cfg') expect(text).toContain(gatewayPath);
  });

  test('docs/gateways.md links to it, and a test runs it', () => {
    expect(readFileSync('docs/gateways.md', 'utf8')).toContain(`(../examples/${file})`);
    const tests = readdirSync('test/examples').map((name) => readFileSync(`test/examples/${name}`, 'utf8'));
    expect(tests.some((source) => source.includes(file.replace('haproxy/', '')))).toBe(true);
  });
});
