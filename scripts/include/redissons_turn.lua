--! fragment redissons_turn publish turn
--
-- At a release: tells in turn whether clients of Redisson have a turn now. They heed no queue, and are mostly late. In a turn
-- redisson is an entry that was told to ask, for some ms: what it was told of, a permit or both sides, is kept
-- from clients of mortise. A turn that was not used makes the next one longer, and after three there is none for
-- a while. Between two turns each entry is served as often as each client of Redisson's had the lock, as far as
-- was heard (see redisson_heard).
--! include wake_time
local round, kept = queue .. ':round', {}
local names = {'seen', 'pause', 'length', 'misses', 'owed', 'open'}
local fields = redis.pcall('hmget', round, unpack(names)) -- not all: another may have written many
for i = 1, #names do
  local n = tonumber(fields[i] or nil)
  kept[names[i]] = at and n and n >= -1 and n <= at + 10000 and n or 0 -- else written by another
end
local first = redis.pcall('zrangebyscore', queue, 0, '+inf', 'limit', 0, 1)[1]
local mark, foreign = first or publish == 'spublish' and 's' or 'c', at and kept.seen > at and 1 or 0
--! include foreign_subscribers mark=mark channel=channel foreign=foreign
local ends = at and foreign > 0 and -(tonumber(redis.pcall('zscore', queue, 'redisson')) or 0)
if ends and ends >= at and ends <= at + 200 then
  turn = true
  if first then -- it may have been served in this turn, and have been told of nothing since
    tell(first, 'n' .. ends - at + 1 .. ':')
  end
elseif ends then
  local length, misses = math.floor(math.min(math.max(kept.length, 20), 200)), kept.misses
  local owed, pause = kept.owed - 1, kept.pause > at + 4000 and 0 or kept.pause
  if kept.open == 1 then
    length, misses = math.min(2 * length, 200), misses + 1
  end
  if misses >= 3 then
    misses, pause = 0, at + (kept.seen > at and 1000 or 16 * length)
  end
  turn = owed <= 0 and at >= pause
  if turn then
    local entries = (tonumber(redis.pcall('zcard', queue)) or 1) - (ends ~= 0 and 1 or 0) -- the last turn is none
    owed = math.min(entries, 8) / foreign
    redis.pcall('hset', round, 'charge', owed)
    redis.pcall('zadd', queue, string.format('%.0f', -at - length), 'redisson')
    if first then
      tell(first, 'n' .. length .. ':')
    else
      redis.pcall('pexpire', queue, length)
    end
  end
  redis.pcall('hset', round, 'seen', kept.seen, 'pause', pause, 'length', length, 'misses', misses,
    'owed', math.max(owed, -1), 'open', turn and 1 or 0)
  redis.pcall('pexpire', round, 60000)
end
