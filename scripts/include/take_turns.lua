--! fragment take_turns queue round channel asker heard freed served
--
-- In serve_queue: has foreign clients and entries take turns. In a turn of the foreign clients there are as many windows
-- as they are, eight at the most: the record stays absent for some time, in which no entry is served. A window that none
-- of them uses makes the next one longer, and after three there is none for a while. Then it is the turn of the
-- entries, each of which is served as often as a foreign client was, as far as that was seen: once at least, and eight
-- times at the most. Where there is no entry, a key that ends with the window keeps it.
--
-- Each client that waits for a fair lock of that name has a window. The release of the fair lock ends it, as if it were
-- heard: then comes the next window, or the turn of the entries.
if now == 0 then
  --! include clock now=now
end
local window, pause = kept.window or 0, kept.pause or 0
local length, seen, misses = kept.length or 0, kept.seen or 0, kept.misses or 0
local due, tenures = kept.due or 0, kept.tenures or 0
local releases, owed = kept.releases or 0, kept.owed or 0
if window > now + 200 then -- written by another
  window = 0
end
if window > now and not heard then
  served = true
  if freed and two[1] then -- it may have come while the record was held, and have been told of nothing
    tell(first, 'n' .. math.ceil(window - now) .. ':')
  end
elseif window > 0 or tenures > 0 or foreign > 0 then
  local missed = window > 0 and not heard
  --! include missed_window missed=missed length=length misses=misses pause=pause seen=seen now=now
  if heard then
    length, misses, seen = math.max(20, math.floor(length * 3 / 4)), 0, now + 10000
  end
  if pause > now then
    due = 0
  end
  local entries = #redis.pcall('zrange', queue, 0, 7)
  local ours = freed and not heard -- not the release of a fair lock
  window, releases = 0, releases + (ours and 1 or 0)
  if ours and releases >= math.max(entries, math.min(owed, 64)) and now >= pause then
    due, tenures = math.min(foreign, 8), 1
  end
  if due > 0 and foreign > 0 then
    due, window, served = due - 1, now + length, true
    if two[1] then
      -- 0 to Redisson, and a release to mortise of before, which wake; mortise does not.
      redis.pcall(say, channel, '000')
    else
      redis.pcall('set', queue .. ':window', '', 'px', length)
    end
    --! include tell_places channel=channel misses=misses
    if two[1] and first ~= asker then
      tell(first, 'n' .. length .. ':')
    end
  elseif tenures > 0 then
    owed = math.max(1, math.min(tenures / math.max(foreign, 1), 8)) * entries
    due, tenures, releases = 0, 0, 0
  end
  redis.pcall('hset', round, 'window', window, 'length', length, 'misses', misses, 'pause', pause, 'seen', seen,
    'due', due, 'tenures', tenures, 'releases', releases, 'owed', owed)
  redis.pcall('pexpire', round, 60000)
end
