--! script semaphore_delete
--! key 1 semaphore string
--! key 2 timeouts  zset
--! key 3 once      string
--! arg 1 keep      ms
--! reply int       1 deleted; 0 there was none
--
-- Removes a semaphore, and its permits in use. once remembers, for keep, the outcome of this request.
--! include count_value
redis.call('zrange', KEYS[2], 0, 0) -- fails on a key of another type, before the first write
if not redis.call('set', KEYS[3], value and '1' or '0', 'px', ARGV[1], 'nx') then
  return tonumber(redis.call('get', KEYS[3]))
end
redis.call('del', KEYS[1], KEYS[2])
return value and 1 or 0
