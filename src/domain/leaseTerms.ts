/** LEASE_MS and LEASE_LONG_MS are at most this. */
export const leaseMsMax = 2000;

/**
 * The most that a server may add to the terms of its leases for its distance to Redis, in milliseconds: a server
 * measures that itself, and may be wrong.
 */
export const addedTermMax = 400;

/** The clocks of two machines may differ in speed by 1 %. */
const drift = 1.01;

/** How long to wait for leases of this term, in milliseconds. */
export const waitFor = (termMs: number): number => Math.ceil(termMs * drift) + 1;

/** After this time all leases have ended, whatever the settings of servers are. */
export const allEndedMs = waitFor(leaseMsMax + addedTermMax);
