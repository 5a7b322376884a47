--! fragment announce_side publish channel_key reading message
--
-- Tells of a side of a read-write lock that is free: the clients in the queue that can be served, and Redisson's.
-- Clients of mortise do not heed a message that begins with 00: those in the queue were told. + tells that there was
-- no queue.
local served, turn = false, false
--! include wake_queue name=KEYS[1] prefix='redisson_rwlock:'
local queued = redis.pcall('exists', queue) == 1
local heard = not queued and redis.call(publish, channel_key, '+' .. message)
if not reading and (queued or heard > 0) then
  --! include redissons_turn publish=publish turn=turn
end
if queued and not turn then
  --! include tell_sides reading=reading served=served
end
if queued then
  redis.call(publish, channel_key, ((served or turn) and '00' or '') .. message)
end
