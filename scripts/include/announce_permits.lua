--! fragment announce_permits publish
--
-- Announces free permits: to the clients in the queue that can take them, and to Redisson's clients. Redisson wakes
-- as many waiters as the message says, and fails on a negative number. heeded says which messages mortise's clients
-- heed. there becomes the number that is left: a grant by message takes permits.
local served, turn = false, false
--! include wake_queue name=KEYS[1] prefix='redisson_sc:'
local queued = redis.pcall('exists', queue) == 1
local heard = not queued and redis.call(publish, KEYS[3], '+' .. string.format('%.0f', math.min(there, permits_most)))
if queued or heard > 0 then
  --! include wake_turn publish=publish turn=turn
end
if queued then
  local kept, window, granted = 0, 0, 0
  --! include kept_permits entry='' kept=kept window=window
  local free = there - kept
  --! include tell_takers free=free asker='' served=served granted=granted
  local prefix
  served = served or turn
  --! include heeded served=served unheeded='0' prefix=prefix
  there = there - granted
  if there > 0 then
    redis.call(publish, KEYS[3], prefix .. string.format('%.0f', math.min(there, permits_most)))
  end
end
