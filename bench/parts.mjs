// Measures the parts of a verification that need no Redis, each in a loop after a warm-up. Sockets, HTTP and the store
// are not included.
import { Bench } from 'tinybench';
import { JsonText } from '../dist/domain/json.js';
import { createKeyString, digestTextOf } from '../dist/domain/keyString.js';
import { parsePermissionQuery } from '../dist/domain/permissionQuery.js';
import { printSnapshot } from '../dist/domain/verification.js';
import { parseBody } from '../dist/input/body.js';
import { compileInput } from '../dist/input/validate.js';
import { verifyKey } from '../dist/operations/keys/verifyKey.js';
import { readOptions } from './support/options.mjs';
import { number, report, table } from './support/results.mjs';
import { limit, meta, name } from './targets/typicalKey.mjs';

const help = `npm run bench -- parts [options]
  --quick        run for a second, to see that the bench works
  --json         print the result as JSON on standard output`;
const options = readOptions(help, { quick: { type: 'boolean' }, json: { type: 'boolean' } });

const { key } = createKeyString({ byteLength: 16 });
const body = Buffer.from(JSON.stringify({ key }));
const fullBody = Buffer.from(
  JSON.stringify({
    key,
    permissions: 'a.b AND c.d',
    credits: { cost: 2 },
    ratelimits: [{ name: 'requests', cost: 2 }],
  }),
);
const check = compileInput(verifyKey.input);
const shortQuery = 'documents.read AND (billing.* OR admin)';
const longQuery = Array.from({ length: 50 }, (_, index) => `documents.${index}.read`).join(' OR ');

const snapshotOf = (text) => ({
  apiId: 'api_2wTmZp7rX4kQ9sVb',
  keyId: 'key_1pA5qXSJTBSDECGqTBSDECGn',
  enabled: true,
  name,
  meta: new JsonText(text),
  expires: undefined,
  permissions: [],
  roles: [],
  ratelimits: [{ id: 'rl_1pA5qXSJTBSDECGs', ...limit }],
  identity: undefined,
});
const verifiedOf = (text) => ({
  outcome: 'VALID',
  snapshot: printSnapshot(snapshotOf(text), 0),
  credits: 999,
  ratelimits: [{ exceeded: false, remaining: 99, resetAtMs: 1_795_190_554_255, of: 'key', index: 0 }],
});
const smallMeta = JSON.stringify(meta);
const largeMeta = JSON.stringify({ history: Array.from({ length: 30 }, () => 'x'.repeat(90)) });
/** The operation with a store that returns a fixed result: hashes the key and prints the response. */
const decide = (verified) => () =>
  verifyKey
    .prepare({ key }, undefined, { decide: { verifications: { prepare: () => ({ decide: () => verified }) } } })
    .decide();

const parts = {
  'body: parse, 45 bytes': () => parseBody(body),
  'body: parse and validate, 45 bytes': () => check(parseBody(body).value),
  'body: parse and validate, all fields': () => check(parseBody(fullBody).value),
  'permission query: 3 slugs': () => parsePermissionQuery(shortQuery),
  'permission query: 50 slugs': () => parsePermissionQuery(longQuery),
  'key string: create': () => createKeyString({ prefix: 'pay', byteLength: 16 }),
  'key string: SHA-256': () => digestTextOf(key),
  'snapshot: print, 60 bytes of metadata': () => printSnapshot(snapshotOf(smallMeta)),
  'snapshot: print, 2.8 KB of metadata': () => printSnapshot(snapshotOf(largeMeta)),
  'hash and response: snapshot cached, 60 bytes of metadata': decide(verifiedOf(smallMeta)),
  'hash and response: snapshot cached, 2.8 KB of metadata': decide(verifiedOf(largeMeta)),
};

const bench = new Bench({ time: options.quick ? 50 : 1000, warmupTime: options.quick ? 10 : 250 });
for (const [part, work] of Object.entries(parts)) {
  await work();
  bench.add(part, work);
}
await bench.run();

const rows = bench.tasks.map(({ name: part, result }) => {
  if (result.error) throw result.error;
  return [
    part,
    number(result.latency.p50 * 1000),
    number(result.latency.mean * 1000),
    number(result.latency.p99 * 1000),
  ];
});
const markdown = table(['part', 'median µs', 'mean µs', 'p99 µs'], rows);
const packages = ['tinybench'];
report({ bench: 'parts', title: 'Parts', markdown, raw: rows, packages }, { json: options.json, kept: !options.quick });
