// Servers with leases on one Redis, under load: every request with its times and its answer.

import { randomBytes } from 'node:crypto';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, onTestFinished, vi } from 'vitest';
import { type Client, openClient } from '../support/client.ts';
import { dayMs, type InputOf } from '../support/harness.ts';
import { type Server, startRedis, startTollgate, temporaryDir } from '../support/processes.ts';
import { preload } from './preload.ts';

export const leaseMs = 100;
/**
 * How long a change waits for leases of this term: 1 % of drift, and a millisecond, because timers are as coarse as
 * that.
 */
export const waitMs = (termMs = leaseMs) => Math.ceil(termMs * 1.01) + 1;
/** All leases have the same term. */
const settings = { LEASE_MS: `${leaseMs}`, LEASE_LONG_MS: '0', LEASE_CREDITS: '1' };

export type LeaseServer = Server & { client: Client };
export type LeaseRig = Awaited<ReturnType<typeof openLeaseRig>>;

export type Shooting = InputOf<'keys.verifyKey'> | InputOf<'ratelimits.limit'>;

/** A verification or limit check: times by performance.now(), from before it was sent until its answer was read. */
export interface Shot {
  server: LeaseServer;
  /** Or the identifier. */
  key: string;
  sentAt: number;
  answeredAt: number;
  /** 0 without an answer. */
  status: number;
  /** The outcome; that of a limit check is VALID or RATE_LIMITED. */
  code: string | undefined;
}

/** `count` servers with leases on a Redis of their own, or on that of `url`. */
export async function openLeaseRig(
  count: number,
  { url, env = {}, fsync }: { url?: string; env?: Record<string, string>; fsync?: 'off' } = {},
) {
  const redis = url === undefined ? await openRedis(fsync) : undefined;
  const redisUrl = url ?? redis!.url;
  let rootKey = '';
  async function start(own: Record<string, string> = {}): Promise<LeaseServer> {
    const server = await startTollgate({ REDIS_URL: redisUrl, ...settings, ...env, ...own });
    // Only the first one prints it.
    rootKey ||= await server.firstRootKey();
    return Object.assign(server, { client: openClient(server.url, rootKey) });
  }
  const first = await start();
  const servers = [first, ...(await Promise.all(Array.from({ length: count - 1 }, () => start())))];
  const { ok } = first.client;
  const { apiId } = await ok('apis.createApi', { name: 'leases' });

  return {
    redisUrl,
    redis: redis!,
    servers,
    rootKey,
    /** Starts another server, which is not in `servers`. */
    start,
    ok,
    apiId,
    newKey: (input: Omit<InputOf<'keys.createKey'>, 'apiId'> = {}) => ok('keys.createKey', { apiId, ...input }),

    /** The counts of a key by outcome, when they have reached `total`, or after a while. */
    async usageOf(keyId: string, total: number, using: Client = first.client): Promise<Record<string, number>> {
      const counts: Record<string, number> = {};
      const read = async () => {
        const period = { start: Date.now() - dayMs, end: Date.now() + 4 * dayMs, granularity: 'day' } as const;
        const rows = await using.ok('analytics.getVerifications', { keyId, ...period, groupBy: ['outcome'] });
        for (const name of Object.keys(counts)) delete counts[name];
        for (const row of rows) counts[row.outcome!] = (counts[row.outcome!] ?? 0) + row.count;
        expect(sumOf(counts)).toBeGreaterThanOrEqual(total);
      };
      await vi.waitFor(read, { timeout: 2000, interval: 50 }).catch(() => {});
      return counts;
    },
  };
}

/** A Redis whose process can be killed and started again on its files, and whose clock can be set. */
async function openRedis(fsync: 'off' | undefined) {
  const dir = temporaryDir();
  const file = join(dir, 'clock');
  const setClock = (seconds: number) =>
    writeFileSync(file, new BigInt64Array([BigInt(seconds)]), { flag: existsSync(file) ? 'r+' : 'w' });
  setClock(0);
  const library = preload('clock', dir);
  const env: Record<string, string> = library ? { LD_PRELOAD: library, CLOCK_FILE: file } : {};
  let process = await startRedis(dir, { env, ...(fsync && { fsync }) });
  return {
    url: process.url,
    admin: process.admin,
    /** Sets the clock to that of this machine plus so many seconds. */
    setClock,
    signal: (signal: NodeJS.Signals) => process.child.kill(signal),
    ended: () => process.ended,
    async start() {
      process = await startRedis(dir, { env, ...(fsync && { fsync }) });
    },
  };
}

export const sumOf = (counts: Record<string, number>): number => Object.values(counts).reduce((sum, n) => sum + n, 0);

interface LoadOptions {
  connections: number;
  input: (caller: number) => Shooting;
  rootKey?: string;
  /** A caller that got this answer sends nothing more. */
  endsAt?: (shot: Shot) => boolean;
  /**
   * Until `rush` is called: two callers of each server, with pauses. A full load would only cost CPU time until leases
   * are out. Each sends several requests at once, so that a key is used often enough for a lease on a busy machine too.
   */
  isCalm?: boolean;
}

async function shoot(server: LeaseServer, input: Shooting, rootKey: string | undefined): Promise<Shot> {
  const sentAt = performance.now();
  const shotOf = (key: string, status: number, code: string | undefined) => ({
    server,
    key,
    sentAt,
    answeredAt: performance.now(),
    status,
    code,
  });
  if ('key' in input) {
    const { status, data } = await server.client.call('keys.verifyKey', input, rootKey);
    return shotOf(input.key, status, data?.code);
  }
  const { status, data } = await server.client.call('ratelimits.limit', input, rootKey);
  return shotOf(input.identifier, status, data && (data.success ? 'VALID' : 'RATE_LIMITED'));
}

/** Verifies on these servers without pause, on `connections` to each. */
export function startLoad(
  servers: readonly LeaseServer[],
  { connections, input, rootKey, endsAt, isCalm = false }: LoadOptions,
) {
  const shots: Shot[] = [];
  let isStopped = false;
  let rush = () => {};
  const rushing = new Promise<void>((resolve) => {
    rush = () => {
      isCalm = false;
      resolve();
    };
  });
  const caller = async (server: LeaseServer, number: number) => {
    if (isCalm && number >= 2) await rushing;
    while (!isStopped) {
      if (isCalm) await delay(5);
      const sent = Array.from({ length: isCalm ? 4 : 1 }, async () => {
        const shot = await shoot(server, input(number), rootKey);
        shots.push(shot);
        return shot;
      });
      const received = await Promise.all(sent);
      if (endsAt && received.some(endsAt)) return;
      if (received.some(({ status }) => status !== 200)) await delay(5);
    }
  };
  const callers = servers.flatMap((server) =>
    Array.from({ length: connections }, (_, number) => caller(server, number)),
  );
  const stop = async () => {
    isStopped = true;
    rush();
    await Promise.all(callers);
  };
  onTestFinished(() => {
    isStopped = true;
    rush();
  });
  return {
    shots,
    rush,
    /** Resolves when all callers have ended, by `endsAt`. */
    ended: Promise.all(callers),
    stop,
    /** Resolves when each server has given so many answers to requests that were sent later than `after`. */
    async answered(times: number, after = 0): Promise<void> {
      // Shots are in the order of their answers.
      const since = () => shots.slice(shots.findLastIndex(({ answeredAt }) => answeredAt <= after) + 1);
      const enough = (server: LeaseServer) =>
        since().filter((shot) => shot.server === server && shot.sentAt > after).length >= times;
      await vi.waitFor(() => expect(servers.every(enough)).toBe(true), { timeout: 20_000, interval: 10 });
    },
  };
}

export const valid = (shots: readonly Shot[]): Shot[] => shots.filter(({ code }) => code === 'VALID');

/** Outcomes of the requests that were sent after this time; the status of those without. */
export const outcomesAfter = (shots: readonly Shot[], at: number): Set<string> =>
  new Set(shots.filter(({ sentAt }) => sentAt > at).map(({ code, status }) => code ?? `${status}`));

/** How many verifications the servers have decided without Redis. */
export async function decidedLocally(servers: readonly Server[]): Promise<number> {
  let sum = 0;
  for (const { url } of servers) {
    const text = await (await fetch(`${url}/metrics`)).text();
    sum += Number(/^tollgate_local_decisions_total(?:{[^}]*})? (\d+)$/m.exec(text)![1]);
  }
  return sum;
}

/** A limit whose window no test outlasts. Its slices are longer than a lease. */
export const perTwentyMinutes = (limit: number) => ({
  name: 'requests',
  limit,
  duration: 20 * 60_000,
  autoApply: true,
});
/** A limit check of an identifier that no other test uses. */
export const checkOf = (limit: number): InputOf<'ratelimits.limit'> => ({
  namespace: 'faults',
  identifier: randomBytes(8).toString('hex'),
  limit,
  duration: 20 * 60_000,
});
export const perMinute = (limit: number) => ({ ...perTwentyMinutes(limit), duration: 60_000 });
export const ms = (time: number): string => `${Math.round(time)} ms`;
