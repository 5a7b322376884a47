--! script rw_force_release
--! key 1 lock    hash
--! key 2 prefix  string
--! key 3 channel channel
--! arg 1 publish string
--! reply int     1 released; 0 there was no lock
--
-- Removes a read-write lock and its readers' timeout keys, whatever its owners, and tells the waiters. publish:
-- publish or spublish. The limit of 10000: see read_release; timeout keys beyond it expire by themselves.
--! include read_write_mode
if not mode then
  return 0
end
local budget = 10000
local fields = redis.call('hgetall', KEYS[1])
for i = 1, #fields, 2 do
  local holds = tonumber(fields[i + 1]) or 0
  budget = budget - math.max(0, holds)
  if budget < 0 then
    break
  end
  for k = 1, holds do
    redis.call('del', KEYS[2] .. ':' .. fields[i] .. ':rwlock_timeout:' .. k)
  end
end
redis.call('del', KEYS[1])
local message = mode == 'write' and '1' or '0'
--! include announce_side publish=ARGV[1] channel_key=KEYS[3] reading=false message=message
return 1
