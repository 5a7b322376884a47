--! fragment serve_queue lock queue channel mark asker heard freed served
--
-- Has the queue of a lock served whose record is absent; freed tells that it was released just now. The record is reserved
-- for the first client in the queue that can be reached, which is told, as is the one behind it: that it is the first
-- now. served is then true. It stays false where nothing is in the queue, or where the first is the asker, whose entry is
-- removed: the lock is free.
--
-- Clients of Redisson do not enrol, nor do waiters for a fair lock: they are foreign here, and have turns (see take_turns),
-- in which no entry is served. served is true then, too. Where there is no entry, mark is how counts are asked for.
--
-- An ask that finds the record absent has found that a reservation ran out. At the third in a row that was not claimed
-- the queue is removed and all clients are told: those that live enrol again, and the lock is free. Where PUBLISH does
-- not count all subscribers the last entry is told of each reservation, too: those behind the first may all be dead.
--! include teller channel=channel
local two = redis.pcall('zrange', queue, 0, 1) -- nothing where the key holds other data
local first, kept, now = two[1] or mark, {}, 0
local say = string.sub(first, 1, 1) == 's' and 'spublish' or 'publish'
local round = queue .. ':round'
local names = {'window', 'pause', 'length', 'seen', 'misses', 'due', 'tenures', 'releases', 'owed', 'lapsed'}
local fields = redis.pcall('hmget', round, unpack(names)) -- not all: another may have written many
if fields[1] or fields[10] then
  --! include clock now=now
  for i = 1, #names do
    local n = tonumber(fields[i] or nil)
    kept[names[i]] = n and n >= 0 and n <= now + 10000 and n or nil -- else written by another; NaN for one
  end
end
local foreign, fair = (kept.seen or 0) > now and 1 or 0
--! include foreign_clients mark=first channel=channel foreign=foreign fair=fair
if fields[1] or foreign > 0 then
  --! include take_turns queue=queue round=round channel=channel asker=asker heard=heard freed=freed served=served
end
local lapsed = freed and 0 or kept.lapsed or 0
if not freed and not served and two[1] and first ~= asker then
  lapsed = lapsed + 1
  if lapsed >= 3 then
    lapsed, two = 0, {}
    redis.pcall('pexpire', queue, 0)
    redis.pcall(say, channel, '0')
  end
end
if lapsed > 0 then
  redis.pcall('hset', round, 'lapsed', lapsed)
  redis.pcall('pexpire', round, 60000)
elseif kept.lapsed then
  redis.pcall('hdel', round, 'lapsed')
end
for i = 1, served and 0 or 256 do
  if not two[1] then
    break
  end
  redis.call('zrem', queue, first)
  if first == asker then
    break
  end
  local told = tell(first, 'r')
  told = type(told) == 'number' and told or 0 -- an old server has no SPUBLISH
  local polls = told == 0 and redis.pcall('hget', round, 'polls:' .. first) -- in a string; a table where it cannot be read
  polls = type(polls) == 'string' and tonumber(polls) or 0
  if polls ~= 0 then
    redis.pcall('hdel', round, 'polls:' .. first)
  end
  if told > 0 or polls > 0 or string.sub(first, 1, 1) == 'n' or i == 256 then
    if type(redis.pcall('hset', lock, 'mortise:reserved:' .. first, '-')) == 'number' then
      redis.call('pexpire', lock, polls > 0 and math.floor(math.min(2 * polls, 100)) or 1000)
      served = true
    end
    if two[2] then
      tell(two[2], 'n1000:')
      local last = string.sub(first, 1, 1) == 'n' and redis.call('zrange', queue, -1, -1)[1]
      if last and last ~= two[2] then
        tell(last, 'l')
      end
    end
    break
  end
  two = redis.call('zrange', queue, 0, 1)
  first = two[1]
end
