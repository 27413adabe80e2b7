// Bytes in, bytes out: the only file that knows uWebSockets.js's lifetimes.
//
// - A native request can be read only until its handler returns, and so all of it that is wanted is copied there.
// - A body chunk is memory lent until its callback returns: what is kept is copied.
// - A native response is written once, corked (one packet), and never touched after its abort.
// - What is written and not yet taken is copied, for each connection: long bodies are written as they are taken.
// - Trailers of a chunked body are parsed as the next request. So a request with Transfer-Encoding is the last on its
//   connection, of which nothing is read from then on.

import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { STATUS_CODES } from 'node:http';
import { ApiError } from '../errors.ts';
import { ArrivingBody, BodyBudget, budgetBytesFor, unknownCallers } from './arrival.ts';
import { errorResponse, internalError } from './errorResponse.ts';
import {
  type Answer,
  type AnswerHead,
  type BodyRefusal,
  type HeadRequest,
  knownMethods,
  type Request,
  type Response,
} from './message.ts';
import { RecentCallers } from './recentCallers.ts';
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
  /** Memory for all bodies that are arriving in several parts. */
  arrivingBytesMax?: number;
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
  const traffic: Traffic = {
    bodyBytesMax,
    budget: new BodyBudget(options.arrivingBytesMax ?? budgetBytesFor(bodyBytesMax)),
    callers: new RecentCallers(),
    inFlight: 0,
    closing: false,
    onIdle() {},
  };

  async function close(socket: NonNullable<unknown>) {
    traffic.closing = true;
    uws().us_listen_socket_close(socket);
    while (traffic.inFlight > 0) {
      await new Promise<void>((resolve) => {
        traffic.onIdle = resolve;
      });
      // Not from within one of uWebSockets.js's own callbacks, whose socket would be closed under it.
      await new Promise((resolve) => setImmediate(resolve));
    }
    app.close();
  }

  app.any('/*', (native, head) => new Exchange(traffic, native, readHead(head, newRequestId()), answer, true).begin());
  if (byHead) {
    const take = (native: HttpResponse, head: HttpRequest) =>
      new Exchange(traffic, native, readWholeHead(head, newRequestId()), byHead.answer, false).begin();
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
          traffic.closing = true;
        },
        close: () => (closed ??= close(socket)),
      });
    });
  });
}

/** What the requests of a server share. */
interface Traffic {
  readonly bodyBytesMax: number;
  readonly budget: BodyBudget;
  readonly callers: RecentCallers;
  inFlight: number;
  closing: boolean;
  onIdle(): void;
}

/** A request whose head was just read, until its answer is written or its connection is gone. */
class Exchange<R extends Request> {
  readonly #traffic: Traffic;
  readonly #native: HttpResponse;
  readonly #request: R;
  readonly #answer: (request: R) => Promise<Response>;
  readonly #keepsBody: boolean;
  readonly #announcedBytes: number | undefined;
  /** No other request may follow on this connection. */
  #isLast: boolean;
  #state: 'reading' | 'read' | 'answering' | 'sending' = 'reading';
  #aborted = false;
  /** A body that comes in several parts. */
  #body: ArrivingBody | undefined;

  constructor(
    traffic: Traffic,
    native: HttpResponse,
    request: R,
    answer: (request: R) => Promise<Response>,
    keepsBody: boolean,
  ) {
    this.#traffic = traffic;
    this.#native = native;
    this.#request = request;
    this.#answer = answer;
    this.#keepsBody = keepsBody;
    this.#announcedBytes = bodyBytes();
    this.#isLast = transferEncoding !== undefined || !knownMethods.has(request.method);
  }

  begin() {
    this.#traffic.inFlight++;
    this.#native.onAborted(() => this.#abort());
    if (this.#announcedBytes === undefined) this.#respondLast();
    else if (this.#keepsBody && this.#announcedBytes > this.#traffic.bodyBytesMax) this.#refuse('too_large');
    else this.#native.onData((part, isLastPart) => this.#take(part, isLastPart));
  }

  #abort() {
    this.#aborted = true;
    // The answer that is being made finishes it.
    if (this.#state === 'answering') return;
    this.#body?.end();
    this.#finish();
  }

  #finish() {
    this.#traffic.inFlight--;
    if (this.#traffic.inFlight === 0) this.#traffic.onIdle();
  }

  /** Takes a part of the body. An empty body is an empty part. */
  #take(part: ArrayBuffer, isLastPart: boolean) {
    if (this.#state !== 'reading') return; // Was on its way already when the body was refused.
    if (this.#keepsBody) {
      const refusal = this.#keep(part, isLastPart);
      if (refusal) {
        this.#refuse(refusal);
        return;
      }
    }
    if (!isLastPart) return;
    if (this.#isLast) this.#respondLast();
    else this.#respond();
  }

  #keep(part: ArrayBuffer, isLastPart: boolean): BodyRefusal | undefined {
    const { bodyBytesMax, budget, callers } = this.#traffic;
    const request = this.#request;
    if ((this.#body?.length ?? 0) + part.byteLength > bodyBytesMax) return 'too_large';
    if (isLastPart && !this.#body) {
      request.body = Buffer.from(new Uint8Array(part));
      return undefined;
    }
    this.#body ??= new ArrivingBody(
      budget,
      callers.workspaceOf(request.authorization) ?? unknownCallers,
      this.#announcedBytes || bodyBytesMax,
    );
    if (!this.#body.add(part)) return 'no_room';
    if (isLastPart) request.body = this.#body.end();
    return undefined;
  }

  #refuse(reason: BodyRefusal) {
    this.#body?.end();
    this.#request.body = reason;
    this.#respondLast();
  }

  /** Answers as the last thing on this connection, of which no more is read. */
  #respondLast() {
    this.#state = 'read';
    this.#isLast = true;
    this.#native.pause();
    // Not in this turn: closed from within its own callback, uWebSockets.js goes on and serves the bytes it still has
    // at hand as a next request. Until it is answered, a next request closes the connection.
    setImmediate(() => {
      if (!this.#aborted) this.#respond();
    });
  }

  #respond() {
    this.#state = 'answering';
    if (this.#announcedBytes === undefined) {
      this.#reply(errorResponse(malformedRequest(), this.#request));
      return;
    }
    const replyRejected = (cause: unknown) => {
      console.error(`${this.#request.requestId}: answer() rejected, which it never should`, cause);
      this.#reply(errorResponse(internalError(cause), this.#request));
    };
    try {
      this.#answer(this.#request).then((response) => this.#reply(response), replyRejected);
    } catch (cause) {
      replyRejected(cause);
    }
  }

  #reply(response: Response) {
    const request = this.#request;
    const native = this.#native;
    const { closing, callers } = this.#traffic;
    // Operations are all that is answered so, and only to those whose root key is good.
    if (this.#keepsBody && response.status === 200 && request.method === 'POST') callers.add(request.authorization);

    if (this.#aborted) {
      this.#finish();
    } else if (this.#isLast && response.body !== '') {
      // The connection is closed then, which is an abort and finishes it.
      this.#state = 'sending';
      sendLast(native, request, response);
    } else if (response.bytes && request.method !== 'HEAD') {
      this.#state = 'sending';
      native.cork(() => send(native, request, response, response.bytes!, closing, () => this.#finish()));
    } else {
      native.cork(() => write(native, request, response, this.#isLast || closing));
      this.#finish();
    }
  }
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

/** Writes what the connection takes now, and the rest as it takes more. */
function send(
  native: HttpResponse,
  request: Request,
  response: Response,
  bytes: Buffer,
  closeConnection: boolean,
  finished: () => void,
) {
  let isDone = false;
  const goOn = (offset: number): boolean => {
    const [ok, done] = native.tryEnd(bytes.subarray(offset), bytes.length);
    isDone = done;
    if (done) finished();
    return ok;
  };
  writeHead(native, request, response);
  // Stopping to read is left to the client here: an answer in parts cannot close its connection.
  if (closeConnection) native.writeHeader('Connection', 'close');
  if (!goOn(0) && !isDone) native.onWritable(goOn);
}

/**
 * Writes the answer and closes the connection when the kernel has all of it. `end` can close too, but between its last
 * byte and the close, while a slow reader's answer is still in memory, further requests are read and served. So to
 * uWebSockets.js this answer never ends: it is told to wait for a byte more than there is. A next request that is read
 * meanwhile closes the connection.
 */
function sendLast(native: HttpResponse, request: Request, response: Response) {
  const length = response.bytes?.length ?? Buffer.byteLength(response.body);
  const bytes = request.method === 'HEAD' ? empty : (response.bytes ?? Buffer.from(response.body));
  const goOn = (offset: number) => native.tryEnd(bytes.subarray(offset), length + 1)[0];
  native.cork(() => {
    writeHead(native, request, response);
    native.writeHeader('Connection', 'close');
    // The first call writes Content-Length.
    native.tryEnd('', length);
    // Within a cork, that bytes are accepted does not say that they are out. That a last one is accepted then does.
    if (bytes.length > 1) native.tryEnd(bytes.subarray(0, -1), length + 1);
  });
  let isOut = bytes.length === 0;
  if (native.getWriteOffset() === bytes.length - 1) {
    native.cork(() => {
      isOut = goOn(bytes.length - 1);
    });
  }
  if (isOut) {
    native.close();
    return;
  }
  native.onWritable((offset) => {
    const ok = goOn(offset);
    if (ok) native.close();
    return ok;
  });
}
