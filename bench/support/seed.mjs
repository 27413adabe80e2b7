// Fills a Redis with keys through the store, many at a time.
import { loadConfig, storeSettings } from '../../dist/config.js';
import { parseGrant } from '../../dist/domain/grants.js';
import { createRootKeyString, digestOf, digestTextOf } from '../../dist/domain/keyString.js';
import { parsePermissionQuery } from '../../dist/domain/permissionQuery.js';
import { cliActor } from '../../dist/records/rootKeys.js';
import { openStore } from '../../dist/store.js';
import { atEnd } from './processes.mjs';

const batch = 500;
const actor = { rootKeyId: 'bench', operation: 'bench', requestId: '' };

/** Key strings that can be computed from their number. */
const firstNumber = 10_000_000;
export const keyString = (index) => `bench_${index + firstNumber}`;

/** Bodies that verify the first `count` keys, uniformly or skewed; see openLoad. */
export const verifyBodies = (count, skewed = false) => ({
  before: '{"key":"bench_',
  first: firstNumber,
  count,
  after: '"}',
  skewed,
});

/**
 * Opens the store on a Redis with default settings but without leases, and creates a workspace unless one is given.
 * `options` are further ones of the store.
 */
export async function openSeed(redis, { workspaceId: id, rootKey: key, ...options } = {}) {
  const store = await openStore({
    ...storeSettings(loadConfig({ LEASE_MS: '0' })),
    commandTimeoutMs: 60_000,
    url: redis.url,
    ...options,
  });
  // Also when the bench fails before it closes the store: an open store tries forever to reach a stopped Redis.
  atEnd(() => store.close());
  const { workspaceId, rootKey } = id ? { workspaceId: id, rootKey: key } : await store.workspaces.createFirst('bench');
  const digest = digestOf(rootKey);
  const presented = { workspaceId, digest, digestText: digest.toString('latin1') };

  return {
    store,
    workspaceId,
    rootKey,
    close: () => store.close(),

    /** Creates an API with the keys `first` to `first + count - 1`; `fieldsOf` returns the fields of each. */
    async createApi({ first = 0, count, fieldsOf }) {
      const apiId = await store.apis.create(workspaceId, 'bench', actor);
      for (let from = first; from < first + count; from += batch) {
        const length = Math.min(batch, first + count - from);
        const keys = Array.from({ length }, (_, offset) => {
          const index = from + offset;
          return { digest: digestOf(keyString(index)), start: 'bench', byteLength: 16, ...fieldsOf(index) };
        });
        const result = await store.keys.create(workspaceId, { apiId, keys, mayCreatePermissions: true }, actor);
        if (!result.created) throw new Error(`seeding was refused: ${result.refused}`);
      }
      return apiId;
    },

    /** Creates another workspace. */
    async createWorkspace() {
      const { workspaceId: id } = await store.workspaces.create('other');
      const { key, start } = createRootKeyString(id);
      await store.rootKeys.create(id, { digest: digestOf(key), start, permissions: [parseGrant('*')] }, cliActor);
      return { rootKey: key };
    },

    createIdentity: (externalId, ratelimits) => store.identities.create(workspaceId, { externalId, ratelimits }, actor),

    /** Verifies these keys in one turn of the event loop, with any outcome. */
    async use(indices, { query, ...extras } = {}) {
      const parsed = query && { query: parsePermissionQuery(query) };
      const requests = indices.map((index) => ({
        digest: digestTextOf(keyString(index)),
        cost: 1,
        ...parsed,
        ...extras,
      }));
      await Promise.all(requests.map((request) => store.decide.verifications.prepare(presented, request).decide()));
    },

    /** Rolls up all usage that is due. */
    async rollUp() {
      while (await store.sweep.rollUp(workspaceId));
    },

    /** Verifies these keys in one turn of the event loop. All must be VALID. */
    async verify(indices, extras = {}) {
      const requests = indices.map((index) => ({ digest: digestTextOf(keyString(index)), cost: 1, ...extras }));
      for (const { outcome } of await Promise.all(
        requests.map((request) => store.decide.verifications.prepare(presented, request).decide()),
      )) {
        if (outcome !== 'VALID') throw new Error(`a verification returned ${outcome} instead of VALID`);
      }
    },
  };
}
