--! fragment announce_side publish channel_key reading message
--
-- Announces a free side of a read-write lock: to the clients in the queue that can be served, and to Redisson's
-- clients. heeded says which messages mortise's clients heed.
local served, turn = false, false
--! include wake_queue name=KEYS[1] prefix='redisson_rwlock:'
local queued = redis.pcall('exists', queue) == 1
local heard = not queued and redis.call(publish, channel_key, '+' .. message)
if not reading and (queued or heard > 0) then
  --! include wake_turn publish=publish turn=turn
end
if queued then
  if not turn then
    --! include tell_sides reading=reading served=served
  end
  local prefix
  served = served or turn
  --! include heeded served=served unheeded='00' prefix=prefix
  redis.call(publish, channel_key, prefix .. message)
end
