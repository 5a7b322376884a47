--! fragment extend_lease lock lease track
--
-- Sets the time to live of a lock to max(remaining, lease).
local left = redis.call('pttl', lock)
if left >= 0 and left < lease then
  redis.call('pexpire', lock, lease)
  --! include read_back track=track lock=lock
end
