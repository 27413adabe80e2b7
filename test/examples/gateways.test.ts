// The texts of the gateway examples, also where the gateway is not installed: every header and setting that they name
// exists, and the page that names them is right about them.

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

test('docs/gateways.md states the addresses of the nginx configuration that it installs', () => {
  const page = readFileSync('docs/gateways.md', 'utf8').replace(/\s+/g, ' ');
  expect(page).toContain('sudo cp examples/nginx/tollgate.conf /etc/nginx/conf.d/');
  const servers = [...read('nginx/tollgate.conf').matchAll(/^ +server (\S+);$/gm)].map((match) => match[1]!);
  expect(page).toContain(`It expects Tollgate at ${servers[0]} and your API at ${servers[1]}:`);
  expect(read('nginx/tollgate.conf').match(/^upstream /gm)).toHaveLength(2);
});

test('docs/gateways.md has the lines for keys with allowedIps that the files have', () => {
  const page = readFileSync('docs/gateways.md', 'utf8');
  const rows = [...page.matchAll(/^\| (?:nginx|nginx with Lua|Caddy) \| `X-Real-IP` \| `([^`]+)`/gm)];
  const lines = rows.map(([, line]) => line!);
  expect(lines).toHaveLength(3);
  for (const [index, file] of ['nginx/tollgate.conf', 'nginx/tollgate-lua.conf', 'caddy/Caddyfile'].entries()) {
    expect(read(file)).toContain(lines[index]!);
  }
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
