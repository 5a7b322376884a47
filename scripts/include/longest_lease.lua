--! fragment longest_lease lock lease left reads longest
--
-- Sets longest to the longest lease in a lock: that of an owner, lease, or that of a reader. It stays nil where another
-- owner's lease is not known, or lasts as long as the lock: left. See longest_reader.
local size, mode = redis.call('hlen', lock), redis.call('hget', lock, 'mode')
if size == 1 then
  longest = lease
elseif size <= budget and (mode == 'write' and not reads or mode == 'read') then
  --! include prefix_of lock=lock
  local enough = left > 0 and left or math.huge
  longest = lease
  --! include longest_reader lock=lock prefix=prefix size=size enough=enough longest=longest
end
