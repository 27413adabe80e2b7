-- Outcomes of a verification, in the order of src/domain/verification.ts. Those up to OUTCOMES_COUNTED are counted in usage, by
-- key and by API; NOT_FOUND is about no key.
local VALID, DISABLED, EXPIRED, INSUFFICIENT_PERMISSIONS, RATE_LIMITED, USAGE_EXCEEDED, NOT_FOUND = 1, 2, 3, 4, 5, 6, 7
local OUTCOMES_COUNTED = 6
