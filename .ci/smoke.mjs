// The smoke check of .ci/run: reads the server's address and its first root key from its output, creates an API and a
// key, and verifies that key once.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

const [, , log, pid] = process.argv;
const startWaitMs = 120_000;

const [address, rootKey] = await printed([/http:\/\/[\w.]+:\d+/, /\broot_\w+_\w+/]);
const { apiId } = await call('apis.createApi', { name: 'smoke' });
const { key, keyId } = await call('keys.createKey', { apiId, credits: { remaining: 2 } });
const verified = await call('keys.verifyKey', { key });
assert.equal(verified.code, 'VALID');
assert.equal(verified.keyId, keyId);
assert.equal(verified.credits, 1);
console.log('A key was created and verified.');

async function printed(patterns) {
  for (const deadline = Date.now() + startWaitMs; Date.now() < deadline; await delay(100)) {
    const text = readFileSync(log, 'utf8');
    const found = patterns.map((pattern) => pattern.exec(text)?.[0]);
    if (found.every(Boolean)) return found;
    process.kill(Number(pid), 0); // Throws when the server has ended.
  }
  throw new Error(`The server printed no address and root key within ${startWaitMs} ms.`);
}

async function call(operation, body) {
  const response = await fetch(`${address}/v2/${operation}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(10_000),
  });
  const result = await response.json();
  assert.equal(response.status, 200, `${operation}: ${JSON.stringify(result)}`);
  return result.data;
}
