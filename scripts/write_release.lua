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
-- holds_read: see read_release.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return 0
end
if ARGV[2] ~= '0' then
  if type(redis.pcall('hset', KEYS[1], ARGV[1], ARGV[2])) == 'table' then -- a full server
    redis.call('hdel', KEYS[1], '') -- see release
    redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
  end
  redis.call('exists', KEYS[1])
  return 1
end
redis.call('hdel', KEYS[1], ARGV[1])
local most, budget, reading = 0, holds_read, false
local fields
local size = redis.call('hlen', KEYS[1])
--! include fields_of key=KEYS[1] size=size most=holds_read+1 fields=fields
budget = fields and budget or -1
for i = 1, fields and #fields or 0, 2 do
  local holds = tonumber(fields[i + 1]) or 0
  budget = budget - math.max(0, holds)
  if budget < 0 or holds > 0 and #fields[i] > owner_longest then
    budget = -1
    break
  end
  for k = 1, holds do
    local lasts = redis.call('pttl', KEYS[2] .. ':' .. fields[i] .. ':rwlock_timeout:' .. k)
    if lasts == -1 then -- a live reader, whose next renewal puts it right: the lock keeps its time to live
      budget = -1
      break
    end
    most = math.max(most, lasts)
  end
end
if most > 0 or budget < 0 then
  reading = true
  redis.call('hset', KEYS[1], 'mode', 'read')
  if budget >= 0 then
    redis.call('pexpire', KEYS[1], most)
  end
  redis.call('exists', KEYS[1])
else
  redis.call('del', KEYS[1])
end
--! include announce_side publish=ARGV[3] channel_key=KEYS[3] reading=reading message='1'
return 1
