--! fragment redissons_turn publish turn
--
-- At a release of a semaphore or a read-write lock: turn becomes true if clients of Redisson have a turn now. They do
-- not heed the queue, and mostly ask later than clients of mortise. In a turn, of 20 to 200 ms, the entry redisson is
-- in the queue like an entry that was told to ask: a permit, or both sides, are granted to no client of mortise. An
-- unused turn doubles the length of the next one; after three in a row there is a pause (see missed_window). After a
-- turn, the next one comes when as many releases are over as there are entries, eight at most, divided by the number
-- of Redisson's clients. A release by Redisson that is heard outside a turn costs as many (see redisson_heard).
--! include wake_time
local first = redis.pcall('zrangebyscore', queue, 0, '+inf', 'limit', 0, 1)[1]
local mark, foreign = first or publish == 'spublish' and 's' or 'c', -1
local also, count = {}, {}
if string.sub(mark, 1, 1) == 'p' then -- it is told here, or by the script
  also[1] = channel .. ':to:' .. string.match(first, '^.?([^:]*)')
end
--! include foreign_subscribers mark=mark channel=channel foreign=foreign also=also count=count
for i = counted_from, #count, 2 do
  counted[count[i]] = count[i + 1]
end
if at and foreign ~= 0 then
  local round, kept = queue .. ':round', {}
  local names = {'seen', 'pause', 'length', 'misses', 'owed', 'open'}
  local fields = redis.pcall('hmget', round, unpack(names)) -- not HGETALL: another program may have added fields
  for i = 1, #names do
    local n = tonumber(fields[i] or nil)
    kept[names[i]] = n and n >= -1 and n <= at + foreign_seen and n or 0 -- otherwise not written by mortise
  end
  if foreign < 0 then -- subscribers cannot be counted
    foreign = kept.seen > at and 1 or 0
  end
  local ends = -(tonumber(redis.pcall('zscore', queue, 'redisson')) or 0)
  if foreign > 0 and ends >= at and ends <= at + window_longest then
    turn = true
    if first then -- it may be new, and not know of the turn
      local message = 'n' .. ends - at + 1 .. ':'
      --! include tell_first_waiting first=first message=message
    end
  elseif foreign > 0 then
    local length, misses, pause, owed = kept.length, kept.misses, kept.pause, kept.owed - 1
    local seen, missed = kept.seen, kept.open == 1
    --! include missed_window missed=missed length=length misses=misses pause=pause seen=seen now=at
    turn = owed <= 0 and at >= pause
    if turn then
      local entries = (tonumber(redis.pcall('zcard', queue)) or 1) - (ends ~= 0 and 1 or 0) -- the last turn is no entry
      owed = math.min(entries, turn_most) / foreign
      redis.pcall('hset', round, 'charge', owed)
      redis.pcall('zadd', queue, string.format('%.0f', -at - length), 'redisson')
      local message = 'n' .. length .. ':'
      --! include tell_first_waiting first=first message=message
      if not first then -- an entry that was told to ask has a second at most
        redis.pcall('pexpire', queue, redis.pcall('zcard', queue) == 1 and length or reservation)
      end
    end
    redis.pcall('hset', round, 'seen', seen, 'pause', pause, 'length', length, 'misses', misses,
      'owed', math.max(owed, -1), 'open', turn and 1 or 0)
    redis.pcall('pexpire', round, round_kept)
  end
end
