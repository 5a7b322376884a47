--! fragment told_entries
--
-- The entries whose clients were told to ask, and have time left to; 64 at the most. A score further away than a
-- message could have put it was written by another.
--! include wake_time
local told = {}
if at then
  local last, first = string.format('%.0f', -at - 1000), string.format('%.0f', -at)
  told = redis.pcall('zrangebyscore', queue, last, first, 'limit', 0, 64)
end
