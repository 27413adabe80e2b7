// The typical key of most figures. Its credits and its limit last through every bench, so that no request is refused.
export const name = 'Ada Lovelace';
/** 60 bytes as JSON. */
export const meta = { plan: 'pro', team: 'payments', region: 'eu-west-1', n: 42 };
export const limit = { name: 'requests', limit: 1_000_000, duration: 60_000, autoApply: true };
export const credits = 1e12;
