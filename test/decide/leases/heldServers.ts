// Servers with leases on one Redis. Their clocks and that of Redis are the same, and advance when the test says so: a
// lease lasts as long as the test wants.

import { beforeAll, beforeEach, expect, vi } from 'vitest';
import type { StoreOptions } from '../../../src/store.ts';
import { harness } from '../../support/harness.ts';
import { observing } from '../../support/observer.ts';
import { testRedisUrl } from '../../support/redisUrl.ts';

export type HeldServers = ReturnType<typeof heldServers>;
export type HeldServer = HeldServers['servers'][number];

/**
 * Call it at the top level of a test file. All servers serve the workspace of the first one. `url` is the Redis of a
 * server; the monotonic clock of the servers has this `speed`.
 */
export function heldServers(
  count: number,
  settings: Partial<StoreOptions> = {},
  { url = testRedisUrl, speed = 1 }: { url?: (number: number) => string; speed?: number } = {},
) {
  const apps: ReturnType<typeof harness>[] = [];
  const now = () => apps[0]!.clock.now;

  function open(number: number) {
    /** Since the beginning of the test: decisions by leases, and the units of each lease. */
    const counts = { decided: 0, granted: [] as number[] };
    const observe = observing({
      decided: () => void counts.decided++,
      granted: (units: number) => void counts.granted.push(units),
    });
    const app = harness(() => url(number), {
      leaseMs: 300,
      leaseCredits: true,
      leaseAfter: 2,
      nowMs: now,
      leaseNowMs: () => now() * speed,
      observe,
      ...settings,
    });
    apps.push(app);
    const call: typeof app.call = (name, input, as) => app.call(name, input, as ?? apps[0]!.rootKey);
    const ok: typeof app.ok = async (name, input) => {
      const { status, data, error } = await call(name, input);
      if (status !== 200) throw new Error(`${name}: ${status} ${error.detail}`);
      return data;
    };
    return {
      number,
      counts,
      call,
      ok,
      get leasing() {
        return app.store.decide.leasing;
      },
      /** Ends and settles its leases. */
      recall: () => app.store.decide.leasing.leases.recall(),
    };
  }

  type Server = ReturnType<typeof open>;
  const servers = Array.from({ length: count }, (_, number) => open(number));
  const [first] = servers as [Server];

  /** Sends a request until this server was granted a lease. It must pass. Returns how often. */
  async function untilGranted(
    { counts }: { counts: { granted: number[] } },
    request: () => Promise<boolean>,
  ): Promise<number> {
    const before = counts.granted.length;
    let times = 0;
    const send = async () => {
      expect(await request()).toBe(true);
      times++;
      expect(counts.granted.length).toBeGreaterThan(before);
    };
    await vi.waitFor(send, { timeout: 15_000, interval: 1 });
    return times;
  }

  /** Sends a request to each server until it was granted a lease. */
  async function untilAllGranted(request: (server: Server) => Promise<boolean>) {
    for (const server of servers) await untilGranted(server, () => request(server));
  }

  /** Sends a request to each server. Returns the limits that they apply, and how many decided without Redis. */
  async function applied<Limit>(limitOf: (server: Server) => Promise<Limit>) {
    const limits: Limit[] = [];
    let local = 0;
    for (const server of servers) {
      const before = server.counts.decided;
      limits.push(await limitOf(server));
      local += server.counts.decided - before;
    }
    return { limits, local };
  }

  beforeAll(async () => {
    // A server asks for leases from a term after it connected on, once it hears of recalls.
    const warm = await first.ok('keys.createKey', {
      apiId: (await first.ok('apis.createApi', { name: 'warm' })).apiId,
    });
    for (const server of servers) {
      await untilGranted(server, async () => (await server.ok('keys.verifyKey', { key: warm.key })).valid);
    }
  });
  beforeEach(() => {
    for (const { counts } of servers) Object.assign(counts, { decided: 0, granted: [] });
  });

  return {
    servers,
    first,
    clock: {
      get now() {
        return now();
      },
      advance: (ms: number) => apps[0]!.clock.advance(ms),
      set: (ms: number) => apps[0]!.clock.advance(ms - now()),
    },
    get workspaceId() {
      return apps[0]!.workspaceId;
    },
    get rootKey() {
      return apps[0]!.rootKey;
    },
    createWorkspace: () => apps[0]!.createWorkspace(),
    createRootKey: (grants: string[]) => apps[0]!.createRootKey(grants),
    createKey: (input: Parameters<(typeof apps)[number]['createKey']>[0] = {}) => apps[0]!.createKey(input),
    untilGranted,
    untilAllGranted,
    applied,
    recallAll: async () => void (await Promise.all(servers.map(({ recall }) => recall()))),
  };
}

let made = 0;
/** A name that no other test of this process uses. */
export const newName = (): string => `name_${++made}`;
