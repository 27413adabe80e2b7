/** LEASE_MS and LEASE_LONG_MS are at most this. */
export const leaseMsMax = 2000;

/**
 * What a server may add to the terms of its leases for its distance to Redis, in milliseconds: it claims what it
 * measured, which may be anything.
 */
export const addedTermMax = 400;
