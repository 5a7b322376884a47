--! fragment wake_turn publish turn
--
-- At a release of a semaphore or a read-write lock: turn becomes true if clients of Redisson have a turn now (see
-- redissons_turn). In a turn the entry redisson is in the queue like an entry that was told to ask: a permit, or both
-- sides, are granted to no client of mortise.
local head = redis.pcall('zrangebyscore', queue, 0, '+inf', 'withscores', 'limit', 0, 1)
local mark, foreign = head[1] or publish == 'spublish' and 's' or 'c', -1
local round, also, count = queue .. ':round', {}, {}
if string.sub(mark, 1, 1) == 'p' then -- it is told here, or by the script
  also[1] = channel .. ':to:' .. tag_of(head[1])
end
--! include foreign_subscribers mark=mark foreign=foreign also=also count=count
for i = counted_from, #count, 2 do
  counted[count[i]] = count[i + 1]
end
local function entries() -- but for the one of the last turn
  return (tonumber(redis.pcall('zcard', queue)) or 1) - (tonumber(redis.pcall('zrem', queue, 'redisson')) or 0)
end
if foreign ~= 0 then
  clock()
end
if at and foreign ~= 0 then
  local length, dropped = 0, false
  --! include redissons_turn release=true heard=false foreign=foreign fair=0 entries=entries() turn=turn length=length
  if turn then
    local message = 'n' .. length .. ':'
    redis.pcall('zadd', queue, string.format('%.0f', -at - length), 'redisson')
    --! include tell_first first=head message=message asker='' nth=redis.pcall('zrangebyscore',queue,0,'+inf','withscores','limit',behind,1) dropped=dropped
    if not head[1] then -- an entry that was told to ask has a second at most
      redis.pcall('pexpire', queue, redis.pcall('zcard', queue) == 1 and length or reservation)
    end
  end
end
