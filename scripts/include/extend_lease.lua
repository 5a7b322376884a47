--! fragment extend_lease lock lease exact track reads long
--
-- Sets the time to live of a lock to max(remaining, lease). A lock without a time to live gets the longest lease that it
-- has, and with exact also a lock that lives longer than lease. Without exact, long becomes that longer time. With a
-- lease of 0 nothing changes. reads: the lease is a reader's.
local left = redis.call('pttl', lock)
if left >= 0 and left < lease then
  redis.call('pexpire', lock, lease)
  --! include read_back track=track lock=lock
elseif lease > 0 and (left == -1 or exact == '1' and left > lease) then
  local longest
  --! include longest_lease lock=lock lease=lease left=left reads=reads longest=longest
  if longest then
    redis.call('pexpire', lock, longest)
    --! include read_back track=track lock=lock
  end
elseif lease > 0 and left > lease then
  long = left
end
