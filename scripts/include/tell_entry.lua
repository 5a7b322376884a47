--! fragment tell_entry entry told
--
-- Tells the client of an entry to ask: told. An entry without a subscriber goes; an entry that begins with n is told
-- where PUBLISH does not count all subscribers.
local how, to = string.sub(entry, 1, 1), string.match(entry, '^.?([^:]*)')
local heard = redis.pcall(how == 's' and 'spublish' or 'publish', channel .. ':to:' .. to, 'r' .. entry)
told = how == 'n' or type(heard) == 'number' and heard > 0
if told then
  redis.pcall('zadd', queue, string.format('%.0f', -now - 1000), entry)
else
  redis.pcall('zrem', queue, entry)
end
