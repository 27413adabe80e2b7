// A master is lost under load and its replica takes its place: what callers and books say of it, with Cluster and with Sentinel.

import { expect } from 'vitest';
import { type RedisNode, type redisNodes, until } from '../support/redisNodes.ts';
import { report } from './report.ts';
import { expectAnswered, firstSuccessAfter, openTenants, type Tenant, told } from './tenants.ts';
import type { Timed } from './timed.ts';

/** What the replica does not have was answered less than this before the master was lost, or by it until it was left. */
const replicationLagMs = 1000;
/** From the moment there is a new master until a request is answered: reconnecting, at the latest after asking who it is. */
const usuallyBackWithinMs = 5000;

interface Loss {
  /** As the report has them. */
  order: string;
  fault: string;
  /** Closed at the end. */
  tenants: Awaited<ReturnType<typeof openTenants>>;
  commandTimeoutMs: number;
  /** Takes the master away; resolves when nothing is asked of it any more. */
  lose: () => unknown;
  /** That will take its place. */
  replica: RedisNode;
  /** On that master. */
  stricken: Tenant;
  backWithinMs?: number | undefined;
  /** On masters that stay. */
  others: readonly Tenant[];
}

/** Reports what was measured, and answers how many charges were answered and lost. */
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
    expect(await tenants.booked(other)).toEqual(told(other));
  }
  const backMs = firstSuccessAfter(takenOverAtMs, stricken.verified)! - takenOverAtMs;
  expect(backMs).toBeLessThan(backWithinMs);

  // Between what was told less what replication may lose, and what was told and what may have run without an answer.
  const isSafe = ({ atMs, tookMs }: Timed) => atMs < lostAtMs - replicationLagMs || atMs - tookMs > takenOverAtMs;
  const safe = {
    ...stricken,
    verified: stricken.verified.filter(isSafe),
    limited: stricken.limited.filter(isSafe),
    checked: stricken.checked.filter(isSafe),
  };
  const unanswered = (answers: Tenant['verified']) => answers.filter(({ status }) => status !== 200).length;
  const [toldToAll, least, booked] = [told(stricken), told(safe), await tenants.booked(stricken)];
  const most = {
    charged: toldToAll.charged + unanswered(stricken.verified),
    spent: toldToAll.spent + unanswered(stricken.verified),
    valid: toldToAll.valid + unanswered(stricken.verified) + unanswered(stricken.limited),
    limited: toldToAll.limited + unanswered(stricken.limited),
    checked: toldToAll.checked + unanswered(stricken.checked),
  };
  for (const what of Object.keys(most) as (keyof typeof most)[]) {
    expect(booked[what], what).toBeGreaterThanOrEqual(least[what]);
    expect(booked[what], what).toBeLessThanOrEqual(most[what]);
  }
  // A script is replicated whole or not at all.
  expect(booked.spent).toBe(booked.charged);
  expect(booked.valid).toBe(booked.charged + booked.limited);

  // From here on the books agree to the unit.
  for (const answers of [stricken.verified, stricken.limited, stricken.checked]) answers.length = 0;
  const after = tenants.load(stricken);
  await until('load', 10_000, async () => stricken.verified.length > 100);
  await after.stop();
  expect(expectAnswered(stricken, commandTimeoutMs).refused).toBe(0);
  const since = told(stricken);
  expect(await tenants.booked(stricken)).toEqual({
    charged: booked.charged + since.charged,
    spent: booked.spent + since.spent,
    valid: booked.valid + since.valid,
    limited: booked.limited + since.limited,
    checked: booked.checked + since.checked,
  });

  const lost = Math.max(0, toldToAll.charged - booked.charged);
  const measured = [
    `${answered} answered, ${refused} refused, none after ${longestMs} ms`,
    `a new master after ${Math.round(takenOverAtMs - lostAtMs)} ms, first success ${Math.round(backMs)} ms later`,
    `${lost} of ${toldToAll.charged} answered charges lost`,
    `books exact afterwards`,
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

/** The replica takes over from a master that is lost like this under load. Answers how many answered charges were lost. */
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
