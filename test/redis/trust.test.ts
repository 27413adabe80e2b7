// Which certificates are trusted for TLS to Redis, tried with a TLS server.

import { once } from 'node:events';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, createServer, type Server } from 'node:tls';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Trust } from '../../src/redis/trust.ts';
import { type Certificates, makeCertificates } from '../support/certificates.ts';

const dir = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
let files: Certificates;
let server: Server;
/** A list that does not contain the authority of the server. */
const bundle = join(dir, 'bundle.pem');

beforeAll(async () => {
  files = makeCertificates(dir);
  const other = mkdtempSync(join(dir, 'other-'));
  copyFileSync(makeCertificates(other).caFile, bundle);
  server = createServer({ cert: readFileSync(files.certFile), key: readFileSync(files.keyFile) });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterAll(() => {
  server.close();
  rmSync(dir, { recursive: true });
});

/** 'trusted', or the code of the error. */
async function judge({ context }: Trust): Promise<string> {
  const { port } = server.address() as AddressInfo;
  const socket = connect({ host: '127.0.0.1', port, secureContext: context });
  try {
    await once(socket, 'secureConnect');
    return 'trusted';
  } catch (error) {
    return (error as NodeJS.ErrnoException).code!;
  } finally {
    socket.destroy();
  }
}
const unknown = 'UNABLE_TO_VERIFY_LEAF_SIGNATURE';

test('REDIS_CA_FILE is trusted, and nothing besides', async () => {
  expect(await judge(new Trust({ caFile: files.caFile }))).toBe('trusted');
  const both = { caFile: bundle, systemCaFile: files.caFile, extraCaFile: files.caFile };
  expect(await judge(new Trust(both, [files.caFile]))).toBe(unknown);
});

test('a byte order mark before the certificates is ignored', async () => {
  const marked = join(dir, 'marked.pem');
  writeFileSync(marked, `\ufeff${readFileSync(files.caFile, 'utf8')}`);
  expect(await judge(new Trust({ caFile: marked }))).toBe('trusted');
  expect(await judge(new Trust({ extraCaFile: marked }, [bundle]))).toBe('trusted');
});

test('without it, the list of the system: the first file that exists', async () => {
  expect(await judge(new Trust({}, ['/nowhere/ca.pem', files.caFile, bundle]))).toBe('trusted');
  expect(await judge(new Trust({}, [bundle, files.caFile]))).toBe(unknown);
  expect(await judge(new Trust({}, []))).toBe(unknown);
});

test('SSL_CERT_FILE replaces the list, NODE_EXTRA_CA_CERTS is added to it', async () => {
  expect(await judge(new Trust({ systemCaFile: files.caFile }, [bundle]))).toBe('trusted');
  expect(await judge(new Trust({ systemCaFile: bundle }, [files.caFile]))).toBe(unknown);
  expect(await judge(new Trust({ extraCaFile: files.caFile }, [bundle]))).toBe('trusted');
});

test.each([
  ['caFile', 'REDIS_CA_FILE'],
  ['systemCaFile', 'SSL_CERT_FILE'],
  ['extraCaFile', 'NODE_EXTRA_CA_CERTS'],
])('a %s that cannot be used is named', (option, variable) => {
  expect(() => new Trust({ [option]: join(dir, 'none.pem') }, [bundle])).toThrow(
    `The file of ${variable} cannot be read: ENOENT`,
  );
  expect(() => new Trust({ [option]: files.keyFile }, [bundle])).toThrow(`${variable} contains no certificate`);
});

test('a reload changes what later connections trust; a broken file changes nothing', async () => {
  const caFile = join(dir, 'changing.pem');
  copyFileSync(bundle, caFile);
  const trust = new Trust({ caFile });
  copyFileSync(files.caFile, caFile);
  expect(await judge(trust)).toBe(unknown);
  trust.reload();
  expect(await judge(trust)).toBe('trusted');
  writeFileSync(caFile, '-----BEGIN CERTIFICATE-----\n');
  expect(() => trust.reload()).toThrow('REDIS_CA_FILE contains no certificate');
  expect(await judge(trust)).toBe('trusted');
});
