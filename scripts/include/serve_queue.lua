--! fragment serve_queue lock queue channel asker heard freed served
--
-- Has the queue of a lock served whose record is absent; freed tells that it was released just now. The record is reserved
-- for the first client in the queue that can be reached, which is told, as is the one behind it: that it is the first
-- now. served is then true. It stays false where nothing is in the queue, or where the first is the asker, whose entry is
-- removed: the lock is free.
--
-- Clients of Redisson do not enrol, nor do waiters for a fair lock: they are foreign here. After each
-- round, which is as many releases as there are entries, eight at the most, they have a window: the record stays absent
-- for some time, in which no entry is served. A window that none of them uses makes the next one longer.
--
-- Subscribers of Redisson's channel that do not subscribe to mortise's beside it are foreign. An entry begins with how its
-- client is told: s by SPUBLISH, p by PUBLISH, n by PUBLISH where that does not count all subscribers. Then foreign is
-- what was seen to hold the lock.
local first = redis.pcall('zrange', queue, 0, 0)[1] or 'n' -- nothing where the key holds other data
local counts, say = string.sub(first, 1, 1) ~= 'n', string.sub(first, 1, 1) == 's' and 'spublish' or 'publish'
local round = queue .. ':round'
local fair = 'redisson_lock_queue:' .. string.sub(channel, 24)
--! include server_time
local fields, kept = redis.pcall('hgetall', round), {}
for i = 1, #fields, 2 do
  local n = tonumber(fields[i + 1])
  kept[fields[i]] = n and n >= 0 and n <= now + 10000 and math.floor(n) or nil -- else written by another; NaN for one
end
local window, length = kept.window or 0, math.min(math.max(kept.length or 0, 20), 200)
local misses, due, pause, releases = kept.misses or 0, kept.due or 0, kept.pause or 0, kept.releases or 0
if window > now + 200 or pause > now + 1000 then -- written by another
  window, pause = 0, 0
end
local foreign = (kept.foreign or 0) > now and 1 or 0
if counts then
  local count = redis.pcall('pubsub', say == 'spublish' and 'shardnumsub' or 'numsub', channel, channel .. ':mortise')
  foreign = count[4] and count[2] - count[4] or foreign
end
local waiting = redis.pcall('lindex', fair, 0)
waiting = type(waiting) == 'string' and waiting
foreign = foreign + (waiting and 1 or 0)
if heard and window > 0 then
  window, length, misses = 0, 20, 0
end
if window > now then
  served = true
  if freed and first ~= 'n' then -- it may have come while the record was held, and have been told of nothing
    redis.pcall(say, channel .. ':to:' .. string.match(first, '^.?([^:]*)'), 'n' .. window - now .. ':' .. first)
  end
elseif window > 0 or foreign > 0 then
  if window > 0 then
    length, misses = math.min(2 * length, 200), misses + 1
    if misses >= 3 then
      misses, due, pause = 0, 0, now + 1000
    end
  end
  window, releases = 0, releases + (freed and 1 or 0)
  local entries = redis.pcall('zrange', queue, 0, 7)
  if foreign > 0 and now >= pause and (due > 0 or freed and releases >= #entries) then
    due = math.min(due > 0 and due or foreign, 8) - 1
    window, releases, served = now + length, 0, true
    redis.pcall(say, channel, '000') -- 0 to Redisson, and a release to mortise of before, which wake; mortise does not
    if waiting then
      redis.pcall(say, channel .. ':' .. waiting, '0')
    end
    if first ~= asker then
      redis.pcall(say, channel .. ':to:' .. string.match(first, '^.?([^:]*)'), 'n' .. length .. ':' .. first)
    end
  end
  redis.pcall('hset', round, 'window', window, 'length', length, 'misses', misses, 'due', due, 'pause', pause,
    'releases', releases)
  redis.pcall('pexpire', round, 60000)
end
for i = 1, served and 0 or 16 do
  first = redis.pcall('zrange', queue, 0, 0)[1]
  if first then
    redis.call('zrem', queue, first)
  end
  if not first or first == asker then
    break
  end
  counts, say = string.sub(first, 1, 1) ~= 'n', string.sub(first, 1, 1) == 's' and 'spublish' or 'publish'
  local told = redis.pcall(say, channel .. ':to:' .. string.match(first, '^.?([^:]*)'), 'r' .. first)
  told = type(told) == 'number' and told or 0 -- an old server has no SPUBLISH
  local polls = told == 0 and kept['polls:' .. first] or 0
  if told > 0 or polls > 0 or not counts or i == 16 then
    if type(redis.pcall('hset', lock, 'mortise:reserved:' .. first, '-')) == 'number' then
      redis.call('pexpire', lock, polls > 0 and math.min(2 * polls, 100) or 1000)
      served = true
    end
    local second = redis.call('zrange', queue, 0, 0)[1]
    if second then
      say = string.sub(second, 1, 1) == 's' and 'spublish' or 'publish'
      redis.pcall(say, channel .. ':to:' .. string.match(second, '^.?([^:]*)'), 'n1000:' .. second)
    end
    break
  end
end
