--! fragment longest_lease lock lease left reads longest
--
-- Sets longest to the longest lease in a lock: that of an owner, lease, or that of a reader. It stays nil where another
-- owner's lease is not known, or lasts as long as the lock: left. budget bounds the readers of which a script reads the
-- leases: see read_release.
local size = redis.call('hlen', lock)
local mode = redis.call('hget', lock, 'mode')
if size == 1 then
  longest = lease
elseif size <= budget and (mode == 'write' and not reads or mode == 'read') then
  --! include prefix_of lock=lock
  local fields
  --! include fields_of key=lock size=size most=budget fields=fields
  longest = fields and lease
  for i = 1, fields and #fields or 0, 2 do
    local field, holds = fields[i], tonumber(fields[i + 1]) or 0
    if string.sub(field, -#':write') == ':write' then
      holds = 0
    end
    budget = budget - math.max(1, holds) -- in this order: 1 for a NaN
    if budget < 0 or holds > 0 and #field > owner_longest then
      longest = nil
    end
    for k = 1, longest and holds or 0 do
      local lasts = redis.call('pttl', prefix .. ':' .. field .. ':rwlock_timeout:' .. k)
      if lasts == -1 or lasts >= left and left > 0 then
        longest = nil
        break
      end
      longest = math.max(longest, lasts)
    end
    if not longest then
      break
    end
  end
end
