import { METHODS } from 'node:http';
import type { Streaming } from '../operation.ts';

/** The methods of HTTP. Proxies forward no others, so bytes that begin with any other word are not a request. */
export const knownMethods: ReadonlySet<string> = new Set(METHODS);

/** Why a body was not read to its end: it is too long, or the memory for arriving bodies is full. */
export type BodyRefusal = 'too_large' | 'no_room';

/** A request as plain data: http/server.ts copies it from uWebSockets.js. */
export interface Request {
  method: string;
  /** Without the query string. */
  path: string;
  /** Whether the URL has a query string. */
  hasQuery: boolean;
  authorization: string;
  contentType: string;
  accept: string;
  /** The values of these headers; undefined without the header. */
  contentEncoding?: string | undefined;
  acceptEncoding?: string | undefined;
  ifNoneMatch?: string | undefined;
  /** `req_…`, made by the adapter. */
  requestId: string;
  /**
   * The other side of the connection. Its address is read only for changes, and only before the handler first waits.
   */
  peer?: { getRemoteAddressAsText(): ArrayBuffer };
  /** The value of the header that the setting CLIENT_ADDRESS_HEADER names; undefined without the setting. */
  forwardedFor?: string | undefined;
  /** The whole body, or the reason why it was not read. */
  body: Buffer | BodyRefusal;
}

/** GET, or HEAD, which load balancers often use. */
export const isReading = ({ method }: Request): boolean => method === 'GET' || method === 'HEAD';

/** A request that is handled from its headers; the body is discarded. */
export interface HeadRequest extends Request {
  /** The values of every header in order, by its name in lower case. */
  headers: ReadonlyMap<string, readonly string[]>;
}

/** A response as plain data. */
export interface Response {
  status: number;
  contentType: string;
  /** In addition to Content-Type and X-Request-Id. */
  headers: readonly (readonly [name: string, value: string])[];
  body: string;
  /**
   * The bytes that are sent, if they are long and constant: those of `body`, or compressed ones. Slow readers then
   * share them.
   */
  bytes?: Buffer;
  /** The body, if it has no end. Whoever gets the response calls `start` or `stop`. */
  stream?: Streaming;
}

export const jsonType = 'application/json';
export const notToBeStored = ['Cache-Control', 'no-store'] as const;
const noHeaders: Response['headers'] = [];

/** A response in the envelope. `data` is text, which may go on with further members of the response. */
export const succeeded = ({ requestId }: Request, data: string): Response => ({
  status: 200,
  contentType: jsonType,
  headers: noHeaders,
  body: `{"meta":{"requestId":"${requestId}"},"data":${data}}`,
});

/**
 * Handles a request. Never rejects. Returns no promise when it has the response immediately, which saves microseconds.
 */
export type Handler = (request: Request) => Response | Promise<Response>;

/** Handles a request from its headers. Never rejects. */
export type HeaderHandler = (request: HeadRequest) => Response | Promise<Response>;
