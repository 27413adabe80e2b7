// The `type` and `title` that Unkey's server has for the errors that exist there, for programs that compare them (the
// setting ERROR_TYPES). Other codes keep those of Tollgate.

import { STATUS_CODES } from 'node:http';

/** The path after `https://unkey.com/docs/errors/`. */
const paths: Record<string, string> = {
  invalid_input: 'unkey/application/invalid_input',
  permissions_query_syntax: 'user/bad_request/permissions_query_syntax_error',
  unauthorized: 'unkey/authentication/key_not_found',
  root_key_disabled: 'unkey/authorization/key_disabled',
  root_key_expired: 'unkey/authorization/forbidden',
  insufficient_permissions: 'unkey/authorization/insufficient_permissions',
  api_not_found: 'unkey/data/api_not_found',
  key_not_found: 'unkey/data/key_not_found',
  identity_not_found: 'unkey/data/identity_not_found',
  permission_not_found: 'unkey/data/permission_not_found',
  role_not_found: 'unkey/data/role_not_found',
  namespace_not_found: 'unkey/data/ratelimit_namespace_not_found',
  override_not_found: 'unkey/data/ratelimit_override_not_found',
  identity_already_exists: 'unkey/data/identity_already_exists',
  permission_already_exists: 'unkey/data/permission_already_exists',
  role_already_exists: 'unkey/data/role_already_exists',
  precondition_failed: 'unkey/application/precondition_failed',
  body_too_large: 'user/bad_request/request_body_too_large',
  too_many_requests: 'user/too_many_requests/workspace_rate_limited',
  internal: 'unkey/application/unexpected_error',
  store_unavailable: 'unkey/application/service_unavailable',
  store_full: 'unkey/application/service_unavailable',
};

/** Unkey's title of a status: the standard one, except for 409. */
const titleOf = (status: number): string | undefined =>
  status === 409 ? 'Conflicting Resource' : STATUS_CODES[status];

/** The body of an error with Unkey's `type` and `title`; unchanged for a code that Unkey does not have. */
export function asUnkey<Body extends { type: string; title: string; status: number }>(code: string, body: Body): Body {
  const path = paths[code];
  if (path === undefined) return body;
  return { ...body, type: `https://unkey.com/docs/errors/${path}`, title: titleOf(body.status) ?? body.title };
}
