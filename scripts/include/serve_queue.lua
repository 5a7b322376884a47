--! fragment serve_queue lock queue channel mark asker heard freed quiet heads served
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
-- (see take_turns), in which no entry is served; served then becomes true, too. heard: a release by a foreign client
-- was heard. If the queue is empty, mark stands for an entry where subscribers are counted (see foreign_subscribers).
--
-- lapsed counts how often in a row the record was absent though nothing released it: a reservation ran out, or a
-- lease. A release and a claim reset it. At three, the queue is removed, all clients are told, and the lock is free:
-- live clients enrol again. If PUBLISH does not count all subscribers, the last entry is told of each reservation,
-- too: the clients of all entries before it may be dead.
--! include teller channel=channel
local two = heads or redis.pcall('zrange', queue, 0, 1, 'withscores') -- an error, without entries, if the key holds other data
local first, kept, now = two[1] or mark, {}, 0
local say = string.sub(first, 1, 1) == 's' and 'spublish' or 'publish'
local round = queue .. ':round'
local names = {'window', 'pause', 'length', 'seen', 'misses', 'due', 'tenures', 'releases', 'owed', 'lapsed'}
local fields = quiet and {} or redis.pcall('hmget', round, unpack(names)) -- not HGETALL: see redissons_turn
if fields[1] or fields[10] then
  --! include clock now=now
  for i = 1, #names do
    local n = tonumber(fields[i] or nil)
    kept[names[i]] = n and n >= 0 and n <= now + foreign_seen and n or nil -- otherwise not written by mortise, as NaN
  end
end
local foreign, fair = (kept.seen or 0) > now and 1 or 0
local also, count = {}, {}
for i = 1, string.sub(first, 1, 1) ~= 'n' and #two or 0, 2 do -- they are told below
  if string.sub(two[i], 1, 1) == string.sub(first, 1, 1) then
    also[#also + 1] = channel .. ':to:' .. tag_of(two[i])
  end
end
--! include foreign_clients mark=first channel=channel quiet=quiet foreign=foreign fair=fair also=also count=count
for i = counted_from, #count, 2 do
  counted[count[i]] = count[i + 1]
end
local tries, dropped = entries_tried, 0
if two[1] and first ~= asker and counted[channel .. ':to:' .. tag_of(first)] == 0 then
  --! include drop_dead queue=queue round=round channel=channel asker=asker first=first dropped=dropped
  tries = dropped > 0 and tried_behind_dead or tries
  two = redis.pcall('zrange', queue, 0, 1, 'withscores')
  first = two[1] or mark
end
if fair and not two[1] then
  foreign, fair = foreign - fair, nil -- a release without a queue tells the waiters for the fair lock without a window
end
if fields[1] or foreign > 0 then
  --! include take_turns queue=queue round=round channel=channel asker=asker heard=heard freed=freed served=served
end
local lapsed = freed and 0 or kept.lapsed or 0
if not freed and not served and two[1] and first ~= asker then
  lapsed = lapsed + 1
  if lapsed >= lapses_most then
    lapsed, two = 0, {}
    if type(redis.pcall('unlink', queue, queue .. ':asks')) == 'table' then -- its user may not send UNLINK
      redis.pcall('pexpire', queue, 0)
      redis.pcall('pexpire', queue .. ':asks', 0)
    end
    redis.pcall(say, channel, '0')
  end
end
if lapsed > 0 then
  redis.pcall('hset', round, 'lapsed', lapsed)
  redis.pcall('pexpire', round, round_kept)
elseif kept.lapsed then
  redis.pcall('hdel', round, 'lapsed')
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
  local lasts, granted, at = reservation, 0, nil
  if owner then
    --! include grant_entry lock=lock queue=queue channel=channel entry=first wants=wants owner=owner granted=granted lasts=lasts at=at
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
      granted = 1
      if type(redis.pcall('hset', lock, 'mortise:reserved:' .. first, '-')) == 'number' then
        redis.call('pexpire', lock, lasts)
        served = true
      end
    end
  end
  if granted == 1 then
    local second, came = two[3], tonumber(two[4] or nil)
    local young = at and lasts >= first_lease + first_spare and foreign == 0 and came and at >= came and at - came < entry_untold and
      string.find(second, '^%l[^:]*:[-f]:')
    if second and not young then
      local message = 'n' .. lasts .. ':'
      --! include tell_first queue=queue round=round first=second message=message asker=''
    end
    local last = second and string.sub(first, 1, 1) == 'n' and redis.call('zrange', queue, -1, -1)[1]
    if last and last ~= second then
      tell(last, 'l')
    end
    break
  end
  two = redis.call('zrange', queue, 0, 1, 'withscores')
  first = two[1]
end
