--! script semaphore_add
--! key 1 semaphore string  NAME
--! key 2 once      string  mortise:1:once:{NAME}:ID
--! key 3 channel   channel redisson_sc:{NAME}
--! arg 1 permits   int
--! arg 2 keep      ms
--! arg 3 publish   publish|spublish
--! reply int       the sum
--! bound 1000 calls 10 MB
--
-- Adds permits, for a release or a change of the size, and tells the waiters. A negative number takes permits away,
-- without a check that they are free. once remembers, for keep, that this request was executed. Redisson wakes as
-- many waiters as the message says, and fails on a negative number.
--! include permits_value
local set = redis.pcall('set', KEYS[2], '1', 'px', ARGV[2], 'nx')
if type(set) == 'table' and set.err then -- a full server
  set = false -- executed before
  if not redis.call('get', KEYS[2]) then
    redis.call('unlink', KEYS[2]) -- see release: the key is absent
    set = redis.call('set', KEYS[2], '1', 'px', ARGV[2], 'nx')
  end
end
if not set then
  return tonumber(value or '0')
end
local there = redis.call('incrby', KEYS[1], ARGV[1])
if there > 0 and tonumber(ARGV[1]) > 0 then
  --! include announce_permits publish=ARGV[3]
end
return there
