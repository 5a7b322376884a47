--! fragment grant_side entry wants told
--
-- Grants the side that an entry wants to the owner in it, for a first lease, and tells its client: the message is the
-- grant. The record lasts a little longer than what the client believes (see grant_entry). absent and reads say what
-- the record is. told becomes true then, and the entry is out of the queue. It stays false if the entry has no owner, or
-- the side cannot be granted: the client is then told to ask. A writer's grant ends the claim of its client, whose id
-- the owner begins with. Nothing that a grant meets fails the release of another.
local side, owner, lease
--! include owner_entry entry=entry wants=side owner=owner lease=lease
local may = lease and side == wants and #owner <= owner_longest and (absent or side == 'r' and reads)
if may and redis.pcall('zrem', queue, entry) == 1 then
  local field, lasts, done = owner, lease + first_spare, true
  local prefix
  --! include prefix_of lock=KEYS[1]
  local timeout = prefix .. ':' .. owner .. ':rwlock_timeout:1'
  if side == 'w' then
    field = owner .. ':write'
  else
    done = redis.pcall('set', timeout, '1', 'px', lasts).ok ~= nil
  end
  local mode = side == 'w' and 'write' or 'read'
  done = done and type(redis.pcall('hset', KEYS[1], 'mode', mode, field, '1')) == 'number'
  local left = done and not absent and redis.pcall('pttl', KEYS[1])
  if done and (absent or type(left) ~= 'number' or left >= 0 and left < lasts) then
    done = redis.pcall('pexpire', KEYS[1], lasts) == 1
  end
  local message = string.format('g%.0f:0:%.0f:', us, lease)
  told = done and type(tell(entry, message)) == 'number'
  if told then
    redis.pcall('hdel', asks, entry, 'lease:' .. entry)
    local by = side == 'w' and redis.pcall('get', claim)
    if type(by) == 'string' and string.sub(owner, 1, #by + 1) == by .. ':' then
      redis.pcall('del', claim)
    end
    absent, reads = false, side == 'r'
  else
    if side == 'r' then
      redis.pcall('del', timeout)
    end
    if absent then
      redis.pcall('del', KEYS[1])
    else
      redis.pcall('hdel', KEYS[1], field)
    end
  end
end
