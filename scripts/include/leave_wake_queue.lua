--! fragment leave_wake_queue entry placed was
--
-- Takes an entry out of the queue, or, if placed is 1, since its client has more waiters, to its end; placed is 0 then
-- if it is not in there. was is its score before. If it waited, and was not told to ask, the client of the first that
-- waits now is told that it is the first.
--! include wake_time
was = tonumber(redis.pcall('zscore', queue, entry))
if placed == 1 then
  placed = came and type(redis.pcall('zadd', queue, came, entry)) == 'number' and 1 or 0
  redis.pcall('pexpire', queue, 60000)
elseif was then
  redis.pcall('zrem', queue, entry)
  redis.pcall('hdel', queue .. ':wants', entry)
end
local first = was and was >= 0 and redis.pcall('zrangebyscore', queue, 0, '+inf', 'limit', 0, 1)[1]
if first and first ~= entry then
  tell(first, 'n1000:')
end
