// Node without packages: one fetch to Tollgate's gateway check, whose status and headers are the result.
//
//   TOLLGATE_URL=http://127.0.0.1:8080 TOLLGATE_ROOT_KEY=root_… node examples/middleware/fetch.mjs

import { createServer } from 'node:http';

const { TOLLGATE_URL, TOLLGATE_ROOT_KEY, PORT = '3000' } = process.env;
if (!TOLLGATE_URL || !TOLLGATE_ROOT_KEY) {
  console.error('Set TOLLGATE_URL to the address of your Tollgate, and TOLLGATE_ROOT_KEY to a root key of it.');
  process.exit(1);
}

// While keys cannot be checked: false responds with 503; true lets every request pass, with any key or none, unlimited,
// uncharged and without the headers of its owner. It applies when Tollgate or Redis is unavailable, not when the root key
// is wrong.
const failOpen = process.env.FAIL_OPEN === 'true';

// What every request needs, such as `docs.write`: a permission that the plan of a customer may give.
const permissions = process.env.PERMISSIONS;

const forTheClient = ['content-type', 'www-authenticate', 'retry-after', 'ratelimit', 'ratelimit-policy'];

/** Returns the result of the check as `{ status, headers, body }`: 200 lets the request pass, any other is sent to the client. */
async function check({ headers: { authorization = '' } }) {
  let unavailable = false;
  try {
    const response = await fetch(`${TOLLGATE_URL}/v2/gateway/check`, {
      // A longer key does not exist, and Tollgate's parser refuses headers of more than 16 KB.
      headers: {
        authorization: authorization.length > 600 ? '' : authorization,
        'x-tollgate-root-key': TOLLGATE_ROOT_KEY,
        ...(permissions && { 'x-tollgate-permissions': permissions }),
      },
      signal: AbortSignal.timeout(2000),
    });
    const { status, headers } = response;
    const body = await response.text();
    unavailable = [502, 503, 504].includes(status);
    if ([200, 401, 403, 429].includes(status) || (unavailable && !failOpen)) return { status, headers, body };
    console.error(`Tollgate: ${status} ${body}`);
  } catch (error) {
    console.error(`Tollgate: ${error.message}`);
    unavailable = true;
  }
  if (unavailable && failOpen) return { status: 200, headers: new Headers(), body: '' };
  return { status: 503, headers: new Headers({ 'retry-after': '1' }), body: '' };
}

const server = createServer(async (request, response) => {
  const { status, headers, body } = await check(request);
  for (const name of forTheClient) if (headers.has(name)) response.setHeader(name, headers.get(name));
  if (status !== 200) return response.writeHead(status).end(body);

  const who = headers.get('x-tollgate-external-id') || headers.get('x-tollgate-key-id') || 'unchecked';
  // Not that of the check, which is none in open mode.
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify({ hello: decodeURIComponent(who) }));
});

server.listen(Number(PORT), '127.0.0.1', () => {
  console.log(`listens on http://127.0.0.1:${server.address().port}`);
});
