// The examples for gateways that are not here to be run: they parse, and what they name is what the server has.

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { settings } from '../../src/config.ts';
import { answeredBy, askedBy, gatewayPath, metaHeader } from '../../src/http/gateway.ts';

const files = ['nginx/tollgate.conf', 'traefik/tollgate.yml', 'caddy/Caddyfile', 'envoy/envoy.yaml'];
const read = (file: string) => readFileSync(`examples/${file}`, 'utf8');

const shown = [answeredBy.keyId, answeredBy.externalId, metaHeader('Plan')];
const known = [...Object.values(askedBy), ...shown].map((name) => name.toLowerCase());

describe.each(files)('examples/%s', (file) => {
  const text = read(file);

  test('asks at the path there is, and names only headers and settings there are', () => {
    expect(text).toContain(gatewayPath);
    const headers = text.match(/x-tollgate-[a-z-]*[a-z]/gi)!;
    expect(headers.filter((name) => !known.includes(name.toLowerCase()))).toEqual([]);
    const variables = text.match(/\bGATEWAY_[A-Z_]+\b/g)!;
    expect(settings.map(({ variable }) => variable)).toEqual(expect.arrayContaining(variables));
  });

  test('lets the answer replace each header that it hands to the API', () => {
    for (const name of shown) expect(text.toLowerCase()).toContain(name.toLowerCase());
  });
});

test('Traefik: of the headers of a client only the key reaches the check', () => {
  const { http } = parse(read('traefik/tollgate.yml'), { strict: true });
  expect(http.routers.api).toMatchObject({ middlewares: ['tollgate'], service: 'api' });
  expect(http.middlewares.tollgate.forwardAuth).toEqual({
    address: `http://127.0.0.1:8080${gatewayPath}`,
    authRequestHeaders: ['Authorization'],
    authResponseHeaders: shown,
  });
});

test('Envoy: it fails closed, asks Tollgate before it routes, and allows no header of a client beyond its own defaults', () => {
  const { static_resources: resources } = parse(read('envoy/envoy.yaml'), { strict: true });
  const { http_filters: filters } = resources.listeners[0].filter_chains[0].filters[0].typed_config;
  expect(filters.map(({ name }: { name: string }) => name.split('.').at(-1))).toEqual(['ext_authz', 'router']);
  const check = filters[0].typed_config;
  expect(check).toMatchObject({ failure_mode_allow: false, status_on_error: { code: 'ServiceUnavailable' } });
  expect(check).not.toHaveProperty('allowed_headers');
  expect(check.http_service).toMatchObject({ path_prefix: gatewayPath, server_uri: { cluster: 'tollgate' } });
  expect(resources.clusters.map(({ name }: { name: string }) => name)).toEqual(['tollgate', 'api']);
});

test('Caddy: what a client sends under these names is removed before it is asked', () => {
  const lines = read('caddy/Caddyfile')
    .split('\n')
    .map((line) => line.trim());
  const places = [
    'route {',
    'request_header -X-Tollgate-*',
    'forward_auth 127.0.0.1:8080 {',
    'reverse_proxy 127.0.0.1:3000',
  ].map((line) => lines.indexOf(line));
  expect(places).not.toContain(-1);
  expect(places).toEqual([...places].sort((a, b) => a - b));
});
