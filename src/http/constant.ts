// Documents that stay the same while the server runs. They have an ETag, and are compressed for clients that accept
// gzip. Responses of operations are not compressed: the length of a compressed response reveals a secret in it to a
// caller that chooses a part of its text (BREACH).

import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { Request, Response } from './message.ts';

export type Served = (request: Request) => Response | Promise<Response>;

type Headers = Response['headers'];

const compress = promisify(gzip);

/** Returns a function that serves a document, with 304 for a client that has it. */
export function constant(contentType: string, headers: Headers, text: string | Buffer): Served {
  const bytes = Buffer.from(text);
  const body = bytes.toString();
  const hash = createHash('sha256').update(bytes).digest('base64url').slice(0, 22);
  const respond = (bytes: Buffer, etag: string, more: Headers = []): Response => ({
    status: 200,
    contentType,
    headers: [...headers, ['ETag', etag], vary, ...more],
    body,
    bytes,
  });
  const plainEtag = `"${hash}"`;
  const plain = respond(bytes, plainEtag);
  const compressedEtag = `"${hash}-gzip"`;
  // Compressed once, by the first request that accepts it, in a thread of its own.
  let compressed: Promise<Response> | undefined;
  const compressedResponse = async () =>
    respond(await compress(bytes, { level: 9 }), compressedEtag, [['Content-Encoding', 'gzip']]);
  return ({ acceptEncoding = '', ifNoneMatch = '' }) => {
    const isCompressed = acceptsGzip(acceptEncoding);
    const etag = isCompressed ? compressedEtag : plainEtag;
    if (isMatch(ifNoneMatch, etag)) {
      return { status: 304, contentType, headers: [...headers, ['ETag', etag], vary], body: '' };
    }
    if (!isCompressed) return plain;
    compressed ??= compressedResponse();
    return compressed;
  };
}

/** A file whose name changes with its contents. */
export const asset = (contentType: string, bytes: Buffer): Served =>
  constant(
    contentType,
    [
      ['Cache-Control', 'public, max-age=31536000, immutable'],
      ['X-Content-Type-Options', 'nosniff'],
    ],
    bytes,
  );

/** Parts of a header that are read; clients send a few. */
const partsMax = 20;
const vary = ['Vary', 'Accept-Encoding'] as const;

/** Whether an Accept-Encoding allows gzip: by its name, or else by `*`, with a weight above 0. */
export function acceptsGzip(acceptEncoding: string): boolean {
  const weights = new Map<string, number>();
  for (const part of acceptEncoding.toLowerCase().split(',', partsMax)) {
    const [coding = '', ...parameters] = part.split(';', partsMax).map((text) => text.trim());
    const weight = parameters.find((parameter) => parameter.startsWith('q='));
    weights.set(coding, weight === undefined ? 1 : Number(weight.slice('q='.length)));
  }
  return (weights.get('gzip') ?? weights.get('x-gzip') ?? weights.get('*') ?? 0) > 0;
}

/** Whether an If-None-Match names this version. The comparison is weak, as HTTP wants it here. */
const isMatch = (ifNoneMatch: string, etag: string): boolean =>
  ifNoneMatch.split(',', partsMax).some((tag) => ['*', etag, `W/${etag}`].includes(tag.trim()));
