--! fragment teller channel
--
-- tell sends a message to the client of an entry, and returns how many subscribers it reached. An entry begins with how its
-- client is told: s by SPUBLISH, p by PUBLISH, n by PUBLISH where that does not count all subscribers. Then comes the
-- client's tag, up to a colon.
local function tell(entry, message)
  return redis.pcall(string.sub(entry, 1, 1) == 's' and 'spublish' or 'publish',
    channel .. ':to:' .. string.match(entry, '^.?([^:]*)'), message .. entry)
end
