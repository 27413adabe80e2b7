// Certificates that openssl creates in a directory: one of an authority, and one of a server that the authority signed.

import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

export const passphrase = 'correct horse';

export interface Certificates {
  /** The authority's certificate, for clients. */
  caFile: string;
  /** Valid for localhost and 127.0.0.1. */
  certFile: string;
  keyFile: string;
  /** The same key, encrypted with `passphrase`. */
  encryptedKeyFile: string;
  /** A private key that belongs to no certificate. */
  otherKeyFile: string;
}

/** With a negative number of days that of the server has ended. */
export function makeCertificates(dir: string, days = 2): Certificates {
  const openssl = (...words: string[]) => void execFileSync('openssl', words, { cwd: dir, stdio: 'pipe' });
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  openssl(
    'req',
    '-x509',
    ...newKey,
    '-keyout',
    'ca.key',
    '-out',
    'ca.crt',
    '-days',
    `${Math.max(days, 1)}`,
    '-subj',
    '/CN=Test authority',
  );
  openssl('req', ...newKey, '-keyout', 'server.key', '-out', 'server.csr', '-subj', '/CN=localhost');
  writeFileSync(join(dir, 'names'), 'subjectAltName=DNS:localhost,IP:127.0.0.1\n');
  const signed = ['-CA', 'ca.crt', '-CAkey', 'ca.key', '-CAcreateserial', '-days', `${days}`, '-extfile', 'names'];
  openssl('x509', '-req', '-in', 'server.csr', '-out', 'server.crt', ...signed);
  // With few iterations, as a test tries hundreds of passphrases.
  const encrypted = ['-out', 'encrypted.key', '-passout', `pass:${passphrase}`, '-iter', '1'];
  openssl('pkcs8', '-topk8', '-in', 'server.key', ...encrypted);
  openssl('genpkey', '-algorithm', 'EC', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-out', 'other.key');
  const [caFile, certFile, keyFile, encryptedKeyFile, otherKeyFile] = [
    'ca.crt',
    'server.crt',
    'server.key',
    'encrypted.key',
    'other.key',
  ].map((name) => join(dir, name)) as [string, string, string, string, string];
  return { caFile, certFile, keyFile, encryptedKeyFile, otherKeyFile };
}
