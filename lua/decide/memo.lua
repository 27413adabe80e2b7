-- A cache of results that is kept as long as the library. Many verifications are equal, and parsing and evaluating a
-- query took longer than everything else. Long texts are not cached; when the cache is full, it is emptied.
local MEMO_TEXT_MAX, MEMO_TOTAL_MAX = 1024, 524288
-- Estimated bytes of a value and its place in the table.
local MEMO_ENTRY_BYTES = 256

local memo_bytes = 0

local function memoize(text, value)
  if #text > MEMO_TEXT_MAX then return end
  memo_bytes = memo_bytes + #text + MEMO_ENTRY_BYTES
  if memo_bytes > MEMO_TOTAL_MAX then
    memo, memo_bytes = {}, #text + MEMO_ENTRY_BYTES
  end
  memo[text] = value
end
