--! script force_release
--! key 1 lock    hash
--! key 2 channel channel
--! key 3 queue   list
--! arg 1 publish string
--! reply int     1 released; 0 there was no lock
--
-- Removes the lock, whoever holds it, and tells its waiters, and the first of those
-- who stand in the queue of a fair lock. Where several hold it, those who wait to enter under one of them are
-- told, too (see nest_enter).
local several = redis.call('hlen', KEYS[1])
if several == 0 then
  return 0
end
if redis.call('hexists', KEYS[1], 'mode') == 1 then
  return redis.error_reply('WRONGKIND the key holds a read-write lock')
end
local owners = several > 1 and redis.call('hgetall', KEYS[1]) or {}
redis.call('del', KEYS[1])
for i = 1, math.min(#owners, 128), 2 do
  redis.call(ARGV[1], KEYS[2] .. ':under:' .. owners[i], '0')
end
redis.call(ARGV[1], KEYS[2], '0')
local first = redis.call('lindex', KEYS[3], 0)
if first then
  redis.call(ARGV[1], KEYS[2] .. ':' .. first, '0')
end
return 1
