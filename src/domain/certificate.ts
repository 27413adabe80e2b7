import { X509Certificate } from 'node:crypto';

/** When the first of the certificates in a PEM file ends, in Unix milliseconds. */
export function certificateEndMs(pem: string): number {
  const certificates = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  return Math.min(...certificates.map((text) => Date.parse(new X509Certificate(text).validTo)));
}
