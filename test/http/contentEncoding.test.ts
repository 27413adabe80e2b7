// A compressed body is refused by its header, before anything tries to read it.

import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { harness } from '../support/harness.ts';
import { serveStore } from '../support/serving.ts';

const app = harness();
let server: Awaited<ReturnType<typeof serveStore>>;
beforeAll(async () => {
  server = await serveStore(app.store);
});
afterAll(() => server.close());

test.each([
  ['gzip', 415],
  ['br', 415],
  ['identity, gzip', 415],
  ['', 415],
  ['identity', 200],
  ['Identity', 200],
  [undefined, 200],
])('Content-Encoding %j: %i', async (encoding, status) => {
  const json = '{"name":"encoded"}';
  const response = await fetch(`${server.url}/v2/apis.createApi`, {
    method: 'POST',
    headers: {
      Authorization: `Bearer ${app.rootKey}`,
      'Content-Type': 'application/json',
      ...(encoding !== undefined && { 'Content-Encoding': encoding }),
    },
    body: status === 200 ? json : new Uint8Array(gzipSync(json)),
  });
  expect(response.status).toBe(status);
  const { error } = (await response.json()) as { error?: { detail: string } };
  if (status === 415) expect(error!.detail).toContain(`not ${JSON.stringify(encoding)}`);
});
