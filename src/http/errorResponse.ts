import { asUnkey } from '../domain/unkeyErrors.ts';
import { ApiError } from '../errors.ts';
import type { Request, Response } from './message.ts';

/** The response that carries an error: the body of docs/contract.md §2, and the headers that belong to its status. */
export function errorResponse(
  error: ApiError,
  request: Pick<Request, 'requestId' | 'accept'>,
  options: {
    /** Use `application/problem+json` regardless of `Accept`, for operations whose SDK types errors only that way. */
    problemJson?: boolean;
    /** Use the `type` and `title` that Unkey has for this error. */
    unkeyTypes?: boolean;
    /** The methods the path accepts: the `Allow` header of a 405. */
    allow?: string;
    /** The `WWW-Authenticate` header of a 401, if not `Bearer`. */
    challenge?: string;
  } = {},
): Response {
  const { status } = error;
  const problemJson =
    options.problemJson === true || status === 429 || request.accept.toLowerCase().includes('application/problem+json');

  const headers: [string, string][] = [];
  if (options.allow !== undefined) headers.push(['Allow', options.allow]);
  if (status === 401) headers.push(['WWW-Authenticate', options.challenge ?? 'Bearer']);
  if (status === 503 || error.code === 'too_many_requests') headers.push(['Retry-After', '1']);

  const text = options.unkeyTypes ? unkeyText(error) : error.text;
  const envelope = `"meta":{"requestId":"${request.requestId}"},"error":${text}`;
  return {
    status,
    contentType: problemJson ? 'application/problem+json' : 'application/json',
    headers,
    // By RFC 9457 the members of `error` are those of the document.
    body: problemJson ? `{${text.slice(1, -1)},${envelope}}` : `{${envelope}}`,
  };
}

const unkeyText = (error: ApiError) => JSON.stringify(asUnkey(error.code, error.toBody()));

/** The response to any unexpected error, so that it reveals nothing; the cause goes to the log. */
export const internalError = (cause: unknown) =>
  new ApiError('internal', 'The server failed unexpectedly. Its log has the cause under this request id.', { cause });

/** The cause as it is logged: with its stack for an unexpected error, else in one line. */
export function causeOf(error: ApiError): string {
  const cause = error.cause instanceof Error ? error.cause : error;
  return error.code === 'internal' ? (cause.stack ?? cause.message) : cause.message;
}
