--! fragment announce_permits publish
--
-- Tells of free permits: the clients in the queue that can take them, and Redisson's, which wakes as many waiters as the
-- message says, and fails on a negative number. Clients of mortise do not heed it where it begins with 0: those in
-- the queue were told.
local served = false
--! include wake_queue name=KEYS[1] prefix='redisson_sc:'
if redis.pcall('exists', queue) == 1 then
  local kept = 0
  --! include kept_permits entry='' kept=kept
  local free = there - kept
  --! include tell_takers free=free asker='' served=served
end
redis.call(publish, KEYS[3], (served and '0' or '') .. string.format('%.0f', math.min(there, 2147483647)))
