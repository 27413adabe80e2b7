// The examples of /openapi.json are the responses of a real server with a fixed clock to the requests of
// test/support/examples.ts. The same requests must get exactly the same responses. `npm run examples` writes
// src/http/examples.json again, and the operations in docs/README.md.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Static } from 'typebox';
import { beforeAll, expect, test } from 'vitest';
import { createKeyString, createRootKeyString, digestOf } from '../../src/domain/keyString.ts';
import { requestHeaders } from '../../src/http/gateway.ts';
import { introspectPath } from '../../src/http/introspect.ts';
import type { OpenApiDocument } from '../../src/http/openapi.ts';
import { RootKeyReader } from '../../src/http/rootKey.ts';
import type { AnyOperation } from '../../src/operation.ts';
import { operations } from '../../src/operations/index.ts';
import type { getStatus } from '../../src/operations/system/getStatus.ts';
import { cliActor } from '../../src/records/rootKeys.ts';
import { openStore, type Store } from '../../src/store.ts';
import { version } from '../../src/version.ts';
import { type Made, makers, examples as table } from '../support/examples.ts';
import { testSettings } from '../support/harness.ts';
import { testRedisUrl } from '../support/redis.ts';
import { serveStore } from '../support/serving.ts';

let examples: Record<string, { request?: unknown; response: unknown }>;
let document: OpenApiDocument;

beforeAll(async () => {
  let nowMs = Date.UTC(2026, 0, 15, 12);
  const store = await openStore({ ...testSettings, url: testRedisUrl(), nowMs: () => nowMs });
  const server = await serveStore(store);
  const { url } = server;
  const rootKey = await firstRootKey(store);
  const secrets = [rootKey];

  const responses: typeof examples = {};
  const made = { newHash: createHash('sha256').update('a key of another system').digest('base64') } as Made;
  for (const [name, { documented }] of Object.entries(table)) {
    nowMs += 1000;
    const request = documented(made);
    const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
    const send = (path: string, body: unknown) =>
      fetch(`${url}/v2/${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
    const answer = await send(name, request);
    if (answer.headers.get('content-type') === 'text/event-stream') {
      await send('keys.verifyKey', table['keys.verifyKey'].documented(made));
      responses[name] = { request, response: await firstEvent(answer) };
      continue;
    }
    const response = (await answer.json()) as { data: never };
    expect(answer.status, JSON.stringify(response)).toBe(200);
    responses[name] = { request, response: name === 'system.getStatus' ? ofExampleMachine(response) : response };
    if (makers.some((maker) => maker === name)) Object.assign(made, response.data);
    const { key, keyId } = response.data as { key?: string; keyId?: string };
    if (name === 'rootKeys.rerollKey') made.successorId = keyId!;
    if (key) secrets.push(key);
  }
  document = (await (await fetch(`${url}/openapi.json`)).json()) as OpenApiDocument;
  // Paths for GET have no input except the headers of the gateway check.
  const key = await keyOf(store, rootKey);
  secrets.push(key);
  const headers = { authorization: `Bearer ${key}`, [requestHeaders.rootKey]: rootKey };
  for (const [path, { get }] of Object.entries(document.paths)) {
    if (!get) continue;
    const answer = await fetch(url + path, { headers });
    expect(answer.status, path).toBe(200);
    responses[get.operationId] = { response: await answer.json() };
  }
  const introspection = { method: 'POST', headers: { authorization: `Bearer ${rootKey}` } };
  const answer = await fetch(url + introspectPath, { ...introspection, body: new URLSearchParams({ token: key }) });
  responses.introspect = { response: await answer.json() };
  await server.close();
  await store.close();
  examples = JSON.parse(withoutChance(JSON.stringify(responses), secrets));
});

/** The first event of a stream; its latency is an example. */
async function firstEvent(answer: Response): Promise<string> {
  let text = '';
  for await (const part of answer.body!) {
    text += Buffer.from(part).toString();
    const [event] = /^event: .*\n.*\n\n/m.exec(text) ?? [];
    if (event) return event.replace(/"latencyMs":[\d.]+/, '"latencyMs":0.412');
  }
  throw new Error(`The stream ended without an event: ${text}`);
}

/** The status of a server and a Redis that do not depend on this machine. */
function ofExampleMachine({ data, ...response }: { data: Status }) {
  return {
    ...response,
    data: {
      ...data,
      versions: { ...data.versions, tollgate: version, node: '24.11.1', redis: 'Redis 7.2.4' },
      process: {
        uptimeMs: 86_400_000,
        memoryBytes: 146_800_640,
        decisions: { periodMs: 92_310, count: 40_218, p50Ms: 0.071, p99Ms: 0.842 },
      },
      redis: {
        nodes: 1,
        roundTripMs: 0.067,
        usedBytes: 1_288_490_188,
        maxBytes: 4_294_967_296,
        checks: [
          { check: 'eviction', status: 'ok', found: 'noeviction' },
          {
            check: 'persistence',
            status: 'warning',
            found: 'append-only file, appendfsync no: a power loss may lose half a minute of changes',
            change: 'Set appendfsync everysec or always.',
          },
        ],
      },
    } satisfies Status,
  };
}

type Status = Static<typeof getStatus.output>;

async function firstRootKey(store: Store): Promise<string> {
  const { workspaceId } = await store.workspaces.create('story');
  const { key, start } = createRootKeyString(workspaceId);
  await store.rootKeys.create(workspaceId, { digest: digestOf(key), start, permissions: ['*'] }, cliActor);
  return key;
}

/** Creates another key, because those of the examples are deleted at the end. */
async function keyOf(store: Store, rootKey: string): Promise<string> {
  const { workspaceId } = new RootKeyReader().read(rootKey);
  const apiId = await store.apis.create(workspaceId, 'gateway', cliActor);
  const { key, start } = createKeyString({ byteLength: 16 });
  const ratelimits = [{ name: 'requests', limit: 100, duration: 60_000, autoApply: true }];
  const keys = [{ digest: digestOf(key), start, name: 'CI', remaining: 500, ratelimits }];
  await store.keys.create(workspaceId, { apiId, keys, mayCreatePermissions: false }, cliActor);
  return key;
}

/** Replaces random secrets and ids by constant placeholders, which differ from each other. */
function withoutChance(text: string, secrets: readonly string[]): string {
  const masked = secrets.map((secret, index) => {
    const prefix = secret.slice(0, secret.indexOf('_') + 1);
    // All placeholders have one length. The length of base58 varies.
    return prefix + `Example${index}`.repeat(8).slice(0, prefix === 'root_' ? 45 : 28);
  });
  // Audit events have a start as the value of the field `start`, before and after.
  const starts = /"(start|before|after)":"(\w+)"/g;
  const withoutSecrets = secrets
    .reduce((text, secret, index) => text.replaceAll(secret, masked[index]!), text)
    .replace(starts, (whole, member: string, start: string) => {
      const index = secrets.findIndex((secret) => secret.startsWith(start));
      return index < 0 ? whole : `"${member}":"${masked[index]!.slice(0, start.length)}"`;
    });

  // An audit event's id is Redis's real time. A cursor of the list contains such an id.
  const events = new Map<string, string>();
  const withoutEvents = withoutSecrets
    .replace(/"id":"(\d+-\d+)","time":(\d+)/g, (_, id: string, time: string) => {
      events.set(id, `${time}-0`);
      return `"id":"${time}-0","time":${time}`;
    })
    .replace(/"cursor":"([\w-]+)"/g, (_, cursor: string) => {
      const after = Buffer.from(cursor, 'base64url').toString();
      const held = after.replace(/\d+-\d+$/, (id) => events.get(id) ?? id);
      return `"cursor":"${Buffer.from(held).toString('base64url')}"`;
    });

  const names = new Map<string, string>();
  const count = new Map<string, number>();
  return withoutEvents.replace(/\b([a-z]+)_[1-9A-HJ-NP-Za-km-z]{16,24}\b/g, (id, kind: string) => {
    const known = names.get(id);
    if (known) return known;
    count.set(kind, (count.get(kind) ?? 0) + 1);
    const name = `${kind}_Example${count.get(kind)}`;
    names.set(id, name);
    return name;
  });
}

test('there are examples of every operation and every page', () => {
  const read = Object.values(document.paths).flatMap(({ get }) => get?.operationId ?? []);
  expect(Object.keys(examples).sort()).toEqual([...operations.map(({ name }) => name), ...read, 'introspect'].sort());
});

test('src/http/examples.json has the responses of a server', async () => {
  await expect(`${JSON.stringify(examples, undefined, 2)}\n`).toMatchFileSnapshot('../../src/http/examples.json');
});

test('docs/README.md has a row for each service, with its operations', async () => {
  const named = operations as readonly AnyOperation[];
  const rows = [...new Set(named.map(({ name }) => name.split('.')[0]!))].map((service) => {
    const all = named.filter(({ name }) => name.startsWith(`${service}.`));
    const alias = all.find(({ alias }) => alias)?.alias?.split('.')[0];
    const procedures = all.map(({ name }) => `\`${name.split('.')[1]}\``);
    return `| \`${service}\`${alias ? `, also \`${alias}\`` : ''} | ${procedures.join(' ')} |\n`;
  });
  const readme = readFileSync(new URL('../../docs/README.md', import.meta.url), 'utf8');
  const [head, tail] = readme.split(/(?<=\| Service \| Procedures \|\n\|---\|---\|\n)(?:\| .*\n)+/);
  await expect([head, ...rows, tail].join('')).toMatchFileSnapshot('../../docs/README.md');
});
