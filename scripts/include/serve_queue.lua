--! fragment serve_queue lock mark asker heard freed quiet heads served
--
-- Serves the queue of a lock whose record is absent, for the first entry whose client can be reached, or polls. If the
-- entry has an owner, the owner is granted the lock (see grant_entry). If it has none, or the lock cannot be granted
-- (this user may not draw a token, for example), the record is reserved for the entry: it gets the field
-- mortise:reserved:<entry>, and expires after a second at most. The client is told, and the client of
-- the next entry is told that its entry is now the first, and when the reservation ends (see tell_first), unless the
-- first one was granted a whole first lease, and the next has an owner, the mark - or f, and is younger than 750 ms: its
-- client asks by itself when it has waited for that long. served
-- becomes true. It stays false if no entry can be served, or if the asker's entry is the first: the entry is removed,
-- and the lock is free. freed: this script has removed the record; otherwise the record was absent before.
-- heads: the first two entries, or nil. quiet: neither the hash queue:round nor a queue of the fair lock is there.
--
-- Clients of Redisson do not enrol, nor do waiters for a fair lock of the same name. These foreign clients have turns
-- (see redissons_turn), in which no entry is served, and the key queue:window has requests of mortise refused; served
-- then becomes true, too. If no place in the fair lock's queue is that of a live client, these clients have no turn, and
-- none is tried for a second. heard: a release by a foreign client was heard, or this is one of the fair lock. If the
-- queue is empty, mark stands for an entry where subscribers are counted (see foreign_subscribers).
--
-- lapsed counts how often in a row the record was absent though nothing released it: a reservation ran out, or a
-- lease. A release and a claim reset it. At three, the queue is removed, all clients are told, and the lock is free:
-- live clients enrol again. If PUBLISH does not count all subscribers, the last entry is told of each reservation,
-- too: the clients of all entries before it may be dead.
local round = queue .. ':round'
local two = heads or redis.pcall('zrange', queue, 0, 1, 'withscores') -- an error has no entries
local first, tries, dropped = two[1] or mark, entries_tried, 0
local letter = string.sub(first, 1, 1)
local say = letter == 's' and 'spublish' or 'publish'
local foreign, fair, also, count = quiet and 0 or -1, 0, {}, {}
for i = 1, letter ~= 'n' and #two or 0, 2 do -- they are told below
  if string.sub(two[i], 1, 1) == letter then
    also[#also + 1] = channel .. ':to:' .. tag_of(two[i])
  end
end
--! include foreign_subscribers mark=first foreign=foreign also=also count=count
for i = counted_from, #count, 2 do
  counted[count[i]] = count[i + 1]
end
if two[1] and first ~= asker and counted[channel .. ':to:' .. tag_of(first)] == 0 then
  --! include drop_dead asker=asker first=first dropped=dropped
  tries = dropped > 0 and tried_behind_dead or tries
  two = redis.pcall('zrange', queue, 0, 1, 'withscores')
  first = two[1] or mark
end
local places = 'redisson_lock_queue:' .. string.sub(channel, #'redisson_lock__channel:' + 1)
if not quiet and two[1] then -- otherwise a release tells the waiters for the fair lock without a turn
  --! include fair_clients places=places fair=fair
end
if not quiet or two[1] or foreign ~= 0 then
  clock()
end
if at and (not quiet or foreign ~= 0) then
  local turn, length, lapsed = false, 0, 0
  local release = freed and not heard
  --! include redissons_turn release=release heard=heard foreign=foreign fair=fair entries=#redis.pcall('zrange',queue,0,turn_most-1) turn=turn length=length
  if begins and fair > 0 then
    local reached
    --! include tell_places misses=misses reached=reached
    if not reached then
      turn = foreign > 0
      local charge = turn and kept.charge * all / foreign or 0
      redis.pcall('hset', round, 'owed', charge - 1, 'charge', charge, 'pause', turn and 0 or at + pause_short,
        'window', turn and at + length or 0)
    end
  end
  if turn then
    served = true
    redis.pcall('set', queue .. ':window', '', 'px', length)
    if begins and two[1] then -- a release to Redisson, which parses 0, and to clients of an older mortise
      redis.pcall(say, channel, '000')
    end
    local head, message = freed and two or {}, 'n' .. length .. ':'
    --! include tell_first first=head message=message asker=asker nth=redis.pcall('zrange',queue,behind,behind,'withscores') dropped=dropped
  end
  foreign = all
  if not freed and not served and two[1] and first ~= asker then
    lapsed = kept.lapsed + 1
    if lapsed >= lapses_most then
      lapsed, two = 0, {}
      if type(redis.pcall('unlink', queue, asks)) == 'table' then -- its user may not send UNLINK
        redis.pcall('pexpire', queue, 0)
        redis.pcall('pexpire', asks, 0)
      end
      redis.pcall(say, channel, '0')
    end
  end
  if lapsed > 0 then
    redis.pcall('hset', round, 'lapsed', lapsed)
    redis.pcall('pexpire', round, round_kept)
  elseif kept.lapsed > 0 then
    redis.pcall('hdel', round, 'lapsed')
  end
end
for i = 1, served and 0 or tries do
  if not two[1] then
    break
  end
  redis.call('zrem', queue, first)
  if first == asker then
    break
  end
  local wants, owner = string.match(first, '^%l[^:]*:([-f+]):(.+)$')
  local lasts, granted = reservation, 0
  if owner then
    --! include grant_entry lock=lock entry=first wants=wants owner=owner granted=granted lasts=lasts
    served = granted == 1
  end
  if not owner or granted == -1 or i == tries and granted == 0 then
    local told = tell(first, 'r', true)
    told = type(told) == 'number' and told or 0 -- an error if the server has no SPUBLISH
    local polls = told == 0 and redis.pcall('hget', round, 'polls:' .. first) -- a table if HGET fails
    polls = type(polls) == 'string' and tonumber(polls) or 0
    if polls ~= 0 then
      redis.pcall('hdel', round, 'polls:' .. first)
    end
    if told > 0 or polls > 0 or string.sub(first, 1, 1) == 'n' or i == tries then
      lasts = polls > 0 and math.floor(math.min(2 * polls, polled_reservation)) or reservation
      granted, owner = 1, nil
      if type(redis.pcall('hset', lock, 'mortise:reserved:' .. first, '-')) == 'number' then
        redis.call('pexpire', lock, lasts)
        served = true
      end
    end
  end
  if granted == 1 then
    local head, came = {two[3], two[4]}, tonumber(two[4] or nil)
    local young = owner and lasts >= first_lease + first_spare and foreign == 0 and came and us >= came
    if not (young and us - came < entry_untold and string.find(two[3], '^%l[^:]*:[-f]:')) then
      local message = 'n' .. lasts .. ':'
      --! include tell_first first=head message=message asker='' nth=redis.pcall('zrange',queue,behind,behind,'withscores') dropped=dropped
    end
    local last = two[3] and string.sub(first, 1, 1) == 'n' and redis.call('zrange', queue, -1, -1)[1]
    if last and last ~= two[3] then
      tell(last, 'l')
    end
    break
  end
  two = redis.call('zrange', queue, 0, 1, 'withscores')
  first = two[1]
end
