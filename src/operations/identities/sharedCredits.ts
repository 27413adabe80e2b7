import type { Store } from '../../store.ts';
import { requireData } from '../rules.ts';

/** The version of the stored data from which on all servers charge the balances of identities. */
export const sharedCreditsSince = 6;

/** Refuses a balance while servers of an earlier release may verify keys: they would not charge it. */
export function requireSharedCredits(
  credits: { remaining?: number | null | undefined; refill?: unknown } | null | undefined,
  store: Pick<Store, 'dataVersion'>,
) {
  if (credits && credits.remaining !== null) requireData(store, sharedCreditsSince, 'credits of an identity');
}
