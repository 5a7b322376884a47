--! script latch_delete
--! key 1 latch   string
--! key 2 once    string
--! arg 1 keep    ms
--! arg 2 publish string
--! reply int     1 deleted; 0 there was no count
--
-- Removes a latch and tells its waiters. once remembers, for keep, the outcome of this request.
--! include count_value
if not redis.call('set', KEYS[2], value and '1' or '0', 'px', ARGV[1], 'nx') then
  return tonumber(redis.call('get', KEYS[2]))
end
if not value then
  return 0
end
redis.call('del', KEYS[1])
--! include tell_latch publish=ARGV[2] message='1'
return 1
