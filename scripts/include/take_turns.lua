--! fragment take_turns queue round channel asker heard freed served
--
-- In serve_queue: gives turns to foreign clients and to entries. A turn of the foreign clients has a window for each
-- of them, eight at most. In a window, of 20 to 200 ms, the record stays absent, and no entry is served. A window that
-- no foreign client uses doubles the length of the next one; after three in a row there is a pause (see
-- missed_window). A used window makes the next one a quarter shorter. Then the entries have a turn: for each entry, of
-- the first eight, as many releases as tenures were seen for each foreign client, from one to eight. If the queue is
-- empty, the key queue:window, which expires with the window, has requests of mortise refused.
--
-- Each client that waits for a fair lock of the same name has a window in the turn. A release of the fair lock ends
-- the window, like a heard release of Redisson: the next window follows, or the turn of the entries. If no place is
-- that of a live client, these clients have no window, and none is tried for a second.
if now == 0 then
  --! include clock now=now
end
local window, pause = kept.window or 0, kept.pause or 0
local length, seen, misses = kept.length or 0, kept.seen or 0, kept.misses or 0
local due, tenures = kept.due or 0, kept.tenures or 0
local releases, owed = kept.releases or 0, kept.owed or 0
if window > now + window_longest then -- not written by mortise
  window = 0
end
if window > now and not heard then
  served = true
  if freed and two[1] then -- it may be new, and not know of the window
    local message = 'n' .. math.ceil(window - now) .. ':'
    --! include tell_first queue=queue round=round first=first message=message asker=asker
  end
elseif window > 0 or tenures > 0 or foreign > 0 then
  local missed = window > 0 and not heard
  --! include missed_window missed=missed length=length misses=misses pause=pause seen=seen now=now
  if heard then
    length, misses, seen = math.max(window_shortest, math.floor(length * window_after_use)), 0, now + foreign_seen
  end
  if pause > now then
    due = 0
  end
  local entries = #redis.pcall('zrange', queue, 0, turn_most - 1)
  local ours = freed and not heard -- not a release of the fair lock
  window, releases = 0, releases + (ours and 1 or 0)
  if ours and releases >= math.max(entries, math.min(owed, owed_most)) and now >= pause then
    due, tenures = math.min(foreign, turn_most), 1
  end
  if fair and due > 0 and foreign > 0 then
    local reached
    --! include tell_places channel=channel misses=misses reached=reached
    if not reached then
      foreign = math.max(foreign - fair, 0)
      due = math.min(due, foreign)
      pause = foreign == 0 and now + pause_short or pause
    end
  end
  if due > 0 and foreign > 0 then
    due, window, served = due - 1, now + length, true
    if two[1] then
      -- A release to Redisson, which parses 0, and to clients of an older mortise; this version ignores it.
      redis.pcall(say, channel, '000')
    else
      redis.pcall('set', queue .. ':window', '', 'px', length)
    end
    if two[1] and first ~= asker then
      local message = 'n' .. length .. ':'
      --! include tell_first queue=queue round=round first=first message=message asker=asker
      if redis.pcall('exists', queue) == 0 then -- all clients in the queue were dead
        redis.pcall('set', queue .. ':window', '', 'px', length)
      end
    end
  elseif tenures > 0 then
    owed = math.max(1, math.min(tenures / math.max(foreign, 1), turn_most)) * entries
    due, tenures, releases = 0, 0, 0
  end
  redis.pcall('hset', round, 'window', window, 'length', length, 'misses', misses, 'pause', pause, 'seen', seen,
    'due', due, 'tenures', tenures, 'releases', releases, 'owed', owed)
  redis.pcall('pexpire', round, round_kept)
end
