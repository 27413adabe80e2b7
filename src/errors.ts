import { type RecordName, recordKinds, records, type UniqueRecord } from './domain/records.ts';
import { type OutcomeErrorCode, outcomeErrors } from './domain/verification.ts';

/**
 * Every error a caller can receive. A code determines its status. Codes are public and stable: `type` in an error
 * response ends in one (docs/contract.md §2). Details are sentences for people and may change.
 */

type Entry = readonly [status: number, title: string, meaning: string];

/** The errors of the gateway check. */
const ofOutcomes = Object.fromEntries(
  Object.values(outcomeErrors).map(({ code, status, title, meaning }) => [code, [status, title, meaning]]),
) as unknown as Record<OutcomeErrorCode, Entry>;

const articleOf = (noun: string) => (/^[aeiou]/i.test(noun) ? 'an' : 'a');
const titleOf = (noun: string) => noun[0]!.toUpperCase() + noun.slice(1);
const notFoundErrors = Object.fromEntries(
  recordKinds.map(([kind, { noun, notFound }]) => [
    `${kind}_not_found`,
    [
      404,
      `${titleOf(noun)} not found`,
      notFound ?? `The ${noun} is unknown, deleted, or belongs to another workspace.`,
    ],
  ]),
) as unknown as Record<`${RecordName}_not_found`, Entry>;
const alreadyExistsErrors = Object.fromEntries(
  recordKinds
    .filter(([, { unique }]) => unique !== undefined)
    .map(([kind, { noun, unique }]) => [
      `${kind}_already_exists`,
      [409, `${titleOf(noun)} already exists`, `${titleOf(articleOf(noun))} ${noun} with this ${unique} exists.`],
    ]),
) as unknown as Record<`${UniqueRecord}_already_exists`, Entry>;

const catalogue = {
  invalid_input: [
    400,
    'Invalid input',
    'The body is not valid JSON, or a field violates a rule of the operation. `errors` lists the fields.',
  ],
  permissions_query_syntax: [
    400,
    'Permission query syntax',
    'The permission query has a syntax error. `detail` gives its position, counted from 0.',
  ],
  malformed_request: [
    400,
    'Malformed request',
    'The HTTP request is ambiguous, for example because it repeats a header that must be unique. The connection is closed.',
  ],
  unauthorized: [401, 'Unauthorized', 'The Authorization header is missing or malformed, or the root key is unknown.'],
  ...ofOutcomes,
  root_key_disabled: [403, 'Root key disabled', 'The root key is disabled.'],
  root_key_expired: [403, 'Root key expired', 'The root key has expired.'],
  insufficient_permissions: [
    403,
    'Insufficient permissions',
    'The root key lacks a permission that this call needs. `detail` names it.',
  ],
  too_many_records: [
    403,
    'Too many records',
    'The workspace has reached the maximum number of records (keys, identities, namespaces, …), the setting RECORDS_MAX. `detail` gives the number.',
  ],
  ...notFoundErrors,
  hold_not_found: [
    404,
    'Hold not found',
    'The hold is unknown, was forgotten after its end, or its key is deleted or belongs to another workspace.',
  ],
  route_not_found: [
    404,
    'Route not found',
    'No operation or page has this path. Operations are called as POST /v2/<service>.<procedure>.',
  ],
  method_not_allowed: [
    405,
    'Method not allowed',
    'The path does not accept this method. The Allow header lists the accepted ones.',
  ],
  ...alreadyExistsErrors,
  conflict: [
    409,
    'Conflict',
    'A hold was settled or made with other amounts before, or has ended. `detail` says which.',
  ],
  precondition_failed: [
    412,
    'Precondition failed',
    'A precondition of the call is not met: for example, it names a limit that neither the key nor its identity has.',
  ],
  body_too_large: [413, 'Body too large', 'The request body is longer than this server accepts.'],
  unsupported_media_type: [
    415,
    'Unsupported media type',
    'The request body must be application/json, and not be compressed.',
  ],
  too_many_requests: [
    429,
    'Too many requests',
    'Too many requests of the workspace run or wait. Nothing was done; retry after the seconds in Retry-After, and send fewer at a time.',
  ],
  headers_too_large: [
    431,
    'Headers too large',
    'The headers of the request are larger than this server accepts (HEADERS_LIMIT_BYTES). The connection is closed. Headers of more than twice as much, or more than 98 of them, get a page of the HTTP parser instead of this error.',
  ],
  gateway_misconfigured: [
    500,
    'Gateway misconfigured',
    'The gateway check has no root key, or its root key is unknown, disabled, expired or not allowed to verify keys. This is a configuration error of the gateway; the API key is not at fault.',
  ],
  internal: [500, 'Internal error', 'The server failed unexpectedly. Its log has the cause under this request id.'],
  store_unavailable: [
    503,
    'Store unavailable',
    'Redis is unreachable or did not reply in time, or the server is overloaded. No change was made in part; retry after the seconds in Retry-After.',
  ],
  store_full: [
    503,
    'Store full',
    'Redis is reached and refuses writes, because its memory (maxmemory) or its disk is full; `detail` names which. Nothing was changed. Reads are served. The operator must make room: docs/running.md.',
  ],
  shutting_down: [
    503,
    'Shutting down',
    'The server is shutting down. `/health/ready` reports this so that load balancers stop sending requests.',
  ],
} as const satisfies Record<string, Entry>;

export type ErrorCode = keyof typeof catalogue;

/**
 * One invalid field: its location (`body.credits.refill.interval`), what is wrong with it, and how to fix it if known.
 */
export interface FieldError {
  location: string;
  message: string;
  fix?: string;
}

/** For the error pages and the OpenAPI document, by status. */
export const errorCatalogue = (Object.keys(catalogue) as ErrorCode[])
  .map((code) => {
    const [status, title, meaning]: Entry = catalogue[code];
    return { code, status, title, meaning };
  })
  .sort((one, other) => one.status - other.status);

/**
 * An error response. `detail` is sent to the caller, `cause` only to the log. It has no stack: capturing one costs as
 * much as verifying a key, and a flood of guessed keys must stay cheap.
 */
export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly fields: readonly FieldError[];
  #text: string | undefined;

  constructor(code: ErrorCode, detail: string, options: { fields?: readonly FieldError[]; cause?: unknown } = {}) {
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(detail, options.cause === undefined ? undefined : { cause: options.cause });
    Error.stackTraceLimit = stackTraceLimit;
    this.code = code;
    this.fields = options.fields ?? [];
  }

  get status(): number {
    return catalogue[this.code][0];
  }

  /** The `error` member of the response. */
  toBody(): { title: string; detail: string; status: number; type: string; errors: readonly FieldError[] } {
    const [status, title] = catalogue[this.code];
    return { title, detail: this.message, status, type: `/errors/${this.code}`, errors: this.fields };
  }

  /** `toBody()` as JSON. */
  get text(): string {
    this.#text ??= JSON.stringify(this.toBody());
    return this.#text;
  }
}

/** `name` is what the caller sent, unless that may be a secret. */
export const notFound = (kind: RecordName, name?: string): ApiError => {
  const { noun } = records[kind];
  return new ApiError(
    `${kind}_not_found`,
    name === undefined ? `There is no such ${noun}.` : `There is no ${noun} ${JSON.stringify(name)}.`,
  );
};

/** A record that may not exist. Throws if it does not. */
export function existing<Found>(
  found: Found | undefined | false,
  kind: RecordName,
  name?: string,
): Exclude<Found, false | undefined> {
  if (found === undefined || found === false) throw notFound(kind, name);
  return found as Exclude<Found, false | undefined>;
}

export function alreadyExists(kind: UniqueRecord, name: string): ApiError {
  const { noun } = records[kind];
  return new ApiError(`${kind}_already_exists`, `There is ${articleOf(noun)} ${noun} ${JSON.stringify(name)}.`);
}

/** Created once: a flood of calls with a bad root key creates no errors. */
export const rootKeyRefusals = {
  unauthorized: new ApiError('unauthorized', 'The root key is unknown.'),
  root_key_disabled: new ApiError('root_key_disabled', 'The root key is disabled.'),
  root_key_expired: new ApiError('root_key_expired', 'The root key has expired.'),
};
