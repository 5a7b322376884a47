--! fragment teller channel
--
-- tell sends a message to the client of an entry, and returns the number of subscribers that it reached, or an error.
-- An entry is a letter, the client's tag, a colon, and a number or an owner. The letter says how the client is told: s
-- by SPUBLISH, p by PUBLISH, n by PUBLISH that does not count all subscribers. PUBLISH also counts clients that
-- subscribe to a pattern, which are no waiters. So with exact, NUMSUB decides whether a message by PUBLISH reached a
-- subscriber. counted has the results of NUMSUB by channel, as far as they are known. tag_of returns the client's tag.
local counted = {}
local function tag_of(entry)
  return string.match(entry, '^.?([^:]*)')
end
local function tell(entry, message, exact)
  local letter, to = string.sub(entry, 1, 1), channel .. ':to:' .. tag_of(entry)
  local heard = redis.pcall(letter == 's' and 'spublish' or 'publish', to, message .. entry)
  if exact and letter == 'p' and heard ~= 0 then
    local count = counted[to] or redis.pcall('pubsub', 'numsub', to)[2]
    heard = count == 0 and type(heard) == 'number' and 0 or heard
  end
  return heard
end
