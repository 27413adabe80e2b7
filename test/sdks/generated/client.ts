// A client by openapi-typescript and openapi-fetch: verifies a key, and reads the error of an unknown id.

import createClient from 'openapi-fetch';
import type { paths } from './tollgate.js';

declare const process: { argv: string[] };
const [url, rootKey, key] = process.argv.slice(2) as [string, string, string];
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${rootKey}` } });
const verified = await client.POST('/v2/keys.verifyKey', { body: { key } });
const unknown = await client.POST('/v2/keys.getKey', { body: { keyId: 'key_none' } });
const { code, ratelimits } = verified.data!.data;
const { status, title } = unknown.error!.error;
console.log(JSON.stringify({ code, reset: ratelimits![0]!.reset, status, title }));
