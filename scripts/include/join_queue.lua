--! fragment join_queue entry wish reserve placed
--
-- Puts the entry of a refused client into the queue. placed is 1 if the entry is in the queue, 2 if it is also the
-- first that waits, 0 on a server that refuses writes. An entry that was told to ask goes before the others.
-- reserve: the client asks again at once, for fewer permits, and these are kept for it.
--! include wake_time
local score, written = tonumber(redis.pcall('zscore', queue, entry)), 0
if not at then
  written = nil
elseif reserve then
  written = redis.pcall('zadd', queue, string.format('%.0f', -at - 1000), entry)
elseif not score or score < 0 then
  written = redis.pcall('zadd', queue, score and 0 or came, entry)
end
if wish ~= '1' then
  redis.pcall('hset', queue .. ':wants', entry, wish)
  redis.pcall('pexpire', queue .. ':wants', 60000)
elseif score then
  redis.pcall('hdel', queue .. ':wants', entry)
end
if type(written) == 'number' then
  redis.pcall('pexpire', queue, 60000)
  placed = redis.pcall('zrangebyscore', queue, 0, '+inf', 'limit', 0, 1)[1] == entry and 2 or 1
end
