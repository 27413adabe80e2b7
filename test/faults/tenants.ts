// Workspaces under load on several Redis processes. Compares the counts by the responses that callers got with the
// stored counts. Uses the real pipeline and scripts, and Redis's own clock, without a socket.

import { setTimeout as delay } from 'node:timers/promises';
import { pino } from 'pino';
import { expect } from 'vitest';
import { createRootKeyString, digestOf } from '../../src/domain/keyString.ts';
import { createPipeline } from '../../src/http/pipeline.ts';
import { operations } from '../../src/operations/index.ts';
import { cliActor } from '../../src/records/rootKeys.ts';
import { openStore } from '../../src/store.ts';
import { testSettings } from '../support/harness.ts';
import { sendTimed, type Timed } from './timed.ts';

/** Credits: more than any of these programs spends. */
export const granted = 1_000_000;
/** Units: fewer than any of these programs asks for, so that exactly this many are admitted. */
export const limit = 300;
const durationMs = 24 * 3_600_000;
const check = { namespace: 'calls', identifier: 'somebody', limit, duration: durationMs };
/** Tolerance for the time of a response beyond the command timeout, for other load of the machine. */
const slackMs = 1000;

export interface Tenant {
  workspaceId: string;
  rootKey: string;
  apiId: string;
  /** Has credits. */
  key: string;
  keyId: string;
  /** Has a limit. */
  limitedKey: string;
  limitedKeyId: string;
  /** Verifications at cost 0 that `stored` made: they charged nothing, but were counted. */
  looks: number;
  verified: Timed[];
  limited: Timed[];
  checked: Timed[];
}

export interface Counts {
  /** Credits, by the balance and by the usage counts. */
  charged: number;
  spent: number;
  /** Verifications that passed, of both keys. */
  valid: number;
  /** Units in the windows. */
  limited: number;
  checked: number;
}

export async function openTenants(url: string, commandTimeoutMs: number) {
  const store = await openStore({ ...testSettings, url, commandTimeoutMs });
  let logged = '';
  function write(line: string) {
    logged += line;
  }
  const log = pino({ level: 'info' }, { write });
  const answer = createPipeline(operations, { store, log, metaBytesMax: 10_240 });

  const send = (operation: string, rootKey: string, body: unknown) => sendTimed(answer, operation, rootKey, body);

  async function ok(operation: string, rootKey: string, body: unknown) {
    const response = await send(operation, rootKey, body);
    if (response.status !== 200) throw new Error(`${operation}: ${response.body}`);
    return JSON.parse(response.body).data;
  }

  async function createTenant(): Promise<Tenant> {
    const { workspaceId } = await store.workspaces.create('tenant');
    const { key: rootKey, start } = createRootKeyString(workspaceId);
    await store.rootKeys.create(workspaceId, { digest: digestOf(rootKey), start, permissions: ['*'] }, cliActor);
    const { apiId } = await ok('apis.createApi', rootKey, { name: 'tenant' });
    const { key, keyId } = await ok('keys.createKey', rootKey, { apiId, credits: { remaining: granted } });
    const ratelimits = [{ name: 'all', limit, duration: durationMs, autoApply: true }];
    const limited = await ok('keys.createKey', rootKey, { apiId, ratelimits });
    await ok('ratelimits.limit', rootKey, { namespace: 'calls', identifier: 'nobody', limit: 1, duration: 1000 });
    const answers = { looks: 0, verified: [], limited: [], checked: [] };
    return {
      workspaceId,
      rootKey,
      apiId,
      key,
      keyId,
      limitedKey: limited.key,
      limitedKeyId: limited.keyId,
      ...answers,
    };
  }

  /** Sends requests of this tenant without pause until `stop` is called, `places` at a time. */
  function load(tenant: Tenant, places = 6) {
    const { rootKey, key, limitedKey } = tenant;
    let stopped = false;
    const running = Array.from({ length: places }, async () => {
      while (!stopped) {
        tenant.verified.push(await send('keys.verifyKey', rootKey, { key }));
        tenant.limited.push(await send('keys.verifyKey', rootKey, { key: limitedKey }));
        tenant.checked.push(await send('ratelimits.limit', rootKey, check));
        await delay(2);
      }
    });
    return {
      async stop() {
        stopped = true;
        await Promise.all(running);
      },
    };
  }

  /** What was charged, by balance, windows and usage counts. */
  async function stored(tenant: Tenant): Promise<Counts> {
    const { rootKey, keyId, limitedKey, limitedKeyId } = tenant;
    const { credits } = await ok('keys.getKey', rootKey, { keyId });
    const rows: { outcome: string; count: number; spentCredits: number }[] = [];
    for (const id of [keyId, limitedKeyId])
      rows.push(...(await ok('analytics.getVerifications', rootKey, { keyId: id })));
    const valid = rows.filter(({ outcome }) => outcome === 'VALID').reduce((sum, { count }) => sum + count, 0);
    const before = tenant.looks++;
    const looked = await ok('keys.verifyKey', rootKey, { key: limitedKey, ratelimits: [{ name: 'all', cost: 0 }] });
    const { remaining } = await ok('ratelimits.limit', rootKey, { ...check, cost: 0 });
    return {
      charged: granted - credits.remaining,
      spent: rows.reduce((sum, { spentCredits }) => sum + spentCredits, 0),
      valid: valid - before,
      limited: limit - looked.ratelimits[0].remaining,
      checked: limit - remaining,
    };
  }

  return {
    store,
    send,
    ok,
    createTenant,
    load,
    stored,
    logged: () => logged,
    close: () => store.close(),
  };
}

/**
 * Each response is 200 with a possible result, or 503 in the envelope, in time. Returns the number of each, and the
 * longest.
 */
export function expectAnswered({ verified, limited, checked }: Tenant, commandTimeoutMs: number) {
  const all = [...verified, ...limited, ...checked];
  for (const { status, body, headers, tookMs } of all) {
    expect(tookMs).toBeLessThan(commandTimeoutMs + slackMs);
    if (status === 200) continue;
    expect({ status, type: JSON.parse(body).error?.type }).toEqual({ status: 503, type: '/errors/store_unavailable' });
    expect(headers).toContainEqual(['Retry-After', '1']);
  }
  for (const { status, body } of verified) if (status === 200) expect(JSON.parse(body).data.code).toBe('VALID');
  for (const { status, body } of limited) {
    if (status === 200) expect(['VALID', 'RATE_LIMITED']).toContain(JSON.parse(body).data.code);
  }
  return {
    answered: all.filter(({ status }) => status === 200).length,
    refused: all.filter(({ status }) => status !== 200).length,
    longestMs: Math.round(Math.max(...all.map(({ tookMs }) => tookMs))),
  };
}

/** The same counts by the responses that callers got. A response of 503 counts nothing. */
export function confirmed({ verified, limited, checked }: Tenant): Counts {
  const passed = verified.filter(({ status }) => status === 200).length;
  const admitted = limited.filter(
    ({ status, body }) => status === 200 && JSON.parse(body).data.code === 'VALID',
  ).length;
  const allowed = checked.filter(({ status, body }) => status === 200 && JSON.parse(body).data.success).length;
  return { charged: passed, spent: passed, valid: passed + admitted, limited: admitted, checked: allowed };
}

/** The time of the first response of 200 to a request that was sent after this time. */
export const firstSuccessAfter = (atMs: number, answers: readonly Timed[]): number | undefined =>
  answers.find((answer) => answer.status === 200 && answer.atMs - answer.tookMs >= atMs)?.atMs;
