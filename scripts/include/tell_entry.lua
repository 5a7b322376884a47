--! fragment tell_entry entry told
--
-- Tells the client of an entry to ask, and sets told. An entry without a subscriber is removed, unless its
-- subscribers cannot be counted.
local heard = tell(entry, 'r', true)
told = string.sub(entry, 1, 1) == 'n' or type(heard) == 'number' and heard > 0
if told then
  redis.pcall('zadd', queue, string.format('%.0f', -at - reservation), entry)
else
  drop(entry)
end
