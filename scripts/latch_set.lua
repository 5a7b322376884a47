--! script latch_set
--! key 1 latch   string NAME
--! key 2 once    string mortise:1:once:{NAME}:ID
--! arg 1 count   int
--! arg 2 keep    ms
--! arg 3 publish publish|spublish
--! reply int     1 set; 0 there is a count already
--! bound 12 calls 3 MB
--
-- Makes a latch with a count, and tells its waiters. once remembers, for keep, the outcome of this request.
--! include count_value
if not redis.call('set', KEYS[2], value and '0' or '1', 'px', ARGV[2], 'nx') then
  return tonumber(redis.call('get', KEYS[2]))
end
if value then
  return 0
end
redis.call('set', KEYS[1], ARGV[1])
--! include tell_latch publish=ARGV[3] message='1'
return 1
