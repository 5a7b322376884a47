--! script write_release
--! key 1 lock    hash    NAME
--! key 2 prefix  string  {NAME}
--! key 3 channel channel redisson_rwlock:{NAME}
--! arg 1 owner   string
--! arg 2 keep    int
--! arg 3 publish publish|spublish
--! reply int     1 done; 0 the owner does not hold the lock
--! bound 11500 calls 10 MB
--
-- Sets the hold count of a writer to keep. At zero it removes the writer and tells the waiters. Readers that entered
-- under the writer go on reading (a downgrade): the lock then lives as long as the longest lease of a reader.
-- publish: publish or spublish. If the lock stays held, the script ends with a read: see release. The limit
-- holds_read: see longest_reader.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return 0
end
if ARGV[2] ~= '0' then
  --! include set_holds lock=KEYS[1] owner=ARGV[1] holds=ARGV[2]
  return 1
end
redis.call('hdel', KEYS[1], ARGV[1])
local longest, budget, size = 0, holds_read, redis.call('hlen', KEYS[1])
--! include longest_reader lock=KEYS[1] prefix=KEYS[2] size=size enough=math.huge longest=longest
local reading = longest ~= 0
if reading then
  redis.call('hset', KEYS[1], 'mode', 'read')
  if longest then -- otherwise the lock keeps its time to live
    redis.call('pexpire', KEYS[1], longest)
  end
  redis.call('exists', KEYS[1])
else
  redis.call('del', KEYS[1])
end
--! include announce_side publish=ARGV[3] channel_key=KEYS[3] reading=reading message='1'
return 1
