--! fragment set_holds lock owner holds
--
-- Sets the hold count of an owner, also on a full server: see release. Ends with a read of the lock: the write has
-- dropped the registration of a connection with tracking, and the read restores it.
if type(redis.pcall('hset', lock, owner, holds)) == 'table' then
  redis.call('hdel', lock, '') -- changes nothing
  redis.call('hset', lock, owner, holds)
end
redis.call('exists', lock)
