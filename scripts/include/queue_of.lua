--! fragment queue_of lock
--
-- The key of a lock's queue. A name with braces of its own gets a colon, so no two names share a queue. The key is not
-- among KEYS, so a cluster node to which the slot is being moved refuses access: a pcall then takes the queue for
-- empty.
local queue = 'mortise:1:next:{' .. lock .. '}2'
if lock:find('{', 1, true) then
  queue = 'mortise:1:next:' .. lock .. ':2'
end
