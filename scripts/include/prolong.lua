--! fragment prolong key lease
--
-- Sets the time to live of a key to max(remaining, lease). A key without one stays so.
local remaining = redis.call('pttl', key)
if remaining >= 0 and remaining < tonumber(lease) then
  redis.call('pexpire', key, lease)
end
