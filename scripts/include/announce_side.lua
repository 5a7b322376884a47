--! fragment announce_side publish channel_key reading message
--
-- Tells of a side of a read-write lock that is free: the clients in the queue that can be served, and Redisson's. Clients
-- of mortise do not heed a message that begins with 00: those in the queue were told.
local served = false
--! include wake_queue name=KEYS[1] prefix='redisson_rwlock:'
if redis.pcall('exists', queue) == 1 then
  --! include tell_sides reading=reading served=served
end
redis.call(publish, channel_key, (served and '00' or '') .. message)
