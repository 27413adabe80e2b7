// How full limits are now.

import { useData } from '../api.ts';
import type { Explained, Ratelimit } from '../records.ts';
import { Gauge } from './basic.tsx';

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
  return ({ id, name, limit }: Ratelimit) => {
    const used = now.find((one) => one.id === id)?.used;
    return used !== undefined && <Gauge used={used} of={limit} label={`${name} used`} />;
  };
}
