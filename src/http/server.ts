// The HTTP server: the only file that depends on how uWebSockets.js uses memory.
//
// - A native request can be read only until its handler returns, so everything needed is copied there.
// - A body chunk is valid only until its callback returns, so it is copied.
// - A native response is written once, corked (one packet), and never used after its abort.
// - Bytes that the connection does not accept yet are copied per connection, so long bodies are written as it accepts
//   them.
// - Trailers of a chunked body are parsed as the next request. So a request with Transfer-Encoding is the last one on
//   its connection, which is not read any further.

import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { STATUS_CODES } from 'node:http';
import { createSecureContext } from 'node:tls';
import { certificateEndMs } from '../domain/certificate.ts';
import { withoutMark } from '../domain/text.ts';
import { ApiError } from '../errors.ts';
import type { Streaming } from '../operation.ts';
import { ArrivingBody, BodyBudget, budgetBytesFor, unknownCallers } from './arrival.ts';
import { errorResponse, internalError } from './errorResponse.ts';
import {
  type BodyRefusal,
  type Handler,
  type HeaderHandler,
  type HeadRequest,
  knownMethods,
  type Request,
  type Response,
} from './message.ts';
import { requestUnits, type Task, Turns } from './turns.ts';
import { type HttpRequest, type HttpResponse, type Uws, uws } from './uws.ts';

export interface ListenOptions {
  host: string;
  /** 0 chooses a free one. */
  port: number;
  /**
   * Allow other processes to listen on the port; the kernel distributes connections. Otherwise a port in use is an
   * error.
   */
  sharePort?: boolean;
  /** Serve HTTPS only. */
  tls?: Tls | undefined;
  /** The limit of the headers of a request; uWebSockets.js has a limit of its own, see `allowHeaders`. */
  headersBytesMax?: number;
  bodyBytesMax: number;
  /** The limit of a path with longer bodies, at least `bodyBytesMax`. */
  bodyBytesMaxOf?: (path: string) => number;
  /** Memory for all bodies that arrive in several parts. */
  arrivingBytesMax?: number;
  newRequestId: () => string;
  /** The header with the address of the caller, in lower case; '' for that of the connection. */
  addressHeader?: string;
  handler: Handler;
  /** Handle requests to `path` (it may end in `/*`), with any method, from their headers. Bodies are discarded. */
  byHeaders?: readonly { path: string; handler: HeaderHandler }[];
  /**
   * Returns the workspace of a caller whose root key was accepted recently. Others share one part of the body budget.
   */
  workspaceOf?: (authorization: string) => string | undefined;
}

interface Tls {
  /** PEM files. */
  certFile: string;
  keyFile: string;
  /** The passphrase of the key; '' if it is not encrypted. */
  passphrase: string;
}

export interface Server {
  port: number;
  /** Closes each connection after its next response. */
  drain(): void;
  /**
   * Reads the files of TLS again, for new connections; those that are open keep their certificate. Throws if they
   * cannot be used; nothing changes then.
   */
  reloadCertificates(): void;
  /** When the first certificate of the chain in use ends, in Unix milliseconds; undefined without TLS. */
  certificateEndMs(): number | undefined;
  /** Stops accepting connections, waits for the requests in flight, then closes every connection. */
  close(): Promise<void>;
}

export async function listen(options: ListenOptions): Promise<Server> {
  const {
    host,
    port,
    sharePort = false,
    tls,
    newRequestId,
    addressHeader: header = '',
    handler,
    byHeaders = [],
  } = options;
  const traffic = new Traffic(options);
  let endMs: number | undefined;
  const createApp = () => {
    const app = tls ? secureApp(tls) : uws().App();
    if (tls) endMs = certificateEndMs(readFileSync(tls.certFile, 'utf8'));
    app.any('/*', (native, head) =>
      new Exchange(traffic, native, readHead(head, newRequestId(), native, header), handler, true).begin(),
    );
    for (const { path, handler: ofPath } of byHeaders) {
      app.any(path, (native, head) =>
        new Exchange(traffic, native, readWholeHead(head, newRequestId()), ofPath, false).begin(),
      );
    }
    return app;
  };
  const app = createApp();
  const apps = new Apps(app);
  return new Promise((resolve, reject) => {
    app.listen(host, port, sharePort ? portShared : portExclusive, (socket) => {
      if (!socket) {
        // uWebSockets.js does not give a reason.
        const reasons = 'the port is in use or requires privileges, or the address is not one of this machine';
        reject(new Error(`Cannot listen on ${host} port ${port}: ${reasons}.`));
        return;
      }
      let closed: Promise<void> | undefined;
      resolve({
        port: uws().us_socket_local_port(socket),
        drain: () => traffic.drain(),
        reloadCertificates: () => tls && apps.replace(createApp()),
        certificateEndMs: () => endMs,
        close: () => (closed ??= close(apps, socket, traffic)),
      });
    });
  });
}

type App = ReturnType<Uws['SSLApp']>;

/**
 * The app that listens, and the apps with renewed certificates. The first one listens for good, so that no connection
 * is refused while certificates change: it hands the connections that it accepts to the last one. uWebSockets.js frees
 * an app only at the end of the process; one takes 20 KB.
 */
class Apps {
  readonly #all: [App, ...App[]];

  constructor(listening: App) {
    this.#all = [listening];
  }

  replace(app: App) {
    const [listening, ...renewed] = this.#all;
    const last = renewed.at(-1);
    listening.addChildAppDescriptor(app.getDescriptor());
    if (last) listening.removeChildAppDescriptor(last.getDescriptor());
    this.#all.push(app);
  }

  close() {
    for (const app of this.#all) app.close();
  }
}

async function close(app: { close(): unknown }, socket: NonNullable<unknown>, traffic: Traffic) {
  traffic.drain();
  uws().us_listen_socket_close(socket);
  await traffic.idle();
  app.close();
}

/** The state that all requests of a server share. */
class Traffic {
  readonly headersBytesMax: number;
  readonly bodyBytesMax: number;
  readonly bodyBytesMaxOf: (path: string) => number;
  readonly budget: BodyBudget;
  readonly workspaceOf: (authorization: string) => string | undefined;
  readonly turns = new Turns();
  isDraining = false;
  /** Responses without end. */
  readonly streams = new Set<Streaming>();
  #inFlight = 0;
  #onIdle = () => {};

  constructor(options: ListenOptions) {
    const { bodyBytesMax } = options;
    this.headersBytesMax = options.headersBytesMax ?? Number.POSITIVE_INFINITY;
    this.bodyBytesMax = bodyBytesMax;
    this.bodyBytesMaxOf = options.bodyBytesMaxOf ?? (() => bodyBytesMax);
    this.budget = new BodyBudget(options.arrivingBytesMax ?? budgetBytesFor(bodyBytesMax));
    this.workspaceOf = options.workspaceOf ?? (() => undefined);
  }

  begin() {
    this.#inFlight++;
  }

  end() {
    this.#inFlight--;
    if (this.#inFlight === 0) this.#onIdle();
  }

  drain() {
    this.isDraining = true;
    for (const stream of this.streams) stream.stop('shutting_down');
  }

  /** Resolves when no request is in flight. */
  async idle() {
    while (this.#inFlight > 0) {
      await new Promise<void>((resolve) => {
        this.#onIdle = resolve;
      });
      // Not from within a callback of uWebSockets.js, whose socket would be closed under it.
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
}

/**
 * - `reading`: parts of the body arrive.
 * - `waiting`: the request is complete, or no more of it is read. It is handled at the end of a turn of the event loop.
 * - `handling`: the response is being made.
 * - `abandoned`: as `handling`, but the connection is gone.
 * - `sending`: the response is sent in several parts.
 * - `done`: the response was sent, or the connection is gone.
 */
type Phase = 'reading' | 'waiting' | 'handling' | 'abandoned' | 'sending' | 'done';

/** A request, from its headers until its response is sent or its connection is gone. */
class Exchange<R extends Request> {
  readonly #traffic: Traffic;
  readonly #native: HttpResponse;
  readonly #request: R;
  readonly #handler: (request: R) => Response | Promise<Response>;
  readonly #keepsBody: boolean;
  /** 0 if the request is refused for its headers. */
  readonly #announcedBytes: number;
  readonly #refusal: ApiError | undefined;
  /** No other request may follow on this connection. */
  #isLast: boolean;
  #phase: Phase = 'reading';
  /** A body that arrives in several parts, or waits. */
  #body: ArrivingBody | undefined;
  #streaming: Streaming | undefined;
  /** The work that waits for the end of a turn. */
  #task: Task | undefined;
  /** Waits for a body that is not needed. */
  #bodyTimer: NodeJS.Timeout | undefined;

  constructor(
    traffic: Traffic,
    native: HttpResponse,
    request: R,
    handler: (request: R) => Response | Promise<Response>,
    keepsBody: boolean,
  ) {
    this.#traffic = traffic;
    this.#native = native;
    this.#request = request;
    this.#handler = handler;
    this.#keepsBody = keepsBody;
    const announcedBytes = bodyBytes(!keepsBody);
    this.#announcedBytes = announcedBytes ?? 0;
    if (announcedBytes === undefined) this.#refusal = malformedRequest();
    else if (headBytes > traffic.headersBytesMax) this.#refusal = headersTooLarge(traffic.headersBytesMax);
    this.#isLast = transferEncoding !== undefined || !knownMethods.has(request.method);
  }

  begin() {
    this.#traffic.begin();
    this.#native.onAborted(() => this.#abort());
    if (this.#refusal) this.#pauseAndHandle();
    else if (this.#keepsBody && this.#isTooLong(this.#announcedBytes)) this.#refuseBody('too_large');
    else {
      this.#native.onData((part, isLastPart) => this.#receive(part, isLastPart));
      if (!this.#keepsBody && (this.#announcedBytes > 0 || this.#isLast)) {
        this.#bodyTimer = setTimeout(() => this.#phase === 'reading' && this.#pauseAndHandle(), bodyWaitMs);
      }
    }
  }

  /** Sends a response without end, until its stream ends it, the client leaves, or reads too slowly. */
  #stream(response: Response, stream: Streaming) {
    const { streams, isDraining } = this.#traffic;
    const native = this.#native;
    this.#streaming = stream;
    streams.add(stream);
    let waiting = 0;
    native.onWritable(() => {
      waiting = 0;
      return true;
    });
    const write = (text: string) => {
      if (this.#phase !== 'sending') return;
      let isTaken = false;
      native.cork(() => {
        isTaken = native.write(text);
      });
      // Bytes of this cork that the connection does not take are reported by the next `write`.
      waiting = isTaken ? 0 : waiting + Buffer.byteLength(text);
      if (waiting > streamBytesMax) native.close();
    };
    const end = () => {
      if (this.#phase !== 'sending') return;
      this.#finish();
      native.cork(() => native.end());
    };
    native.cork(() => {
      writeHead(native, this.#request, response, true);
      // Asks the client to close it after the end: `end` with `closeConnection` would write this header between the
      // chunks.
      native.writeHeader('Connection', 'close');
      stream.start({ write, end });
    });
    if (isDraining) stream.stop('shutting_down');
  }

  #abort() {
    if (this.#phase === 'done') return;
    if (this.#phase === 'handling') {
      // Counts as in flight until its response is made.
      this.#phase = 'abandoned';
      return;
    }
    this.#cancel();
    this.#finish();
  }

  #finish() {
    this.#phase = 'done';
    this.#body?.release();
    if (this.#streaming) {
      this.#traffic.streams.delete(this.#streaming);
      this.#streaming.stop();
    }
    this.#traffic.end();
  }

  /** Receives a part of the body. An empty body is one empty part. */
  #receive(part: ArrayBuffer, isLastPart: boolean) {
    if (this.#phase !== 'reading') return; // This part had arrived before the connection was paused.
    if (part.byteLength > 0 || isLastPart) clearTimeout(this.#bodyTimer);
    const refusal = this.#keepsBody && this.#keep(part, isLastPart);
    if (refusal) {
      this.#refuseBody(refusal);
      return;
    }
    if (isLastPart && this.#task) {
      // It was paused, and this part had arrived before.
      this.#cancel();
      this.#native.resume();
    }
    if (!isLastPart) this.#readOn();
    else if (this.#isLast) this.#pauseAndHandle();
    else if (this.#traffic.turns.begin(unitsOf(this.#request))) this.#handle(true);
    else this.#wait();
  }

  /** Receives further parts, at the end of a turn if this one has no room for them. */
  #readOn() {
    if (this.#traffic.turns.begin(partUnits) || this.#task) return;
    this.#native.pause();
    this.#defer(requestUnits, () => {
      this.#task = undefined;
      this.#native.resume();
    });
  }

  #keep(part: ArrayBuffer, isLastPart: boolean): BodyRefusal | undefined {
    const request = this.#request;
    if (this.#isTooLong((this.#body?.length ?? 0) + part.byteLength)) return 'too_large';
    if (isLastPart && !this.#body) {
      request.body = Buffer.from(new Uint8Array(part));
      return undefined;
    }
    this.#body ??= this.#newBody();
    if (!this.#body.add(part)) return 'no_room';
    if (isLastPart) request.body = this.#body.bytes;
    return undefined;
  }

  /** Most bodies are short, and need no look at the path. */
  #isTooLong(bytes: number): boolean {
    const { bodyBytesMax, bodyBytesMaxOf } = this.#traffic;
    return bytes > bodyBytesMax && bytes > bodyBytesMaxOf(this.#request.path);
  }

  #newBody(): ArrivingBody {
    const { bodyBytesMaxOf, budget, workspaceOf } = this.#traffic;
    const holder = workspaceOf(this.#request.authorization) ?? unknownCallers;
    return new ArrivingBody(budget, holder, this.#announcedBytes || bodyBytesMaxOf(this.#request.path));
  }

  #refuseBody(reason: BodyRefusal) {
    this.#body?.release();
    this.#request.body = reason;
    this.#pauseAndHandle();
  }

  /** Stops reading the connection, and handles the request as its last one. */
  #pauseAndHandle() {
    this.#isLast = true;
    this.#native.pause();
    // Not now. If the connection is closed within its own callback, uWebSockets.js still parses the bytes that it has
    // buffered as another request. Later, such a request only closes the connection.
    this.#wait();
  }

  /** Handles the request at the end of a turn. Its body needs memory until then, even if it arrived in one part. */
  #wait() {
    const { body } = this.#request;
    if (Buffer.isBuffer(body) && !this.#body) {
      this.#body = this.#newBody();
      if (!this.#body.hold(body)) {
        this.#refuseBody('no_room');
        return;
      }
    }
    this.#phase = 'waiting';
    this.#defer(unitsOf(this.#request), () => this.#handle(false));
  }

  /** Callers without an accepted root key are told apart by their addresses. */
  #defer(units: number, run: () => void) {
    const { turns, workspaceOf } = this.#traffic;
    const address = () => Buffer.from(this.#native.getRemoteAddress()).toString('latin1');
    this.#cancel();
    this.#task = turns.defer(workspaceOf(this.#request.authorization) ?? address(), units, run);
  }

  #cancel() {
    if (this.#task) this.#task.run = undefined;
    this.#task = undefined;
  }

  /** `isCorked` in a callback of uWebSockets.js, which sends what is written when the callback returns. */
  #handle(isCorked: boolean) {
    this.#phase = 'handling';
    // A long body needs its memory until it is handled.
    if (this.#request.body.length <= this.#traffic.bodyBytesMax) this.#body?.release();
    if (this.#refusal) {
      this.#respond(errorResponse(this.#refusal, this.#request));
      return;
    }
    const respondRejected = (cause: unknown) => {
      console.error(`${this.#request.requestId}: the handler rejected, which is a bug`, cause);
      this.#respond(errorResponse(internalError(cause), this.#request));
    };
    try {
      const response = this.#handler(this.#request);
      if (response instanceof Promise) response.then((resolved) => this.#respond(resolved), respondRejected);
      else this.#respond(response, isCorked);
    } catch (cause) {
      respondRejected(cause);
    }
  }

  #respond(response: Response, isCorked = false) {
    const request = this.#request;
    const native = this.#native;
    const { isDraining, turns } = this.#traffic;
    turns.spend(unitsToWrite(response));
    if (this.#phase === 'abandoned') {
      response.stream?.stop();
      this.#finish();
    } else if (response.stream) {
      this.#phase = 'sending';
      this.#stream(response, response.stream);
    } else if (this.#isLast && response.body !== '') {
      // Closes the connection when it is sent, which is an abort and finishes the exchange.
      this.#phase = 'sending';
      sendLast(native, request, response, (sendFrom) => this.#sendOn(sendFrom));
    } else if (response.bytes && request.method !== 'HEAD') {
      this.#phase = 'sending';
      const sendOn: SendOn = (sendFrom) => this.#sendOn(sendFrom);
      native.cork(() => send(native, request, response, response.bytes!, isDraining, () => this.#finish(), sendOn));
    } else {
      const closes = this.#isLast || isDraining;
      if (isCorked) write(native, request, response, closes);
      else native.cork(() => write(native, request, response, closes));
      this.#finish();
    }
  }

  #sendOn(sendFrom: SendFrom) {
    const native = this.#native;
    native.onWritable((offset) => {
      if (this.#traffic.turns.begin(requestUnits)) return sendFrom(offset);
      this.#defer(requestUnits, () => void sendFrom(native.getWriteOffset()));
      return true;
    });
  }
}

/** Sends the rest of a response from this byte on. Returns whether the connection accepted it. */
type SendFrom = (offset: number) => boolean;
/** Calls it whenever the connection accepts more. */
type SendOn = (sendFrom: SendFrom) => void;

/** The work of a request for `Turns`. Its body is parsed by 64 bytes a unit. */
const unitsOf = ({ body }: Request): number => requestUnits + (typeof body === 'string' ? 0 : body.length >>> 6);
/**
 * A request that is handled from its headers waits this long for its body to begin: nginx announces a body to a check
 * and does not send it. Other clients send it in the next packet, which Nagle's algorithm may delay by 40 ms.
 */
const bodyWaitMs = 100;
/** The work of receiving a part of a body. */
const partUnits = 2;
/** The work of writing a long response: 2 KB a unit. */
const unitsToWrite = ({ body }: Response): number => body.length >>> 11;

/**
 * For TLS 1.2: an ephemeral key for each connection, so that a stolen private key decrypts no recorded connection, and
 * authenticated encryption. All ciphers of TLS 1.3 have both, and the list does not apply to them.
 */
const ciphers = ['AES128-GCM-SHA256', 'AES256-GCM-SHA384', 'CHACHA20-POLY1305']
  .flatMap((cipher) => [`ECDHE-ECDSA-${cipher}`, `ECDHE-RSA-${cipher}`])
  .join(':');

/** Checks the files first, because uWebSockets.js reports no errors in them. */
function secureApp({ certFile, keyFile, passphrase }: Tls) {
  const secret = passphrase === '' ? {} : { passphrase };
  const certificate = readPem('TLS_CERT_FILE', certFile, (pem) => new X509Certificate(pem));
  const key = readPem('TLS_KEY_FILE', keyFile, (pem) => {
    if (passphrase === '' && pem.includes('ENCRYPTED'))
      throw new Error('it is encrypted, and TLS_KEY_PASSPHRASE is empty');
    try {
      return createPrivateKey({ key: pem, ...secret });
    } catch (cause) {
      // One wrong passphrase in 200 gives bytes that are padded as a key, and then are none: ERR_OSSL_UNSUPPORTED.
      if (!pem.includes('ENCRYPTED')) throw cause;
      throw new Error('TLS_KEY_PASSPHRASE does not decrypt it');
    }
  });
  if (!certificate.checkPrivateKey(key)) {
    throw new Error('The key in TLS_KEY_FILE does not match the certificate in TLS_CERT_FILE.');
  }
  try {
    createSecureContext({ cert: readFileSync(certFile), key: readFileSync(keyFile), ...secret });
  } catch (cause) {
    throw new Error(`Cannot use TLS_CERT_FILE=${certFile} with TLS_KEY_FILE: ${(cause as Error).message}`, { cause });
  }
  return uws().SSLApp({ cert_file_name: certFile, key_file_name: keyFile, ssl_ciphers: ciphers, ...secret });
}

function readPem<T>(variable: string, file: string, read: (pem: string) => T): T {
  try {
    const pem = readFileSync(file, 'utf8');
    // uWebSockets.js reads the file itself, and does not accept it.
    if (pem !== withoutMark(pem)) throw new Error(`${file} begins with a byte order mark. Save it without one.`);
    return read(pem);
  } catch (cause) {
    throw new Error(`Cannot use the file in ${variable}: ${(cause as Error).message}`, { cause });
  }
}

// ListenOptions of uWebSockets.js, an enum without values at run time.
const portShared = 0;
const portExclusive = 1;

/** A stream whose connection has not accepted this many bytes is closed: its reader is too slow. */
const streamBytesMax = 262_144;

const empty = Buffer.alloc(0);
const statusLines = new Map(
  Object.entries(STATUS_CODES).map(([status, text]) => [Number(status), `${status} ${text}`]),
);

// Written by `takeHeader` and read by `readHead` and `Exchange` in the same callback, so that the headers are read in
// one pass and no closure is made per request. `getHeader` returns the first of two headers and does not show that
// there is a second.
let authorization: string | undefined;
let contentType: string | undefined;
let contentLength: string | undefined;
let transferEncoding: string | undefined;
let accept = '';
let contentEncoding: string | undefined;
let acceptEncoding: string | undefined;
let ifNoneMatch: string | undefined;
/** A header is repeated that decides where the request ends. */
let isLengthRepeated = false;
/** A header is repeated that the pipeline reads. */
let isMeaningRepeated = false;
let addressHeader = '';
let forwardedFor: string | undefined;
/** The size of the headers, with `: ` and the end of each line. */
let headBytes = 0;

function takeHeader(name: string, value: string) {
  headBytes += name.length + value.length + 4;
  switch (name) {
    case 'authorization':
      isMeaningRepeated ||= authorization !== undefined;
      authorization = value;
      break;
    case 'content-type':
      isMeaningRepeated ||= contentType !== undefined;
      contentType = value;
      break;
    case 'content-length':
      isLengthRepeated ||= contentLength !== undefined;
      contentLength = value;
      break;
    case 'transfer-encoding':
      isLengthRepeated ||= transferEncoding !== undefined;
      transferEncoding = value;
      break;
    case 'accept':
      accept = accept === '' ? value : `${accept}, ${value}`;
      break;
    case 'content-encoding':
      contentEncoding = contentEncoding === undefined ? value : `${contentEncoding}, ${value}`;
      break;
    case 'accept-encoding':
      acceptEncoding = acceptEncoding === undefined ? value : `${acceptEncoding}, ${value}`;
      break;
    case 'if-none-match':
      ifNoneMatch = ifNoneMatch === undefined ? value : `${ifNoneMatch}, ${value}`;
      break;
    default:
      if (name === addressHeader) forwardedFor = forwardedFor ? `${forwardedFor}, ${value}` : value;
  }
}

/** Returns the request without its body. */
function readHead(head: HttpRequest, requestId: string, peer?: HttpResponse, header = ''): Request {
  authorization = contentType = contentLength = transferEncoding = undefined;
  contentEncoding = acceptEncoding = ifNoneMatch = undefined;
  addressHeader = header;
  forwardedFor = header === '' ? undefined : '';
  accept = '';
  headBytes = 0;
  isLengthRepeated = isMeaningRepeated = false;
  head.forEach(takeHeader);

  return {
    method: head.getCaseSensitiveMethod(),
    path: head.getUrl(),
    hasQuery: Boolean(head.getQuery()),
    authorization: authorization ?? '',
    contentType: contentType ?? '',
    contentEncoding,
    accept,
    acceptEncoding,
    ifNoneMatch,
    requestId,
    body: empty,
    peer: peer!,
    forwardedFor,
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

/**
 * Returns the announced length of the body: 0 if it has none or is chunked, undefined if the headers are ambiguous. A
 * handler that gets all headers decides itself what a repeated one means.
 */
function bodyBytes(getsAllHeaders: boolean): number | undefined {
  if (isLengthRepeated || (isMeaningRepeated && !getsAllHeaders)) return undefined;
  if (transferEncoding !== undefined) {
    return contentLength === undefined && transferEncoding.toLowerCase() === 'chunked' ? 0 : undefined;
  }
  if (contentLength === undefined) return 0;
  return numberOf(contentLength);
}

/**
 * The number of at most fifteen digits, undefined for any other text. Each request has one, and a regular expression
 * takes longer.
 */
function numberOf(digits: string): number | undefined {
  const { length } = digits;
  if (length === 0 || length > 15) return undefined;
  let number = 0;
  for (let at = 0; at < length; at++) {
    const digit = digits.charCodeAt(at) - 48;
    if (digit < 0 || digit > 9) return undefined;
    number = 10 * number + digit;
  }
  return number;
}

// It is ambiguous where such a request ends, so its connection is not read any further.
const malformedRequest = () =>
  new ApiError(
    'malformed_request',
    'Content-Length, Authorization and Content-Type must not be repeated. Transfer-Encoding must be `chunked`, without Content-Length.',
  );

const headersTooLarge = (bytesMax: number) =>
  new ApiError(
    'headers_too_large',
    `The headers of the request have more than ${bytesMax} bytes (HEADERS_LIMIT_BYTES). Most often these are cookies.`,
  );

/**
 * uWebSockets.js closes a connection that is idle for 8 to 12 seconds, and has no setting for it. A client that obeys
 * Keep-Alive stops using it a second before, the time that its next request may take to arrive.
 */
const keptOpen = '\r\nKeep-Alive: timeout=7';
/**
 * The name of X-Request-Id with the headers before it, by the content type, of which there are few: a header of its own
 * costs each response 0.1 microseconds, and this a fifth of that. One map while the connection stays open, and one for
 * its last response.
 */
const headerNames = [new Map<string, string>(), new Map<string, string>()] as const;

function headerNameOf(contentType: string, isLast: boolean): string {
  const names = headerNames[isLast ? 1 : 0];
  let name = names.get(contentType);
  if (name === undefined) {
    name = `Content-Type: ${contentType}${isLast ? '' : keptOpen}\r\nX-Request-Id`;
    names.set(contentType, name);
  }
  return name;
}

function writeHead(native: HttpResponse, request: Request, response: Response, isLast: boolean) {
  // uWebSockets.js writes 200 by default.
  if (response.status !== 200) native.writeStatus(statusLines.get(response.status) ?? String(response.status));
  native.writeHeader(headerNameOf(response.contentType, isLast), request.requestId);
  for (const [name, value] of response.headers) native.writeHeader(name, value);
}

/** Writes a whole response; for HEAD, and of a 304, its headers only. */
function write(native: HttpResponse, request: Request, response: Response, closeConnection: boolean) {
  writeHead(native, request, response, closeConnection);
  if (request.method !== 'HEAD' && response.status !== 304) native.end(response.body, closeConnection);
  // `endWithoutBody` cannot close: with two arguments, or a length, it waits for that many bytes.
  else if (closeConnection) native.end('', true);
  else {
    // The Content-Length of a 304 would be that of the document that the client has.
    if (response.status !== 304) native.writeHeader('Content-Length', String(lengthOf(response)));
    native.endWithoutBody();
  }
}

const lengthOf = ({ bytes, body }: Response) => bytes?.length ?? Buffer.byteLength(body);

/** Writes what the connection accepts now, and the rest as it accepts more. */
function send(
  native: HttpResponse,
  request: Request,
  response: Response,
  bytes: Buffer,
  closeConnection: boolean,
  finished: () => void,
  sendOn: SendOn,
) {
  let isDone = false;
  const sendFrom: SendFrom = (offset) => {
    const [ok, done] = native.tryEnd(bytes.subarray(offset), bytes.length);
    isDone = done;
    if (done) finished();
    return ok;
  };
  writeHead(native, request, response, closeConnection);
  // Asks the client to close the connection: uWebSockets.js cannot close it after a response in several parts.
  if (closeConnection) native.writeHeader('Connection', 'close');
  if (!sendFrom(0) && !isDone) sendOn(sendFrom);
}

/**
 * Writes a response and closes the connection when the kernel has all of it. `end` could close it too, but while a slow
 * reader's response is still in memory, it reads and serves further requests. So uWebSockets.js is given a total of one
 * byte more than there is, and takes the response for unfinished; the client gets the true Content-Length. A request
 * that is read meanwhile closes the connection.
 */
function sendLast(native: HttpResponse, request: Request, response: Response, sendOn: SendOn) {
  const length = lengthOf(response);
  const bytes = request.method === 'HEAD' ? empty : (response.bytes ?? Buffer.from(response.body));
  const sendFrom = (offset: number) => native.tryEnd(bytes.subarray(offset), length + 1)[0];
  native.cork(() => {
    writeHead(native, request, response, true);
    native.writeHeader('Connection', 'close');
    // The first call writes Content-Length.
    native.tryEnd('', length);
    // Bytes accepted in a cork may still be unsent. When the last byte is accepted outside of it, all are sent.
    if (bytes.length > 1) native.tryEnd(bytes.subarray(0, -1), length + 1);
  });
  let isSent = bytes.length === 0;
  if (native.getWriteOffset() === bytes.length - 1) {
    native.cork(() => {
      isSent = sendFrom(bytes.length - 1);
    });
  }
  if (isSent) {
    native.close();
    return;
  }
  sendOn((offset) => {
    const ok = sendFrom(offset);
    if (ok) native.close();
    return ok;
  });
}
