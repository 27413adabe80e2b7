import { METHODS } from 'node:http';

/** The methods of HTTP. No other is passed on by a proxy: it is the beginning of something that is not a request. */
export const knownMethods: ReadonlySet<string> = new Set(METHODS);

/** Why a body was not read to its end: it is too long, or bodies that arrive slowly have taken the memory for them. */
export type BodyRefusal = 'too_large' | 'no_room';

/** A request as plain data: what http/server.ts copies out of uWebSockets.js, and what tests make by hand. */
export interface Request {
  method: string;
  /** Without the query string. */
  path: string;
  /** True when the URL carries a query string (operations take none). */
  hasQuery: boolean;
  authorization: string;
  contentType: string;
  accept: string;
  /** `req_…`, made by the adapter. */
  requestId: string;
  /** The whole body, or why it was not read. */
  body: Buffer | BodyRefusal;
}

/** Does it ask for a page? Load balancers often ask with HEAD, which is answered as GET is, without the body. */
export const isReading = ({ method }: Request): boolean => method === 'GET' || method === 'HEAD';

/** A request whose head says all: its body is read past and left empty. */
export interface HeadRequest extends Request {
  /** Every header by its name in lower case, with its values in the order they came. */
  headers: ReadonlyMap<string, readonly string[]>;
}

/** The answer as plain data. `body` is complete text, ready to be written. */
export interface Response {
  status: number;
  contentType: string;
  /** Beyond Content-Type and X-Request-Id, which every answer carries. */
  headers: readonly (readonly [name: string, value: string])[];
  body: string;
  /** `body` as bytes, where it is long and always the same: slow readers then share them. */
  bytes?: Buffer;
}

/** The life of a request behind one function; it never rejects. */
export type Answer = (request: Request) => Promise<Response>;

/** The same for requests whose head says all. */
export type AnswerHead = (request: HeadRequest) => Promise<Response>;
