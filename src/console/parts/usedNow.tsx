// How full limits are now.

import { useData } from '../api.ts';
import { moment } from '../format.ts';
import type { Explained } from '../records.ts';
import { LimitGauge } from './basic.tsx';
import type { PlacedLimit } from './plan.tsx';

/**
 * The cell of a limit, with the figures of a verification of this key. Empty until there is a key, and for limits that
 * the key does not use.
 */
export function useUsedNow(keyId: string | undefined, limits: readonly PlacedLimit[]) {
  const names = [...new Set(limits.map(({ name }) => name))];
  const { data } = useData<Explained>(
    'keys.explainKey',
    keyId && names.length > 0 ? { keyId, ratelimits: names.map((name) => ({ name, cost: 0 })) } : undefined,
    2000,
  );
  const now = data?.rules.find(({ rule }) => rule === 'ratelimits')?.ratelimits ?? [];
  return (limit: PlacedLimit) => {
    // A limit of a plan has one id for all that have the plan.
    const found = now.find(({ id, of }) => id === limit.id && of === limit.of);
    return (
      found && (
        <>
          <LimitGauge used={found.used} limit={limit} />
          {limit.period && <small>renews {moment(found.reset, { seconds: false })}</small>}
        </>
      )
    );
  };
}
