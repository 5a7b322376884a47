--! fragment serve_queue lock queue channel asker heard freed served
--
-- Has the queue of a lock served whose record is absent; freed tells that it was released just now. The record is reserved
-- for the first client in the queue that can be reached, which is told, as is the one behind it: that it is the first
-- now. served is then true. It stays false where nothing is in the queue, or where the first is the asker, whose entry is
-- removed: the lock is free.
--
-- Clients of Redisson do not enrol, nor do waiters for a fair lock: they are foreign here, and have turns. In a turn
-- there are as many windows as foreign clients, eight at the most: the record stays absent for some time, in which no
-- entry is served. A window that none of them uses makes the next one longer, and after three there is none for a while.
-- Then it is the turn of the entries, each of which is served as often as a foreign client was, as far as that was seen:
-- once at least, and eight times at the most.
--
-- An ask that finds the record absent has found that a reservation ran out. At the third in a row that was not claimed
-- the queue is removed and all clients are told: those that live enrol again, and the lock is free. Where PUBLISH does
-- not count all subscribers the last entry is told of each reservation, too: those behind the first may all be dead.
local function tell(entry, message)
  return redis.pcall(string.sub(entry, 1, 1) == 's' and 'spublish' or 'publish',
    channel .. ':to:' .. string.match(entry, '^.?([^:]*)'), message .. entry)
end
local time = redis.call('time')
local now = time[1] * 1000 + time[2] / 1000
local first = redis.pcall('zrange', queue, 0, 0)[1] or 'n' -- nothing where the key holds other data
local round, kept = queue .. ':round', {}
local fields = redis.pcall('hgetall', round)
for i = 1, #fields, 2 do
  local n = tonumber(fields[i + 1])
  kept[fields[i]] = n and n >= 0 and n <= now + 10000 and n or nil -- else written by another; NaN for one
end
local window, pause = kept.window or 0, kept.pause or 0
local length, seen = math.floor(math.min(math.max(kept.length or 0, 20), 200)), kept.seen or 0
local misses, due, tenures = kept.misses or 0, kept.due or 0, kept.tenures or 0
local releases, owed = kept.releases or 0, kept.owed or 0
if window > now + 200 or pause > now + 4000 then -- written by another
  window, pause = 0, 0
end
local foreign, fair = seen > now and 1 or 0
--! include foreign_clients mark=first channel=channel foreign=foreign fair=fair
if window > now and not heard then
  served = true
  if freed and first ~= 'n' then -- it may have come while the record was held, and have been told of nothing
    tell(first, 'n' .. math.ceil(window - now) .. ':')
  end
elseif tenures > 0 or foreign > 0 then
  if heard then
    length, misses, seen = math.max(20, math.floor(length * 3 / 4)), 0, now + 10000
  elseif window > 0 then
    length, misses = math.min(2 * length, 200), misses + 1
  end
  if misses >= 3 then
    misses, due, pause = 0, 0, now + (seen > now and 1000 or 16 * length)
  end
  local entries = #redis.pcall('zrange', queue, 0, 7)
  window, releases = 0, releases + (freed and 1 or 0)
  if freed and releases >= math.max(entries, math.min(owed, 64)) and now >= pause then
    due, tenures = math.min(foreign, 8), 1
  end
  if due > 0 and foreign > 0 then
    due, window, served = due - 1, now + length, true
    -- 0 to Redisson, and a release to mortise of before, which wake; mortise does not.
    redis.pcall(string.sub(first, 1, 1) == 's' and 'spublish' or 'publish', channel, '000')
    if fair then
      redis.pcall(string.sub(first, 1, 1) == 's' and 'spublish' or 'publish', channel .. ':' .. fair, '0')
    end
    if first ~= asker then
      tell(first, 'n' .. length .. ':')
    end
  elseif tenures > 0 then
    owed = math.min(tenures / math.max(foreign, 1), 8) * entries
    tenures, releases = 0, 0
  end
  redis.pcall('hset', round, 'window', window, 'length', length, 'misses', misses, 'pause', pause, 'seen', seen,
    'due', due, 'tenures', tenures, 'releases', releases, 'owed', owed)
  redis.pcall('pexpire', round, 60000)
end
local lapsed = freed and 0 or kept.lapsed or 0
if not freed and not served and first ~= 'n' and first ~= asker then
  lapsed = lapsed + 1
end
if lapsed >= 3 then
  lapsed = 0
  redis.pcall('pexpire', queue, 0)
  redis.pcall(string.sub(first, 1, 1) == 's' and 'spublish' or 'publish', channel, '0')
end
if lapsed > 0 then
  redis.pcall('hset', round, 'lapsed', lapsed)
  redis.pcall('pexpire', round, 60000)
elseif kept.lapsed then
  redis.pcall('hdel', round, 'lapsed')
end
for i = 1, served and 0 or 256 do
  first = redis.pcall('zrange', queue, 0, 0)[1]
  if first then
    redis.call('zrem', queue, first)
  end
  if not first or first == asker then
    break
  end
  local told = tell(first, 'r')
  told = type(told) == 'number' and told or 0 -- an old server has no SPUBLISH
  local polls = told == 0 and kept['polls:' .. first] or 0
  if told > 0 or polls > 0 or string.sub(first, 1, 1) == 'n' or i == 256 then
    if type(redis.pcall('hset', lock, 'mortise:reserved:' .. first, '-')) == 'number' then
      redis.call('pexpire', lock, polls > 0 and math.floor(math.min(2 * polls, 100)) or 1000)
      served = true
    end
    local second = redis.call('zrange', queue, 0, 0)[1]
    if second then
      tell(second, 'n1000:')
      local last = string.sub(first, 1, 1) == 'n' and redis.call('zrange', queue, -1, -1)[1]
      if last and last ~= second then
        tell(last, 'l')
      end
    end
    break
  end
end
