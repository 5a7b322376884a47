--! fragment grant_permits entry free told size
--
-- Grants permits to the owner in an entry, if as many as it wants are free, for a first lease, and tells its client: the
-- message is the grant (see grant_side). told becomes true then, the entry is out of the queue, and size is the number
-- of its permits. told stays false if the entry has no owner, or the permits cannot be granted.
local owner, lease
--! include owner_entry entry=entry wants=size owner=owner lease=lease
size = tonumber(size) or 0
local length = lease and size >= 1 and size <= permits_granted and size <= free and #owner / size
local may = length and length % 1 == 0 and length >= permit_shortest and length <= owner_longest
if may and redis.pcall('zrem', queue, entry) == 1 then
  local prefix
  --! include prefix_of lock=KEYS[1]
  local timeouts, ends = prefix .. ':timeout', string.format('%.0f', at + lease + first_spare)
  local permits, ids = {}, {}
  for k = 1, size do
    ids[k] = string.sub(owner, (k - 1) * length + 1, k * length)
    permits[2 * k - 1], permits[2 * k] = ends, ids[k]
  end
  local taken = type(redis.pcall('zadd', timeouts, unpack(permits))) == 'number' and
    type(redis.pcall('incrby', KEYS[1], -size)) == 'number'
  local message = string.format('g%.0f:0:%.0f:', us, lease)
  told = taken and type(tell(entry, message)) == 'number'
  if told then
    redis.pcall('hdel', asks, entry, 'lease:' .. entry)
    local ttl = redis.pcall('pttl', KEYS[1])
    if type(ttl) == 'number' and ttl > 0 then
      redis.pcall('pexpire', timeouts, math.min(ttl, longest_time))
    end
  else
    redis.pcall('zrem', timeouts, unpack(ids))
    if taken then
      redis.pcall('incrby', KEYS[1], size)
    end
  end
end
