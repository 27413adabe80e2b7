// How full limits are now.

import { useData } from '../api.ts';
import type { Explained, Ratelimit } from '../records.ts';
import { LimitGauge } from './basic.tsx';

/**
 * The cell of a limit, with the figures of a verification of this key. Empty until there is a key, and for limits that
 * the key does not use.
 */
export function useUsedNow(keyId: string | undefined, limits: readonly Ratelimit[]) {
  const names = [...new Set(limits.map(({ name }) => name))];
  const { data } = useData<Explained>(
    'keys.explainKey',
    keyId && names.length > 0 ? { keyId, ratelimits: names.map((name) => ({ name, cost: 0 })) } : undefined,
    2000,
  );
  const now = data?.rules.find(({ rule }) => rule === 'ratelimits')?.ratelimits ?? [];
  return (limit: Ratelimit) => {
    const used = now.find(({ id }) => id === limit.id)?.used;
    return used !== undefined && <LimitGauge used={used} limit={limit} />;
  };
}
