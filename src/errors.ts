/**
 * Every error a caller can receive. The status belongs to the code, never to the place that throws. Codes are public
 * and stable (they end the `type` of docs/contract.md §2's envelope); details are sentences for people and may change.
 */
const catalogue = {
  invalid_input: [
    400,
    'Invalid input',
    'The request is not valid JSON, or a field breaks a rule of the operation. `errors` lists the fields.',
  ],
  permissions_query_syntax: [
    400,
    'Permission query syntax',
    'The `permissions` query of keys.verifyKey does not parse. `detail` gives the position, counted from 0.',
  ],
  malformed_request: [
    400,
    'Malformed request',
    'The HTTP request itself is ambiguous, as when a header that may come once comes twice. The connection is closed.',
  ],
  unauthorized: [401, 'Unauthorized', 'The Authorization header is missing or malformed, or the root key is unknown.'],
  invalid_key: [
    401,
    'Invalid key',
    'The gateway check found no key in the header it is to be in, or one that is unknown.',
  ],
  key_disabled: [403, 'Key disabled', 'The gateway check found the key disabled.'],
  key_expired: [403, 'Key expired', 'The gateway check found the key expired.'],
  key_lacks_permission: [
    403,
    'Key lacks permission',
    'The key does not fulfil the permission query of the gateway check.',
  ],
  root_key_disabled: [403, 'Root key disabled', 'The root key has been disabled.'],
  root_key_expired: [403, 'Root key expired', 'The root key has expired.'],
  insufficient_permissions: [
    403,
    'Insufficient permissions',
    'The root key lacks a permission that this call needs. `detail` names it.',
  ],
  too_many_records: [
    403,
    'Too many records',
    'The workspace has as many records (keys, identities, namespaces, …) as the operator allows with RECORDS_MAX. `detail` has the number.',
  ],
  api_not_found: [404, 'API not found', 'The API is unknown, deleted, or belongs to another workspace.'],
  key_not_found: [404, 'Key not found', 'The key is unknown, deleted, or belongs to another workspace.'],
  identity_not_found: [404, 'Identity not found', 'The identity is unknown, deleted, or belongs to another workspace.'],
  permission_not_found: [
    404,
    'Permission not found',
    'The permission is unknown, deleted, or belongs to another workspace.',
  ],
  role_not_found: [404, 'Role not found', 'The role is unknown, deleted, or belongs to another workspace.'],
  namespace_not_found: [
    404,
    'Namespace not found',
    'The rate-limit namespace is unknown or belongs to another workspace.',
  ],
  override_not_found: [404, 'Override not found', 'No override stands for exactly this identifier.'],
  root_key_not_found: [404, 'Root key not found', 'The root key is unknown, deleted, or belongs to another workspace.'],
  migration_not_found: [404, 'Migration not found', 'The migration is unknown.'],
  route_not_found: [
    404,
    'Route not found',
    'There is no such operation. Operations are called as POST /v2/<service>.<procedure>.',
  ],
  method_not_allowed: [
    405,
    'Method not allowed',
    'The path exists, but not for this method; the Allow header names the right one.',
  ],
  identity_already_exists: [409, 'Identity already exists', 'An identity with this externalId exists.'],
  permission_already_exists: [409, 'Permission already exists', 'A permission with this slug exists.'],
  role_already_exists: [409, 'Role already exists', 'A role with this name exists.'],
  precondition_failed: [
    412,
    'Precondition failed',
    'The call rests on something that is not so, such as a limit that neither the key nor its identity has.',
  ],
  body_too_large: [413, 'Body too large', 'The request body is longer than this server accepts.'],
  unsupported_media_type: [415, 'Unsupported media type', 'The request body must be application/json.'],
  rate_limited: [
    429,
    'Rate limited',
    'A limit of the key would be exceeded. `Retry-After` says in how many seconds to try again, and `RateLimit` which limit it is.',
  ],
  usage_exceeded: [429, 'Usage exceeded', 'The key has too few credits left. Waiting helps only if they are refilled.'],
  gateway_misconfigured: [
    500,
    'Gateway misconfigured',
    'The gateway check has no root key, or one that is unknown, disabled, expired or may not verify keys. It is for the operator to mend, not for the owner of the key.',
  ],
  internal: [500, 'Internal error', 'Something went wrong on our side; the log has the cause under this request id.'],
  store_unavailable: [
    503,
    'Store unavailable',
    'Redis cannot be reached or did not answer in time. Nothing was left half done; try again after Retry-After.',
  ],
  shutting_down: [
    503,
    'Shutting down',
    'The server is about to stop: `/health/ready` says so, for load balancers to turn away.',
  ],
} as const satisfies Record<string, readonly [status: number, title: string, meaning: string]>;

export type ErrorCode = keyof typeof catalogue;

/** One failed field: where (`body.credits.refill.interval`), what is wrong, and how to mend it where that is known. */
export interface FieldError {
  location: string;
  message: string;
  fix?: string;
}

/** The catalogue as data, for the error pages and the OpenAPI document. */
export const errorCatalogue = (Object.keys(catalogue) as ErrorCode[]).map((code) => {
  const [status, title, meaning] = catalogue[code];
  return { code, status: status as number, title: title as string, meaning: meaning as string };
});

export const isErrorCode = (word: string): word is ErrorCode => Object.hasOwn(catalogue, word);

/**
 * A refusal. `detail` reaches the caller, `cause` only the log. It has no stack: nobody reads where a refusal came from, and
 * to take one costs as much as to verify a key, which guesses at keys are not worth.
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

  /** The `error` member of the envelope. */
  toBody(): { title: string; detail: string; status: number; type: string; errors: readonly FieldError[] } {
    const [status, title] = catalogue[this.code];
    return { title, detail: this.message, status, type: `/errors/${this.code}`, errors: this.fields };
  }

  /** The same as JSON. */
  get text(): string {
    this.#text ??= JSON.stringify(this.toBody());
    return this.#text;
  }
}

/** What a caller is told of a root key that does not count: each made and printed once. */
export const rootKeyRefusals = {
  unauthorized: new ApiError('unauthorized', 'The root key is unknown.'),
  root_key_disabled: new ApiError('root_key_disabled', 'The root key is disabled.'),
  root_key_expired: new ApiError('root_key_expired', 'The root key has expired.'),
};
