--! fragment teller
--
-- What the scripts do with the entries of a queue. An entry is a letter, the client's tag, a colon, and a number or an
-- owner. The letter says how the client is told: s by SPUBLISH, p by PUBLISH, n by PUBLISH that does not count all
-- subscribers. queue is the key of the queue, asks that of the hash that says what entries ask for, and channel that of
-- Redisson's channel.
--
-- tell sends a message to the client of an entry, and returns the number of subscribers that it reached, or an error.
-- PUBLISH also counts clients that subscribe to a pattern, which are no waiters. So with exact, NUMSUB decides whether a
-- message by PUBLISH reached a subscriber. counted has the results of NUMSUB by channel, as far as they are known.
-- tag_of returns the client's tag, listens the number of its subscribers: 1 for n, nil if they cannot be counted. drop
-- takes an entry out of the queue. clock reads the server's clock, once: at in ms, us in microseconds. Both stay nil if
-- the Redis user may not run TIME. aged reports whether an entry with this score is so old that its client has subscribed.
local counted, at, us = {}, nil, nil
local function tag_of(entry)
  return string.match(entry, '^.?([^:]*)')
end
local function listens(entry)
  local letter, to = string.sub(entry, 1, 1), channel .. ':to:' .. tag_of(entry)
  local count = letter == 'n' and 1 or counted[to]
  return count or redis.pcall('pubsub', letter == 's' and 'shardnumsub' or 'numsub', to)[2]
end
local function tell(entry, message, exact)
  local letter, to = string.sub(entry, 1, 1), channel .. ':to:' .. tag_of(entry)
  local heard = redis.pcall(letter == 's' and 'spublish' or 'publish', to, message .. entry)
  if exact and letter == 'p' and type(heard) == 'number' and heard > 0 and listens(entry) == 0 then
    return 0
  end
  return heard
end
local function drop(entry)
  redis.pcall('zrem', queue, entry)
  redis.pcall('hdel', asks, entry, 'lease:' .. entry)
end
local function clock()
  local time = not us and redis.pcall('time') or {}
  if time[1] then
    at, us = time[1] * ms_per_second + math.floor(time[2] / us_per_ms), time[1] * us_per_second + time[2]
  end
end
local function aged(score)
  clock()
  return us and us - score > entry_new
end
