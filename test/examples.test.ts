// The examples of /openapi.json are what a real server answered to test/support/story.ts, whose clock was held. Told again
// here, the story must read the same to the letter; `npm run examples` writes it down anew.

import { createHash } from 'node:crypto';
import { beforeAll, expect, test } from 'vitest';
import { createKeyString, createRootKeyString, digestOf } from '../src/domain/keyString.ts';
import type { Example } from '../src/http/examples.ts';
import { requestHeaders } from '../src/http/gateway.ts';
import type { OpenApiDocument } from '../src/http/openapi.ts';
import { RootKeyReader } from '../src/http/rootKey.ts';
import { operations } from '../src/operations/index.ts';
import { cliActor } from '../src/store/rootKeys.ts';
import { openStore, type Store } from '../src/store/store.ts';
import { testSettings } from './support/harness.ts';
import { testRedisUrl } from './support/redis.ts';
import { serveStore } from './support/serving.ts';
import { type Tell, tellStory } from './support/story.ts';

let told: Record<string, Example>;
let document: OpenApiDocument;

beforeAll(async () => {
  let nowMs = Date.UTC(2026, 0, 15, 12);
  const store = await openStore({ ...testSettings, url: testRedisUrl(), nowMs: () => nowMs });
  const server = await serveStore(store);
  const { url } = server;
  const rootKey = await firstRootKey(store);
  const secrets = [rootKey];

  const heard: typeof told = {};
  const tell: Tell = async (name, request) => {
    expect(heard, 'told once').not.toHaveProperty([name]);
    nowMs += 1000;
    const headers = { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
    const answer = await fetch(`${url}/v2/${name}`, { method: 'POST', headers, body: JSON.stringify(request) });
    const response = (await answer.json()) as { data: never };
    expect(answer.status, JSON.stringify(response)).toBe(200);
    heard[name] = { request, response };
    const { key } = response.data as { key?: string };
    if (key) secrets.push(key);
    return response.data;
  };
  const hash = createHash('sha256').update('a key of another system').digest('base64');
  await tellStory(tell, hash);
  document = (await (await fetch(`${url}/openapi.json`)).json()) as OpenApiDocument;
  // What is asked by GET takes at most headers, those of the gateway check.
  const headers = { authorization: `Bearer ${await keyOf(store, rootKey)}`, [requestHeaders.rootKey]: rootKey };
  for (const [path, { get }] of Object.entries(document.paths)) {
    if (!get) continue;
    const answer = await fetch(url + path, { headers });
    expect(answer.status, path).toBe(200);
    heard[get.operationId] = { response: await answer.json() };
  }
  await server.close();
  await store.close();
  told = JSON.parse(withoutChance(JSON.stringify(heard), secrets));
});

async function firstRootKey(store: Store): Promise<string> {
  const { workspaceId } = await store.workspaces.create('story');
  const { key, start } = createRootKeyString(workspaceId);
  await store.rootKeys.create(workspaceId, { digest: digestOf(key), start, permissions: ['*'] }, cliActor);
  return key;
}

/** Another key, as those of the story are gone when it ends. */
async function keyOf(store: Store, rootKey: string): Promise<string> {
  const { workspaceId } = new RootKeyReader().read(rootKey);
  const apiId = await store.apis.create(workspaceId, 'gateway', cliActor);
  const { key, start } = createKeyString({ byteLength: 16 });
  const keys = [{ digest: digestOf(key), start }];
  await store.keys.create(workspaceId, { apiId, keys, mayCreatePermissions: false }, cliActor);
  return key;
}

/** Secrets and ids, which no two runs share, by names that tell them apart; nothing of it opens anything. */
function withoutChance(text: string, secrets: readonly string[]): string {
  const masked = secrets.map((secret, index) => {
    const prefix = secret.slice(0, secret.indexOf('_') + 1);
    return prefix + `Example${index}`.repeat(8).slice(0, secret.length - prefix.length);
  });
  const starts = /"start":"(\w+)"/g;
  const withoutSecrets = secrets
    .reduce((text, secret, index) => text.replaceAll(secret, masked[index]!), text)
    .replace(starts, (_, start: string) => {
      const index = secrets.findIndex((secret) => secret.startsWith(start));
      return `"start":"${masked[index]!.slice(0, start.length)}"`;
    });

  // An audit event's id is Redis's own time, which no test holds; a cursor has the id it goes on after within it.
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

test('every operation is told of', () => {
  const read = Object.values(document.paths).flatMap(({ get }) => get?.operationId ?? []);
  expect(Object.keys(told).sort()).toEqual([...operations.map(({ name }) => name), ...read].sort());
});

test('what is written down is what a server answers', async () => {
  const text = `// Written by npm run examples: what a real server answered to test/support/story.ts. Do not edit.

export interface Example {
  /** The request's body; left out where there is none. */
  request?: unknown;
  /** The answer's, with 200. */
  response: unknown;
}

// biome-ignore format: as it was written
export const examples: Record<string, Example> = ${JSON.stringify(told, undefined, 2)};
`;
  await expect(text).toMatchFileSnapshot('../src/http/examples.ts');
});
