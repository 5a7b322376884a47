--! script semaphore_add
--! key 1 semaphore string
--! key 2 once      string
--! key 3 channel   channel
--! arg 1 permits   int
--! arg 2 keep      ms
--! arg 3 publish   string
--! reply int       the sum
--
-- Adds permits, for a release or a change of the size, and tells the waiters. A negative number takes permits away,
-- without a check that they are free. once remembers, for keep, that this request was executed. Redisson wakes as
-- many waiters as the message says, and fails on a negative number.
--! include permits_value
if not redis.call('set', KEYS[2], '1', 'px', ARGV[2], 'nx') then
  return tonumber(value or '0')
end
local there = redis.call('incrby', KEYS[1], ARGV[1])
if there > 0 and tonumber(ARGV[1]) > 0 then
  --! include announce_permits publish=ARGV[3]
end
return there
