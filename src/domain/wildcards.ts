// Overrides with a `*` in their identifier.

/**
 * Limits of the wildcards of a namespace, all together, because a script may compare each of a hundred checks with
 * every one: how many `*` they have; how many have text between two `*`, which needs a search through the whole
 * identifier; their bytes.
 */
export const wildcardsMax = { stars: 256, searching: 16, bytes: 16_384 };

/**
 * Limit of the wildcards of all namespaces of a workspace, because a call may name a hundred namespaces and the script
 * parses the wildcards of all of them: 4 µs each.
 */
export const workspaceWildcardsMax = 2000;
