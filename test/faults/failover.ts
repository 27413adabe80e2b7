// A master is lost under load and its replica is promoted: responses to callers and stored counts, with Cluster and
// Sentinel.

import { expect } from 'vitest';
import { type RedisNode, type redisNodes, until } from '../support/redisNodes.ts';
import { report } from './report.ts';
import { confirmed, expectAnswered, firstSuccessAfter, openTenants, type Tenant } from './tenants.ts';
import type { Timed } from './timed.ts';

/**
 * A charge may be lost if it was confirmed during this time before the loss of the master, or by the old master after
 * it.
 */
const replicationLagMs = 1000;
/** From the promotion until the first successful request: reconnecting, at the latest after asking for the master. */
const usuallyBackWithinMs = 5000;

interface Loss {
  /** As in test/faults/RESULTS.md. */
  order: string;
  fault: string;
  /** Closed at the end of the test. */
  tenants: Awaited<ReturnType<typeof openTenants>>;
  commandTimeoutMs: number;
  /** Stops the master; resolves when no client uses it any more. */
  lose: () => unknown;
  /** The replica that is promoted. */
  replica: RedisNode;
  /** On that master. */
  stricken: Tenant;
  backWithinMs?: number | undefined;
  /** On the other masters. */
  others: readonly Tenant[];
}

/** Reports the measurements, and returns how many charges were confirmed and how many of them were lost. */
export async function loseMaster(loss: Loss) {
  const { order, fault, tenants, commandTimeoutMs, lose, replica, stricken, others } = loss;
  const { backWithinMs = usuallyBackWithinMs } = loss;
  const loads = [stricken, ...others].map((tenant) => tenants.load(tenant));
  await until('load', 10_000, async () => stricken.verified.length > 100);
  const lostAtMs = performance.now();
  await lose();

  await until('the replica is master', 30_000, async () =>
    (await replica.admin.info('replication')).includes('role:master'),
  );
  const takenOverAtMs = performance.now();
  await until(
    'all is well again',
    30_000,
    async () => firstSuccessAfter(takenOverAtMs, stricken.verified) !== undefined,
  );
  await Promise.all(loads.map((load) => load.stop()));

  const { refused, answered, longestMs } = expectAnswered(stricken, commandTimeoutMs);
  for (const other of others) {
    expect(expectAnswered(other, commandTimeoutMs).refused).toBe(0);
    expect(await tenants.stored(other)).toEqual(confirmed(other));
  }
  const backMs = firstSuccessAfter(takenOverAtMs, stricken.verified)! - takenOverAtMs;
  expect(backMs).toBeLessThan(backWithinMs);

  // At least the confirmed charges minus what replication may lose; at most these plus requests that got no response.
  const isSafe = ({ atMs, tookMs }: Timed) => atMs < lostAtMs - replicationLagMs || atMs - tookMs > takenOverAtMs;
  const safe = {
    ...stricken,
    verified: stricken.verified.filter(isSafe),
    limited: stricken.limited.filter(isSafe),
    checked: stricken.checked.filter(isSafe),
  };
  const unanswered = (answers: Tenant['verified']) => answers.filter(({ status }) => status !== 200).length;
  const [confirmedAll, least, stored] = [confirmed(stricken), confirmed(safe), await tenants.stored(stricken)];
  const most = {
    charged: confirmedAll.charged + unanswered(stricken.verified),
    spent: confirmedAll.spent + unanswered(stricken.verified),
    valid: confirmedAll.valid + unanswered(stricken.verified) + unanswered(stricken.limited),
    limited: confirmedAll.limited + unanswered(stricken.limited),
    checked: confirmedAll.checked + unanswered(stricken.checked),
  };
  for (const what of Object.keys(most) as (keyof typeof most)[]) {
    expect(stored[what], what).toBeGreaterThanOrEqual(least[what]);
    expect(stored[what], what).toBeLessThanOrEqual(most[what]);
  }
  // A script is replicated completely or not at all.
  expect(stored.spent).toBe(stored.charged);
  expect(stored.valid).toBe(stored.charged + stored.limited);

  // After this, confirmed and stored counts are equal.
  for (const answers of [stricken.verified, stricken.limited, stricken.checked]) answers.length = 0;
  const after = tenants.load(stricken);
  await until('load', 10_000, async () => stricken.verified.length > 100);
  await after.stop();
  expect(expectAnswered(stricken, commandTimeoutMs).refused).toBe(0);
  const since = confirmed(stricken);
  expect(await tenants.stored(stricken)).toEqual({
    charged: stored.charged + since.charged,
    spent: stored.spent + since.spent,
    valid: stored.valid + since.valid,
    limited: stored.limited + since.limited,
    checked: stored.checked + since.checked,
  });

  const lost = Math.max(0, confirmedAll.charged - stored.charged);
  const measured = [
    `${answered} answered, ${refused} refused, none after ${longestMs} ms`,
    `a new master after ${Math.round(takenOverAtMs - lostAtMs)} ms, first success ${Math.round(backMs)} ms later`,
    `${lost} of ${confirmedAll.charged} answered charges lost`,
    `counts exact afterwards`,
    ...(others.length > 0 ? [`0 refused on other masters`] : []),
  ].join('; ');
  await tenants.close();
  report({
    order,
    fault,
    expected:
      'each request 200 or 503 within the command timeout; well again by itself; lost is only what was not replicated',
    measured,
  });
  return lost;
}

type Nodes = ReturnType<typeof redisNodes>;
export type Sentinels = Awaited<ReturnType<Nodes['startSentinels']>>;

/** Loses the master under load, so that the replica takes over. Returns how many confirmed charges were lost. */
export async function expectTakenOver(
  redis: Nodes,
  order: string,
  fault: string,
  loseIt: (of: Sentinels) => unknown,
  { configuration = [] as string[], backWithinMs = usuallyBackWithinMs } = {},
) {
  const commandTimeoutMs = 1000;
  const started = await redis.startSentinels({ configuration });
  const tenants = await openTenants(started.url, commandTimeoutMs);
  const stricken = await tenants.createTenant();
  const lose = () => loseIt(started);
  return loseMaster({
    order,
    fault,
    tenants,
    commandTimeoutMs,
    lose,
    replica: started.replica,
    stricken,
    others: [],
    backWithinMs,
  });
}
