--! fragment leave_wake_queue entry placed was
--
-- Takes an entry out of the queue. If placed is 1, the client has more waiters, and the entry moves to the end
-- instead; placed becomes 0 if that fails. was is the entry's score before. If the entry waited, and was not told to
-- ask, the client of the entry that is now the first is told so.
clock()
was = tonumber(redis.pcall('zscore', queue, entry))
if placed == 1 then
  placed = us and type(redis.pcall('zadd', queue, us, entry)) == 'number' and 1 or 0
  local moved
  --! include to_end entry=entry score=moved
  redis.pcall('pexpire', queue, queue_kept)
elseif was then
  drop(entry)
end
local first = was and was >= 0 and redis.pcall('zrangebyscore', queue, 0, '+inf', 'limit', 0, 1)[1]
if first and first ~= entry then
  tell(first, 'n' .. reservation .. ':')
end
