import { type RecordName, recordKinds, records, type UniqueRecord } from './domain/records.ts';

/**
 * Every error a caller can receive. A code determines its status. Codes are public and stable: `type` in an error
 * response ends in one (docs/contract.md §2). Details are sentences for people and may change.
 */

const articleOf = (noun: string) => (/^[aeiou]/i.test(noun) ? 'an' : 'a');
const capitalised = (text: string) => text[0]!.toUpperCase() + text.slice(1);

// No part of the types of `meanings`: their codes are derived from the kinds of records.
const notFoundErrors: object = Object.fromEntries(
  recordKinds.map(([kind, { noun, notFound }]) => [
    `${kind}_not_found`,
    notFound ?? `The ${noun} is unknown, deleted, or belongs to another workspace.`,
  ]),
);
const alreadyExistsErrors: object = Object.fromEntries(
  recordKinds
    .filter(([, { unique }]) => unique !== undefined)
    .map(([kind, { noun, unique }]) => [
      `${kind}_already_exists`,
      `${capitalised(articleOf(noun))} ${noun} with this ${unique} exists.`,
    ]),
);

/** What each code means, by status. Codes of the gateway check are those of `outcomeErrors`. */
const meanings = {
  400: {
    invalid_input:
      'The body is not valid JSON, or a field violates a rule of the operation. `errors` lists the fields.',
    permissions_query_syntax: 'The permission query has a syntax error. `detail` gives its position, counted from 0.',
    malformed_request:
      'The HTTP request is ambiguous, for example because it repeats a header that must be unique. The connection is closed.',
  },
  401: {
    unauthorized: 'The Authorization header is missing or malformed, or the root key is unknown.',
    invalid_key:
      'Gateway check and /v2/me: the key header is missing or the key is unknown. /v2/me: the key is disabled or has expired.',
  },
  403: {
    key_disabled: 'Gateway check: the key is disabled.',
    key_expired: 'Gateway check: the key has expired.',
    key_lacks_permission: 'Gateway check: the key does not satisfy the permission query.',
    ip_not_allowed: 'Gateway check and /v2/me: the key may not be used from this IP address.',
    root_key_disabled: 'The root key is disabled.',
    root_key_expired: 'The root key has expired.',
    insufficient_permissions: 'The root key lacks a permission that this call needs. `detail` names it.',
    too_many_records:
      'The workspace has reached the maximum number of records (keys, identities, namespaces, …), the setting RECORDS_MAX. `detail` gives the number.',
  },
  404: {
    ...notFoundErrors,
    hold_not_found:
      'The hold is unknown, was forgotten after its end, or its key is deleted or belongs to another workspace.',
    route_not_found: 'No operation or page has this path. Operations are called as POST /v2/<service>.<procedure>.',
  },
  405: {
    method_not_allowed: 'The path does not accept this method. The Allow header lists the accepted ones.',
  },
  409: {
    ...alreadyExistsErrors,
    conflict: 'A hold was settled or made with other amounts before, or has ended. `detail` says which.',
  },
  412: {
    precondition_failed:
      'A precondition of the call is not met: for example, it names a limit that neither the key nor its identity has.',
  },
  413: { body_too_large: 'The request body is longer than this server accepts.' },
  415: { unsupported_media_type: 'The request body must be application/json, and not be compressed.' },
  429: {
    rate_limited:
      'A rate limit of the key is exceeded. `Retry-After` gives the seconds to wait, and `RateLimit` names the limit.',
    usage_exceeded: 'The key has too few credits left. Retrying helps only after a refill.',
    too_many_requests:
      'Too many requests of the workspace run or wait, or a key was read too often (/v2/me). Nothing was done; retry after the seconds in Retry-After, and send fewer at a time.',
  },
  431: {
    headers_too_large:
      'The headers of the request are larger than this server accepts (HEADERS_LIMIT_BYTES). The connection is closed. Headers of more than twice as much, or more than 98 of them, get a page of the HTTP parser instead of this error.',
  },
  500: {
    gateway_misconfigured:
      'The gateway check has no root key, or its root key is unknown, disabled, expired or not allowed to verify keys. This is a configuration error of the gateway; the API key is not at fault.',
    internal: 'The server failed unexpectedly. Its log has the cause under this request id.',
  },
  503: {
    store_unavailable:
      'Redis is unreachable or did not reply in time, or the server is overloaded. No change was made in part; retry after the seconds in Retry-After.',
    store_full:
      'Redis is reached and refuses writes, because its memory (maxmemory) or its disk is full; `detail` names which. Nothing was changed. Reads are served. The operator must make room: docs/operate.md.',
    shutting_down:
      'The server is shutting down. `/health/ready` reports this so that load balancers stop sending requests.',
  },
} as const;

/** Titles other than the words of the code. */
const titles: Readonly<Record<string, string>> = {
  permissions_query_syntax: 'Permission query syntax',
  ip_not_allowed: 'IP address not allowed',
  api_not_found: 'API not found',
  internal: 'Internal error',
};

type Meanings = typeof meanings;
export type ErrorCode =
  | { [Status in keyof Meanings]: keyof Meanings[Status] }[keyof Meanings]
  | `${RecordName}_not_found`
  | `${UniqueRecord}_already_exists`;

/** For the error pages and the OpenAPI document, by status. */
export const errorCatalogue = Object.entries(meanings).flatMap(([status, ofStatus]) =>
  (Object.entries(ofStatus) as [ErrorCode, string][]).map(([code, meaning]) => {
    const title = titles[code] ?? capitalised(code.replaceAll('_', ' '));
    return { code, status: Number(status), title, meaning };
  }),
);

const catalogue = new Map(errorCatalogue.map((entry) => [entry.code, entry]));

/**
 * One invalid field: its location (`body.credits.refill.interval`), what is wrong with it, and how to fix it if known.
 */
export interface FieldError {
  location: string;
  message: string;
  fix?: string;
}

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
    return catalogue.get(this.code)!.status;
  }

  /** The `error` member of the response. */
  toBody(): { title: string; detail: string; status: number; type: string; errors: readonly FieldError[] } {
    const { status, title } = catalogue.get(this.code)!;
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
