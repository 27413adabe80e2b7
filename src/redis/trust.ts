// The certificates that Tollgate trusts for TLS to Redis. They are parsed once, as the list of a system takes 40 ms,
// and again when the operator asks for it; then new connections use them.

import { X509Certificate } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { createSecureContext, type SecureContext } from 'node:tls';
import { withoutMark } from '../domain/text.ts';

export interface TrustOptions {
  /** The only certificates to trust. If empty, those of the system. */
  caFile?: string | undefined;
  /** SSL_CERT_FILE, which for OpenSSL and others replaces the list of the system. */
  systemCaFile?: string | undefined;
  /** NODE_EXTRA_CA_CERTS. Node adds them to its own list only, which is not used here. */
  extraCaFile?: string | undefined;
}

/** Where systems have their list: Debian and Alpine, Fedora, openSUSE, RHEL, macOS and BSD. */
const systemFiles = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/ca-bundle.pem',
  '/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem',
  '/etc/ssl/cert.pem',
];

export class Trust {
  readonly #options: TrustOptions;
  readonly #systemFiles: readonly string[];
  #context: SecureContext;

  constructor(options: TrustOptions, known = systemFiles) {
    this.#options = options;
    this.#systemFiles = known;
    this.#context = this.#read();
  }

  /** For `tls.connect`, at the time of the connection. */
  get context(): SecureContext {
    return this.#context;
  }

  /** Reads the files again. If one cannot be used, throws and changes nothing. */
  reload() {
    this.#context = this.#read();
  }

  #read(): SecureContext {
    const { caFile, systemCaFile, extraCaFile } = this.#options;
    if (caFile) return createSecureContext({ ca: readCertificates('REDIS_CA_FILE', caFile) });
    const ca = [];
    const found = this.#systemFiles.find((file) => existsSync(file));
    if (systemCaFile) ca.push(readCertificates('SSL_CERT_FILE', systemCaFile));
    else if (found) ca.push(readFileSync(found, 'latin1'));
    // A system without a list, such as a slim image: Node's own, to which Node has added the extra ones.
    if (ca.length === 0) return createSecureContext({});
    if (extraCaFile) ca.push(readCertificates('NODE_EXTRA_CA_CERTS', extraCaFile));
    return createSecureContext({ ca });
  }
}

function readCertificates(variable: string, file: string): string {
  let pem: string;
  try {
    pem = withoutMark(readFileSync(file, 'utf8'));
  } catch (cause) {
    throw new Error(`The file of ${variable} cannot be read: ${(cause as Error).message}`, { cause });
  }
  // TLS accepts a file without certificates, and then trusts nothing.
  if (!containsCertificate(pem)) throw new Error(`The file of ${variable} contains no certificate: ${file}`);
  return pem;
}

function containsCertificate(pem: string): boolean {
  try {
    // X509Certificate also reads other formats than PEM; TLS does not.
    return pem.includes('-----BEGIN') && new X509Certificate(pem).subject !== undefined;
  } catch {
    return false;
  }
}
