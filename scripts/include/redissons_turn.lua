--! fragment redissons_turn publish turn
--
-- At a release: tells in turn whether clients of Redisson have a turn now. They heed no queue, and are mostly late. In a turn
-- redisson is an entry that was told to ask, for some ms: what it was told of, a permit or both sides, is kept
-- from clients of mortise. A turn that was not used makes the next one longer, and after three there is none for
-- a while. Between two turns each entry is served as often as each client of Redisson's had the lock, as far as
-- was heard (see redisson_heard).
--! include wake_time
local first = redis.pcall('zrangebyscore', queue, 0, '+inf', 'limit', 0, 1)[1]
local mark, foreign = first or publish == 'spublish' and 's' or 'c', -1
--! include foreign_subscribers mark=mark channel=channel foreign=foreign
if at and foreign ~= 0 then
  local round, kept = queue .. ':round', {}
  local names = {'seen', 'pause', 'length', 'misses', 'owed', 'open'}
  local fields = redis.pcall('hmget', round, unpack(names)) -- not all: another may have written many
  for i = 1, #names do
    local n = tonumber(fields[i] or nil)
    kept[names[i]] = n and n >= -1 and n <= at + 10000 and n or 0 -- else written by another
  end
  if foreign < 0 then -- the count says nothing
    foreign = kept.seen > at and 1 or 0
  end
  local ends = -(tonumber(redis.pcall('zscore', queue, 'redisson')) or 0)
  if foreign > 0 and ends >= at and ends <= at + 200 then
    turn = true
    if first then -- it may have been served in this turn, and have been told of nothing since
      tell(first, 'n' .. ends - at + 1 .. ':')
    end
  elseif foreign > 0 then
    local length, misses, pause, owed = kept.length, kept.misses, kept.pause, kept.owed - 1
    local seen, missed = kept.seen, kept.open == 1
    --! include missed_window missed=missed length=length misses=misses pause=pause seen=seen now=at
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
    redis.pcall('hset', round, 'seen', seen, 'pause', pause, 'length', length, 'misses', misses,
      'owed', math.max(owed, -1), 'open', turn and 1 or 0)
    redis.pcall('pexpire', round, 60000)
  end
end
