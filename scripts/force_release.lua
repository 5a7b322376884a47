--! script force_release
--! key 1 lock    hash
--! key 2 channel channel
--! key 3 queue   list
--! arg 1 publish string
--! reply int     1 released; 0 there was no lock
--
-- Removes the lock, whoever holds it, and tells its waiters, and the first of those
-- who stand in the queue of a fair lock.
if redis.call('hlen', KEYS[1]) == 0 then
  return 0
end
if redis.call('hexists', KEYS[1], 'mode') == 1 then
  return redis.error_reply('WRONGKIND the key holds a read-write lock')
end
redis.call('del', KEYS[1])
redis.call(ARGV[1], KEYS[2], '0')
local first = redis.call('lindex', KEYS[3], 0)
if first then
  redis.call(ARGV[1], KEYS[2] .. ':' .. first, '0')
end
return 1
