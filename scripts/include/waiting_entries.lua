--! fragment waiting_entries
--
-- The first 64 waiting entries. Entries whose clients were told to ask, and did not ask in time, are removed, 64 at
-- once.
clock()
local line = {}
if at then
  local late = redis.pcall('zrangebyscore', queue, string.format('(%.0f', -at), '(0', 'limit', 0, entries_told)
  if #late > 0 then
    redis.pcall('zrem', queue, unpack(late))
    redis.pcall('hdel', asks, unpack(late))
  end
  line = redis.pcall('zrangebyscore', queue, 0, '+inf', 'limit', 0, entries_told)
end
