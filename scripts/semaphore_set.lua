--! script semaphore_set
--! key 1 semaphore string  NAME
--! key 2 once      string  mortise:1:once:{NAME}:ID
--! key 3 channel   channel redisson_sc:{NAME}
--! arg 1 permits   int
--! arg 2 keep      ms
--! arg 3 publish   publish|spublish
--! reply int       1 set; 0 there is a count already
--! bound 1000 calls 10 MB
--
-- Makes a semaphore of either kind, and tells the waiters. once remembers, for keep, the outcome of this request.
--! include count_value
if not redis.call('set', KEYS[2], value and '0' or '1', 'px', ARGV[2], 'nx') then
  return tonumber(redis.call('get', KEYS[2]))
end
if value then
  return 0
end
redis.call('set', KEYS[1], ARGV[1])
local there = tonumber(ARGV[1])
if there > 0 then
  --! include announce_permits publish=ARGV[3]
end
return 1
