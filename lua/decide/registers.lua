-- The variables that the modules of a decision share. They are declared before all modules. They are used again for
-- every item, because a table for each would be most of the work; as fields of tables they cost 3 to 16 % (callgrind).

-- The call, and the batch that it decides now (call.lua). Only begin_call, begin_batch and add_work change these
-- variables.
-- The arguments of the batch, see the header of lua/decide.lua. The digests of the root keys are in `call_items` after
-- `call_roots_at`.
local call_workspace, call_items, call_roots_at
-- The prefix of the names of key records.
local call_key_records
-- The settings of the server that sent the call: text (that they were read from), retention, tags_max, tag_bytes_max,
-- identifiers_max, records_max, refusal_hours, refusal_bytes, data_version, time (of a test; '' for Redis's clock).
local call_settings = {}
-- The time in milliseconds; its hour and day since 1970, and its hour of the day (`00` to `23`).
local call_now, call_hour, call_day, call_hour_of_day
-- Increases with every batch.
local call_number = 0
-- Namespaces by name, read once per batch (limitChecks.lua).
local call_namespaces = {}
-- Written at the end of the batch (totals.lua): counts by record and field, and the limits of a record.
local call_totals, call_total_bounds = {}, {}
-- The work done for the batch so far, in units of about a microsecond.
local call_work

-- A cache of results (memo.lua).
local memo = {}

-- The key of a verification (loadedKey.lua). Only read_key, read_tallied_key, key_written and the functions of
-- loaded_key change these variables. The name of its record, and its state. `key_api` is {id, valid, …} of apis.lua.
local key_name, key_packed, key_api
local key_version_time, key_version_number, key_api8, key_flags, key_expires, key_refill_amount, key_refill_day
-- Positions in the state.
local key_limits_at, key_tail_at
-- The externalId in the state ('' for none), and that of the identity if it exists. They differ after the identity was
-- deleted: earlier counts are counts of the identity, later ones are not.
local key_linked_id, key_external_id = '', ''
-- The state of the identity, nil when there is none.
local key_identity
-- {state, name, meta} and {state, meta}: read together with the states if the server has no snapshot.
local key_display, key_identity_display

-- The charge of a verification (charge.lua).
-- The number of limits in the state of the key, and the number of limits that apply.
local charge_stored, charge_count = 0, 0
-- The end of the newest slice of the windows that were charged while the clock was ahead; false if there are none. If
-- there are, charge_exceeded is true too, and the other results are invalid.
local charge_ahead = false
-- The lengths of the charged windows of the key and of its identity.
local charge_lengths, charge_identity_lengths
-- The charged counters of ad hoc limits, in the form of write_counters; nil when there are none.
local charge_counters

-- The checks of the last limit check that was not refused (limitChecks.lua).
local item_checks
