--! fragment read_write_mode
--
-- The mode of a read-write lock, read or write; nil if the key is absent. Refuses other locks.
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode and redis.call('exists', KEYS[1]) == 1 then
  return redis.error_reply('WRONGKIND the key holds a lock that is no read-write lock')
end
