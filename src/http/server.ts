// Bytes in, bytes out: the only file that knows uWebSockets.js's lifetimes.
//
// - A native request can be read only until its handler returns, and so all of it that is wanted is copied there.
// - A body chunk is memory lent until its callback returns: what is kept is copied.
// - A native response is written once, corked (one packet), and never touched after its abort.
// - What is written and not yet taken is copied, for each connection: long bodies are written as they are taken.

import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { STATUS_CODES } from 'node:http';
import { ApiError } from '../errors.ts';
import { errorResponse, internalError } from './errorResponse.ts';
import type { Answer, AnswerHead, HeadRequest, Request, Response } from './message.ts';
import { type HttpRequest, type HttpResponse, uws } from './uws.ts';

export interface ListenOptions {
  host: string;
  /** 0 = any free one. */
  port: number;
  /** Lets other processes listen on the same port, the kernel spreading connections. Otherwise a taken port is refused. */
  sharePort?: boolean;
  /** Speaks HTTPS and nothing else. */
  tls?: Tls | undefined;
  bodyBytesMax: number;
  newRequestId: () => string;
  answer: Answer;
  /** Answers what comes to `path` or below it, by any method, from the head alone: all headers are copied, no body is. */
  byHead?: { path: string; answer: AnswerHead };
}

export interface Tls {
  /** PEM files. */
  certFile: string;
  keyFile: string;
  /** Of the key; '' when it is not encrypted. */
  passphrase: string;
}

export interface Server {
  port: number;
  /** From now on every answer is the last on its connection: who has more to ask comes anew, or goes elsewhere. */
  drain(): void;
  /** Stops accepting, lets the requests in flight finish, then closes every connection. */
  close(): Promise<void>;
}

export async function listen(options: ListenOptions): Promise<Server> {
  const { host, port, sharePort = false, tls, bodyBytesMax, newRequestId, answer, byHead } = options;
  const app = tls ? secureApp(tls) : uws().App();
  let inFlight = 0;
  let closing = false;
  let onIdle = () => {};

  function finished() {
    inFlight--;
    if (inFlight === 0) onIdle();
  }

  /** Takes a request whose head was just read, and answers it when its body is there, or when it is past. */
  function accept<R extends Request>(
    native: HttpResponse,
    request: R,
    answer: (request: R) => Promise<Response>,
    keepsBody: boolean,
  ) {
    const announcedBytes = bodyBytes();
    const malformed = announcedBytes === undefined;
    let aborted = false;
    let answering = false;
    let sending = false;
    let last = false;
    let kept = empty;
    let keptBytes = 0;

    inFlight++;
    native.onAborted(() => {
      aborted = true;
      if (!answering || sending) finished();
    });

    function reply(response: Response) {
      if (response.bytes && !aborted && !last && request.method !== 'HEAD') {
        native.cork(() => send(response, response.bytes!));
        return;
      }
      if (!aborted) native.cork(() => write(native, request, response, last || closing));
      finished();
    }

    /** Writes what the connection takes now, and the rest as it takes more. */
    function send(response: Response, bytes: Buffer) {
      sending = true;
      const goOn = (offset: number): boolean => {
        const [ok, done] = native.tryEnd(bytes.subarray(offset), bytes.length);
        if (done) {
          sending = false;
          finished();
        }
        return ok;
      };
      writeHead(native, request, response);
      if (!goOn(0) && sending) native.onWritable(goOn);
    }

    function respond() {
      answering = true;
      if (malformed) {
        reply(errorResponse(malformedRequest(), request));
        return;
      }
      try {
        answer(request).then(reply, replyRejected);
      } catch (cause) {
        replyRejected(cause);
      }
    }

    function replyRejected(cause: unknown) {
      console.error(`${request.requestId}: answer() rejected, which it never should`, cause);
      reply(errorResponse(internalError(cause), request));
    }

    /** Reads no further, and answers as the last thing on this connection. */
    function respondAndClose() {
      answering = true;
      last = true;
      native.pause();
      // Not in this turn: closed from within its own callback, uWebSockets.js goes on and serves the bytes it still has
      // at hand as a next request.
      setImmediate(respond);
    }

    if (malformed) {
      respondAndClose();
      return;
    }
    if (keepsBody && announcedBytes > bodyBytesMax) {
      request.body = 'too_large';
      respondAndClose();
      return;
    }
    native.onData((chunk, isLast) => {
      if (answering) return; // Was on its way already when the body was refused.
      if (!keepsBody) {
        if (isLast) respond();
        return;
      }
      const endBytes = keptBytes + chunk.byteLength;
      if (endBytes > bodyBytesMax) {
        request.body = 'too_large';
        respondAndClose();
        return;
      }
      if (isLast && keptBytes === 0) {
        request.body = Buffer.from(new Uint8Array(chunk));
        respond();
        return;
      }
      if (endBytes > kept.length) {
        const larger = Buffer.allocUnsafe(Math.max(announcedBytes, endBytes, Math.min(2 * kept.length, bodyBytesMax)));
        larger.set(kept);
        kept = larger;
      }
      kept.set(new Uint8Array(chunk), keptBytes);
      keptBytes = endBytes;
      if (isLast) {
        request.body = kept.subarray(0, keptBytes);
        respond();
      }
    });
  }

  async function close(socket: NonNullable<unknown>) {
    closing = true;
    uws().us_listen_socket_close(socket);
    while (inFlight > 0) {
      await new Promise<void>((resolve) => {
        onIdle = resolve;
      });
      // Not from within one of uWebSockets.js's own callbacks, whose socket would be closed under it.
      await new Promise((resolve) => setImmediate(resolve));
    }
    app.close();
  }

  app.any('/*', (native, head) => accept(native, readHead(head, newRequestId()), answer, true));
  if (byHead) {
    const take = (native: HttpResponse, head: HttpRequest) =>
      accept(native, readWholeHead(head, newRequestId()), byHead.answer, false);
    app.any(byHead.path, take).any(`${byHead.path}/*`, take);
  }
  return new Promise((resolve, reject) => {
    app.listen(host, port, sharePort ? portShared : portExclusive, (socket) => {
      if (!socket) {
        // uWebSockets.js does not say why.
        const reasons = 'the port is taken, needs more rights, or the address is not one of this machine';
        reject(new Error(`Cannot listen on ${host} port ${port}: ${reasons}.`));
        return;
      }
      let closed: Promise<void> | undefined;
      resolve({
        port: uws().us_socket_local_port(socket),
        drain: () => {
          closing = true;
        },
        close: () => (closed ??= close(socket)),
      });
    });
  });
}

/** Says what is wrong with the files, which uWebSockets.js does not. */
function secureApp({ certFile, keyFile, passphrase }: Tls) {
  const secret = passphrase === '' ? {} : { passphrase };
  const certificate = readPem('TLS_CERT_FILE', certFile, (pem) => new X509Certificate(pem));
  const key = readPem('TLS_KEY_FILE', keyFile, (pem) => {
    if (passphrase === '' && pem.includes('ENCRYPTED'))
      throw new Error('it is encrypted, and wants TLS_KEY_PASSPHRASE');
    try {
      return createPrivateKey({ key: pem, ...secret });
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code !== 'ERR_OSSL_BAD_DECRYPT') throw cause;
      throw new Error('TLS_KEY_PASSPHRASE does not open it');
    }
  });
  if (!certificate.checkPrivateKey(key)) {
    throw new Error('The key of TLS_KEY_FILE is not that of the certificate of TLS_CERT_FILE.');
  }
  return uws().SSLApp({ cert_file_name: certFile, key_file_name: keyFile, ...secret });
}

function readPem<T>(variable: string, file: string, read: (pem: Buffer) => T): T {
  try {
    return read(readFileSync(file));
  } catch (cause) {
    throw new Error(`The file of ${variable} cannot be used: ${(cause as Error).message}`, { cause });
  }
}

// uWebSockets.js's ListenOptions, an enum that only its types have.
const portShared = 0;
const portExclusive = 1;

const empty = Buffer.alloc(0);
const statusLines = new Map(
  Object.entries(STATUS_CODES).map(([status, text]) => [Number(status), `${status} ${text}`]),
);

// Filled by `takeHeader` and read by `readHead` before any other request can come between: one pass over the headers,
// with no closure made for it. `getHeader` would show the first of two headers and hide that there is a second.
let authorization: string | undefined;
let contentType: string | undefined;
let contentLength: string | undefined;
let transferEncoding: string | undefined;
let accepts = '';
let twice = false;

function takeHeader(name: string, value: string) {
  switch (name) {
    case 'authorization':
      twice ||= authorization !== undefined;
      authorization = value;
      break;
    case 'content-type':
      twice ||= contentType !== undefined;
      contentType = value;
      break;
    case 'content-length':
      twice ||= contentLength !== undefined;
      contentLength = value;
      break;
    case 'transfer-encoding':
      twice ||= transferEncoding !== undefined;
      transferEncoding = value;
      break;
    case 'accept':
      accepts = accepts === '' ? value : `${accepts}, ${value}`;
      break;
  }
}

/** The request, its body still to come. */
function readHead(head: HttpRequest, requestId: string): Request {
  authorization = contentType = contentLength = transferEncoding = undefined;
  accepts = '';
  twice = false;
  head.forEach(takeHeader);

  return {
    method: head.getCaseSensitiveMethod(),
    path: head.getUrl(),
    hasQuery: Boolean(head.getQuery()),
    authorization: authorization ?? '',
    contentType: contentType ?? '',
    accept: accepts,
    requestId,
    body: empty,
  };
}

function readWholeHead(head: HttpRequest, requestId: string): HeadRequest {
  const headers = new Map<string, string[]>();
  head.forEach((name, value) => {
    const values = headers.get(name);
    if (values) values.push(value);
    else headers.set(name, [value]);
  });
  return { ...readHead(head, requestId), headers };
}

/** The announced length of the body: 0 when there is none or it comes in chunks, undefined when the headers leave it open. */
function bodyBytes(): number | undefined {
  if (twice) return undefined;
  if (transferEncoding !== undefined) {
    return contentLength === undefined && transferEncoding.toLowerCase() === 'chunked' ? 0 : undefined;
  }
  if (contentLength === undefined) return 0;
  return /^\d{1,15}$/.test(contentLength) ? Number(contentLength) : undefined;
}

// Where such a request ends and the next begins is in doubt, so nothing more is read from its connection.
const malformedRequest = () =>
  new ApiError(
    'malformed_request',
    'Content-Length, Authorization and Content-Type may come once, and Transfer-Encoding only as `chunked` and alone.',
  );

function writeHead(native: HttpResponse, request: Request, response: Response) {
  // 200 is what is written unless something else was.
  if (response.status !== 200) native.writeStatus(statusLines.get(response.status) ?? String(response.status));
  native.writeHeader('Content-Type', response.contentType);
  native.writeHeader('X-Request-Id', request.requestId);
  for (const [name, value] of response.headers) native.writeHeader(name, value);
}

/** Writes the whole answer. HEAD gets its headers alone. */
function write(native: HttpResponse, request: Request, response: Response, closeConnection: boolean) {
  writeHead(native, request, response);
  if (request.method !== 'HEAD') native.end(response.body, closeConnection);
  // `endWithoutBody` cannot close: given two arguments, or a length, it believes that so many bytes are still to come.
  else if (closeConnection) native.end('', true);
  else native.writeHeader('Content-Length', String(Buffer.byteLength(response.body))).endWithoutBody();
}
