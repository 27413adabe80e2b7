-- Decide a batch: verifications of keys, ends of holds, and limit checks of one workspace, in order, each authorised by
-- its root key. Each item is decided, charged and counted on its own; a broken record fails only its own item.
--
-- KEYS[1]  workspace   `tg:{ws_…}`
-- derives  key, API, identity, namespace and root key records, permissions, roles, window counters, holds, leases,
--          usage counts, refusals
-- ARGV[1]  settings    separated by spaces: milliseconds for which usage counts are kept; four limits: tags of an API,
--                      bytes of an API's counts by tag in a day, identifiers that a namespace counts in a day, records
--                      of the workspace (0 is no limit); hours for which refusals are kept, and the limit of their
--                      bytes in an hour; the version of the stored data; the time, for tests (nothing is Redis's clock)
-- ARGV[2]  items       one after the other: ITEM_HEAD with the index of its root key (from 1), then VERIFY_ITEM;
--                      HOLD_ITEM and VERIFY_ITEM; HOLD_CHANGE_ITEM and each SETTLED_WINDOW; or a number of checks (1)
--                      and each LIMIT_CHECK. Of a session LEASE_ITEM and one of these, or SETTLE_ITEM and each TALLY.
--                      After the items LEASE_SESSION if there are items of leases; the SHA-256 of each distinct root
--                      key (32); the budget, the work after which the call leaves the remaining items to the next call
--                      (2); the number of root keys (1); 1 with a session, else 0 (1)
-- returns  answers, or with more than these {answers, number of counts by identifier that were left out, the same by
--          tag, number of writes after a charge that failed, the last error of these, then the snapshots of keys whose
--          version in VERIFY_ITEM is out of date, in the order of their answers}
--   answers   BATCH_HEAD, the length of each (2; plus WITH_SNAPSHOT if its snapshot follows), then each:
--   verify    VERIFIED and each VERIFIED_LIMIT, IDENTITY_LEFT if its identity has a balance, and the suffix of its
--             hold and HELD if it made one; NOT_FOUND alone (1)
--   hold      CHANGED_HOLD and each SETTLED_WINDOW, and IDENTITY_LEFT if it charged the identity
--   lease     GRANTED and the answer to the item that follows
--   settle    LEASE_DONE (1)
--   limit     LIMITED and each LIMITED_CHECK
--   error     ITEM_ERROR
--   snapshot  SNAPSHOT, then SNAPSHOT_IDENTITY if the key has an identity. The server caches it by its version, and
--             sends that with the next verification of the key.
--
-- The structures in capitals are declared in src/scripts/layout.ts.

-- @include "decide/batch"

local workspace, settings, items = KEYS[1], ARGV[1], ARGV[2]
return decide_batch(workspace, settings, items)
