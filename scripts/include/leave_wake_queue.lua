--! fragment leave_wake_queue entry stays was
--
-- Takes an entry out of the queue, or, if its client has more waiters, to its end. was is its score before. If it
-- waited, and was not told to ask, the client of the first that waits now is told that it is the first.
--! include wake_time
was = tonumber(redis.pcall('zscore', queue, entry))
if stays and came then
  redis.pcall('zadd', queue, came, entry)
  redis.pcall('pexpire', queue, 60000)
elseif was then
  redis.pcall('zrem', queue, entry)
  redis.pcall('hdel', queue .. ':wants', entry)
end
local first = was and was >= 0 and redis.pcall('zrangebyscore', queue, 0, '+inf', 'limit', 0, 1)[1]
if first and first ~= entry then
  --! include tell_second entry=first after='5000'
end
