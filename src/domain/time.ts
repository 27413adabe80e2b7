export const hourMs = 3_600_000;
export const dayMs = 24 * hourMs;

/** The end of 2099: the maximum of every time in a request, in Unix milliseconds. */
export const timeMax = 4_102_444_800_000;
