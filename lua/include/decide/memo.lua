-- A table of results that stays with the library between calls: many keys are asked the same, and parsing a query and holding
-- it against permissions took longer than everything else. Bounded in bytes of a text and in bytes of all; a table that is
-- full is dropped.
local MEMO_TEXT_MAX, MEMO_TOTAL_MAX = 1024, 524288
-- The value and its place in the table are counted as so many bytes.
local MEMO_ENTRY_BYTES = 256

local memo, memo_bytes = {}, 0

local function memoize(text, value)
  if #text > MEMO_TEXT_MAX then return end
  memo_bytes = memo_bytes + #text + MEMO_ENTRY_BYTES
  if memo_bytes > MEMO_TOTAL_MAX then
    memo, memo_bytes = {}, #text + MEMO_ENTRY_BYTES
  end
  memo[text] = value
end
