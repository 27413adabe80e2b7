// HTTPS as a client sees it: the ciphers that are accepted, and the header that keeps browsers on HTTPS. openssl is the
// client.

import { execFile, execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { harness } from '../support/harness.ts';
import { serveStore } from '../support/serving.ts';

const h = harness();
const dir = mkdtempSync(join(tmpdir(), 'tollgate-ciphers-'));
afterAll(() => rmSync(dir, { recursive: true }));

/** A certificate for 127.0.0.1 that is signed by itself, with a key of this kind. */
function certificate(kind: string, ...newKey: string[]) {
  const [certFile, keyFile] = [join(dir, `${kind}.crt`), join(dir, `${kind}.key`)];
  const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1', '-days', '2'];
  execFileSync('openssl', ['req', '-x509', '-nodes', ...newKey, '-keyout', keyFile, '-out', certFile, ...subject], {
    stdio: 'pipe',
  });
  return { TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile };
}

/** What openssl agrees on with the server, such as `TLSv1.3 TLS_AES_256_GCM_SHA384`; `refused` if nothing. */
const agreed = (port: string, ...options: string[]): Promise<string> =>
  new Promise((resolve) => {
    const child = execFile('openssl', ['s_client', '-connect', `127.0.0.1:${port}`, ...options], (_error, out) => {
      const [, version, cipher] = /New, (\S+), Cipher is (\S+)/.exec(out) ?? [];
      resolve(!cipher || cipher === '(NONE)' ? 'refused' : `${version} ${cipher}`);
    });
    child.stdin!.end();
  });

const kinds = {
  RSA: certificate('rsa', '-newkey', 'rsa:2048'),
  ECDSA: certificate('ecdsa', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1'),
};

describe.each(Object.entries(kinds))('with a key of %s', (kind, settings) => {
  let server: Awaited<ReturnType<typeof serveStore>>;
  let port: string;
  beforeAll(async () => {
    server = await serveStore(h.store, settings);
    ({ port } = new URL(server.url));
  });
  afterAll(() => server.close());

  test.each(['AES128-GCM-SHA256', 'AES256-GCM-SHA384', 'CHACHA20-POLY1305'])(
    'TLS 1.2 with ECDHE and %s',
    async (cipher) => {
      const name = `ECDHE-${kind}-${cipher}`;
      expect(await agreed(port, '-tls1_2', '-cipher', name)).toBe(`TLSv1.2 ${name}`);
    },
  );

  test.each(['TLS_AES_128_GCM_SHA256', 'TLS_AES_256_GCM_SHA384', 'TLS_CHACHA20_POLY1305_SHA256'])(
    'TLS 1.3 with %s',
    async (cipher) => {
      expect(await agreed(port, '-tls1_3', '-ciphersuites', cipher)).toBe(`TLSv1.3 ${cipher}`);
    },
  );

  test('a client that knows all agrees on TLS 1.3', async () => {
    expect(await agreed(port)).toMatch(/^TLSv1\.3 /);
  });

  test.each([
    ['no ephemeral key', ['-tls1_2', '-cipher', 'kRSA:@SECLEVEL=0']],
    ['AES128-SHA', ['-tls1_2', '-cipher', 'AES128-SHA:@SECLEVEL=0']],
    ['AES256-GCM-SHA384 without ECDHE', ['-tls1_2', '-cipher', 'AES256-GCM-SHA384:@SECLEVEL=0']],
    ['CBC', ['-tls1_2', '-cipher', `ECDHE-${kind}-AES128-SHA:ECDHE-${kind}-AES256-SHA384:@SECLEVEL=0`]],
    ['a finite-field key exchange', ['-tls1_2', '-cipher', 'DHE:@SECLEVEL=0']],
    ['no encryption', ['-tls1_2', '-cipher', 'NULL:@SECLEVEL=0']],
    ['no certificate', ['-tls1_2', '-cipher', 'aNULL:@SECLEVEL=0']],
    ['TLS 1.1', ['-tls1_1', '-cipher', 'ALL:@SECLEVEL=0']],
    ['TLS 1.0', ['-tls1', '-cipher', 'ALL:@SECLEVEL=0']],
  ])('refuses %s', async (_what, options) => {
    expect(await agreed(port, ...options)).toBe('refused');
  });
});

describe('Strict-Transport-Security', () => {
  const pages = ['/', '/console', '/console/keys', '/docs', '/openapi.json', '/llms.txt', '/errors/key_expired'];

  /** The header of responses with GET, by path. */
  async function headersOf(settings: Record<string, string>, paths: readonly string[]) {
    const server = await serveStore(h.store, settings);
    const ca = settings.TLS_CERT_FILE ? readFileSync(settings.TLS_CERT_FILE) : undefined;
    const headerOf = (path: string) =>
      ca
        ? new Promise<unknown>((resolve, reject) => {
            const sent = request(server.url + path, { ca }, (response) => {
              response.resume();
              resolve(response.headers['strict-transport-security']);
            });
            sent.on('error', reject).end();
          })
        : fetch(server.url + path, { redirect: 'manual' }).then(
            ({ headers }) => headers.get('strict-transport-security') ?? undefined,
          );
    try {
      return await Promise.all(paths.map(headerOf));
    } finally {
      await server.close();
    }
  }
  const all = (value: unknown) => pages.map(() => value);

  test('is in pages over TLS, for this host only', async () => {
    expect(await headersOf(kinds.ECDSA, pages)).toEqual(all('max-age=31536000'));
    expect(await headersOf({ ...kinds.ECDSA, HSTS_MAX_AGE: '0' }, ['/console'])).toEqual(['max-age=0']);
  });

  test('is in no response of /v2 and no health check', async () => {
    const paths = ['/v2/liveness', '/v2/apis.createApi', '/v2/gateway/check', '/health/live', '/health/ready', '/none'];
    expect(await headersOf(kinds.ECDSA, paths)).toEqual(paths.map(() => undefined));
  });

  test('is nowhere without TLS', async () => {
    expect(await headersOf({}, pages)).toEqual(all(undefined));
  });
});
