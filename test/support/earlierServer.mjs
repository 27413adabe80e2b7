// The pipeline and store of an earlier release, without a socket, for test/support/earlierRelease.ts: node earlierServer.mjs
// <folder> <settings as JSON>. It gets requests from its parent process.

import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [folder, settings] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(join(folder, 'dist', path)).href);
const [{ openStore }, { createPipeline }, { operations }, { createId, createRootKeyString, digestOf }, { pino }] =
  await Promise.all([
    load('store.js'),
    load('http/pipeline.js'),
    load('operations/index.js'),
    load('domain/keyString.js'),
    import(pathToFileURL(join(folder, 'node_modules', 'pino', 'pino.js')).href).then((module) => ({
      pino: module.default,
    })),
  ]);
const { parseGrant } = await load('domain/grants.js');
const { cliActor } = await load('records/rootKeys.js');

let clock = 0;
const store = await openStore({
  ...JSON.parse(settings),
  nowMs: () => clock,
  // Releases until 1.0.0 add the first one to their own clock.
  leaseClockMs: () => clock - performance.now(),
  leaseNowMs: () => clock,
});
const respond = createPipeline(operations, { store, log: pino({ level: 'error' }), metaBytesMax: 10_240 });

const requests = {
  setClock(nowMs) {
    clock = nowMs;
  },
  async createWorkspace(name) {
    const { workspaceId } = await store.workspaces.create(name);
    const { key, start } = createRootKeyString(workspaceId);
    const permissions = [parseGrant('*')];
    await store.rootKeys.create(
      workspaceId,
      { digest: digestOf(key), start, permissions, expires: undefined },
      cliActor,
    );
    return { workspaceId, rootKey: key };
  },
  async send(path, rootKey, input) {
    const { status, body, stream } = await respond({
      method: 'POST',
      path,
      hasQuery: false,
      authorization: `Bearer ${rootKey}`,
      contentType: 'application/json',
      accept: '',
      requestId: createId('req', clock + (randomBytes(1)[0] ?? 0)),
      body: Buffer.from(JSON.stringify(input)),
    });
    stream?.stop();
    return { status, json: stream ? {} : JSON.parse(body) };
  },
  async sweep() {
    const { refill, purge, rollUp, count } = store.sweep;
    for (const workspaceId of await store.workspaces.ids()) {
      for (const step of [refill, purge, rollUp]) while ((await step(workspaceId)) === true);
      await count(workspaceId);
    }
    await store.status.swept();
    await store.ready();
  },
  async close() {
    await store.close();
    setImmediate(() => process.exit());
  },
};

process.on('message', async ({ id, what, args }) => {
  try {
    process.send({ id, reply: await requests[what](...args) });
  } catch (error) {
    process.send({ id, error: String(error.stack) });
  }
});
process.send('ready');
