--! script rw_force_release
--! key 1 lock    hash    NAME
--! key 2 prefix  string  {NAME}
--! key 3 channel channel redisson_rwlock:{NAME}
--! arg 1 publish publish|spublish
--! reply int     1 released; 0 there was no lock
--! bound 11500 calls 10 MB
--
-- Removes a read-write lock and its readers' timeout keys, whatever its owners, and tells the waiters. publish:
-- publish or spublish. The limit holds_read: see longest_reader; timeout keys beyond it expire by themselves.
--! include read_write_mode
if not mode then
  return 0
end
local budget = holds_read
local fields
local size = redis.call('hlen', KEYS[1])
--! include fields_of key=KEYS[1] size=size most=holds_read+1 fields=fields
for i = 1, fields and #fields or 0, 2 do
  local holds = tonumber(fields[i + 1]) or 0
  budget = budget - math.max(0, holds)
  if budget < 0 or #fields[i] > owner_longest then
    break
  end
  for k = 1, holds do
    redis.call('del', KEYS[2] .. ':' .. fields[i] .. ':rwlock_timeout:' .. k)
  end
end
redis.call('unlink', KEYS[1])
local message = mode == 'write' and '1' or '0'
--! include announce_side publish=ARGV[1] channel_key=KEYS[3] reading=false message=message
return 1
