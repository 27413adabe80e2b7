// A master is lost under load and its replica takes its place: what callers and books say of it, with Cluster and with Sentinel.

import { expect } from 'vitest';
import { type RedisNode, until } from '../support/redisNodes.ts';
import { expectAnswered, firstSuccessAfter, type openTenants, type Tenant, told } from './tenants.ts';

/** An answer whose write the replica does not have was given less than this before the master was lost. */
const replicationLagMs = 1000;
/** From the moment there is a new master until a request is answered: reconnecting, at the latest after asking who it is. */
const backWithinMs = 5000;

interface Loss {
  tenants: Awaited<ReturnType<typeof openTenants>>;
  commandTimeoutMs: number;
  master: RedisNode;
  replica: RedisNode;
  /** SIGKILL: connections to it end. SIGSTOP: they stay, and nothing comes back. */
  signal: 'SIGKILL' | 'SIGSTOP';
  /** On that master. */
  stricken: Tenant;
  /** On masters that stay. */
  others: readonly Tenant[];
}

/** Answers what was measured, as words for the report. */
export async function loseMaster({ tenants, commandTimeoutMs, master, replica, signal, stricken, others }: Loss) {
  const loads = [stricken, ...others].map((tenant) => tenants.load(tenant));
  await until('load', 10_000, async () => stricken.verified.length > 100);
  const lostAtMs = performance.now();
  master.process.kill(signal);

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
  expect(refused).toBeGreaterThan(0);
  for (const other of others) {
    expect(expectAnswered(other, commandTimeoutMs).refused).toBe(0);
    expect(await tenants.booked(other)).toEqual(told(other));
  }
  const backMs = firstSuccessAfter(takenOverAtMs, stricken.verified)! - takenOverAtMs;
  expect(backMs).toBeLessThan(backWithinMs);

  // Between what was told less what replication may lose, and what was told and what may have run without an answer.
  const atRisk = {
    ...stricken,
    verified: stricken.verified.filter(({ atMs }) => atMs < lostAtMs - replicationLagMs || atMs > lostAtMs),
    limited: stricken.limited.filter(({ atMs }) => atMs < lostAtMs - replicationLagMs || atMs > lostAtMs),
    checked: stricken.checked.filter(({ atMs }) => atMs < lostAtMs - replicationLagMs || atMs > lostAtMs),
  };
  const unanswered = (answers: Tenant['verified']) => answers.filter(({ status }) => status !== 200).length;
  const [toldToAll, least, booked] = [told(stricken), told(atRisk), await tenants.booked(stricken)];
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
  return [
    `${answered} answered, ${refused} refused, none after ${longestMs} ms`,
    `a new master after ${Math.round(takenOverAtMs - lostAtMs)} ms, first success ${Math.round(backMs)} ms later`,
    `${lost} of ${toldToAll.charged} answered charges lost`,
    `books exact afterwards`,
    ...(others.length > 0 ? [`0 refused on other masters`] : []),
  ].join('; ');
}
