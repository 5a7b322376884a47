--! fragment tell_first queue round first message asker
--
-- Sends a message to the client of first, the first entry that waits in the queue of a plain lock. If the message
-- reaches no subscriber, the client of the next entry gets it, and so on, up to the entry of the asker, 64 at most. An
-- entry without a subscriber is removed if it is older than 100 ms (a client that yields may not have subscribed yet),
-- unless its client polls, or its subscribers cannot be counted.
local entry, behind = first, 0
for _ = 1, entries_passed do
  if not entry or entry == asker or tell(entry, message, true) ~= 0 or string.sub(entry, 1, 1) == 'n' then
    break
  end
  local came, clock = redis.pcall('zrange', queue, behind, behind, 'withscores')[2], redis.pcall('time')
  local old = came and clock[1] and clock[1] * us_per_second + clock[2] - came > entry_new
  if old and redis.pcall('hget', round, 'polls:' .. entry) == false then
    redis.pcall('zrem', queue, entry)
    redis.pcall('hdel', queue .. ':asks', entry)
  else
    behind = behind + 1
  end
  entry = redis.pcall('zrange', queue, behind, behind)[1]
end
