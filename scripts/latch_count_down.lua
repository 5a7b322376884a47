--! script latch_count_down
--! key 1 latch   string NAME
--! key 2 once    string mortise:1:once:{NAME}:ID
--! arg 1 keep    ms
--! arg 2 publish publish|spublish
--! reply int     n left; 0 at zero, or there is no count
--! bound 12 calls 3 MB
--
-- Takes one off a latch's count. At zero it removes the latch and tells the waiters, as Redisson does. once
-- remembers, for keep, that this request was executed.
--! include count_value
if redis.call('get', KEYS[2]) then
  return math.min(tonumber(value or '0'), latch_most) -- see count
end
local left = value and redis.pcall('decr', KEYS[1]) or 0 -- before once: a value that cannot be counted down fails here
if type(left) == 'table' then -- a full server
  redis.call('del', KEYS[2]) -- see release: the key is absent
  left = redis.call('decr', KEYS[1])
end
redis.call('set', KEYS[2], '1', 'px', ARGV[1])
if not value then
  return 0
end
if left > 0 then
  return math.min(left, latch_most)
end
redis.call('del', KEYS[1])
--! include tell_latch publish=ARGV[2] message='0'
return 0
