import { ApiError } from '../errors.ts';
import type { Request, Response } from './message.ts';

/** An error as the answer that carries it: docs/contract.md §2's envelope, and the headers that belong to the status. */
export function errorResponse(
  error: ApiError,
  request: Pick<Request, 'requestId' | 'accept'>,
  options: {
    /** Answer `application/problem+json` whatever `Accept` says, for operations whose SDK types errors only that way. */
    problemJson?: boolean;
    /** The methods a path knows: the `Allow` header of a 405. */
    allow?: string;
  } = {},
): Response {
  const { status } = error;
  const problemJson =
    options.problemJson === true || status === 429 || request.accept.toLowerCase().includes('application/problem+json');

  const headers: [string, string][] = [];
  if (options.allow !== undefined) headers.push(['Allow', options.allow]);
  if (status === 503) headers.push(['Retry-After', '1']);

  return {
    status,
    contentType: problemJson ? 'application/problem+json' : 'application/json',
    headers,
    body: `{"meta":{"requestId":"${request.requestId}"},"error":${error.text}}`,
  };
}

/** What every bug of ours looks like from outside; the cause goes to the log. */
export const internalError = (cause: unknown) =>
  new ApiError('internal', 'Something went wrong on our side. The log has the cause under this request id.', { cause });

/** What the log says of an error: an unforeseen one is told with its stack, a store that is away in a line. */
export function causeOf(error: ApiError): string {
  const cause = error.cause instanceof Error ? error.cause : error;
  return error.code === 'internal' ? (cause.stack ?? cause.message) : cause.message;
}
