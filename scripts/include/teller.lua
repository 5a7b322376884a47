--! fragment teller channel
--
-- tell sends a message to the client of an entry, and returns the number of subscribers that it reached, or an error.
-- An entry is a letter, the client's tag, a colon and a number. The letter says how the client is told: s by SPUBLISH,
-- p by PUBLISH, n by PUBLISH that does not count all subscribers.
local function tell(entry, message)
  return redis.pcall(string.sub(entry, 1, 1) == 's' and 'spublish' or 'publish',
    channel .. ':to:' .. string.match(entry, '^.?([^:]*)'), message .. entry)
end
