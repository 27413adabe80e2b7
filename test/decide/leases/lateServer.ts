// A server, as far as it decides by leases, that settles when the test lets it.

import { setTimeout as delay } from 'node:timers/promises';
import { expect, vi } from 'vitest';
import { AcceptedRootKeys } from '../../../src/decide/accepted.ts';
import { openDecide } from '../../../src/decide/decide.ts';
import { Leasing } from '../../../src/decide/leases/leasing.ts';
import { Tail } from '../../../src/decide/tail/tail.ts';
import { digestOf, digestTextOf } from '../../../src/domain/keyString.ts';
import type { RedisClient } from '../../../src/redis/connection.ts';
import { workspaceKey } from '../../../src/redis/names.ts';
import { dataVersion } from '../../../src/scripts/layout.ts';
import { loadScripts } from '../../../src/scripts/scripts.ts';
import { testSettings } from '../../support/harness.ts';
import { observing } from '../../support/observer.ts';

const settings = { ...testSettings, leaseCredits: true, leaseAfter: 2, leaseNowMs: () => performance.now() };

/** A root key as a request presents it. */
export const presentedOf = ({ workspaceId, rootKey }: { workspaceId: string; rootKey: string }) => ({
  workspaceId,
  digest: digestOf(rootKey),
  digestText: digestTextOf(rootKey),
});

/** Sends a request, which must pass, until the server was granted units. Returns how often. */
export async function untilGranted(server: { granted: number[] }, request: () => Promise<boolean>): Promise<number> {
  let times = 0;
  server.granted.length = 0;
  const send = async () => {
    expect(await request()).toBe(true);
    times++;
    expect(server.granted.some((units) => units > 0)).toBe(true);
  };
  await vi.waitFor(send, { timeout: 15_000, interval: 1 });
  return times;
}

/** `now` is the time by Redis's clock; '' for its own. */
export async function openServer(redis: RedisClient, leaseMs: number, now: () => number | '' = () => '') {
  const server = {
    /** Units of each lease. */
    granted: [] as number[],
    /** Decisions by leases. */
    decided: 0,
    /** The longest term of the leases of each recall. */
    recalls: [] as number[],
    /** Settlements wait. */
    isLate: false,
  };
  const observe = observing({
    granted: (units: number) => void server.granted.push(units),
    decided: () => void server.decided++,
  });
  const decider = openDecide({
    ...settings,
    openLeasing: (settle) =>
      new Leasing({
        ...settings,
        leaseMs,
        leaseLongMs: 10 * leaseMs,
        redis,
        observe,
        deactivate: async () => {},
        mayLengthen: () => false,
        redisAgeMs: async () => 0,
        async settle(...settlement) {
          while (server.isLate) await delay(1);
          await settle(...settlement);
        },
      }),
    scripts: await loadScripts(redis, workspaceKey),
    slugsOf: async () => [],
    digestOf: async () => undefined,
    dataVersion: { current: dataVersion },
    accepted: new AcceptedRootKeys(),
    tail: new Tail(redis),
    now,
    observe,
  });
  const { leasing } = decider;
  const recall = leasing.recall.bind(leasing);
  leasing.recall = (workspaceId, names, termMs) => {
    server.recalls.push(termMs);
    return recall(workspaceId, names, termMs);
  };
  return Object.assign(server, { decider });
}
