--! script semaphore_take
--! key 1 semaphore string NAME
--! key 2 once      string mortise:1:once:{NAME}:ID
--! arg 1 permits   int
--! arg 2 keep      ms
--! arg 3 again     bool
--! arg 4 entry     string
--! arg 5 stays     bool
--! arg 6 least     int
--! arg 7 heard     bool
--! reply ints      1, n, p, 0: taken, n are left; 0, n, p, t: refused, n are there, and others are kept for t ms more, if t is not 0. p tells of the entry: 0 it is not in the queue; 1 it is; 2 it is the first that waits
--! bound 1000 calls 10 MB
--
-- Takes permits, if enough permits are free and not kept for other clients. once remembers, for keep, that this
-- request was executed (1) or cancelled (0). again: the request was sent before, and may have been executed; without
-- again, a refusal does not read once. A refusal puts the client's entry, if it has one, into the queue; least is
-- the smallest number of permits that one of its waiters wants. A grant removes the entry, or with stays puts it at
-- the end. heard: see enrol.
--! include permits_value
local there, wants = tonumber(value or '0'), tonumber(ARGV[1])
--! include wake_queue name=KEYS[1] prefix='redisson_sc:'
local queued, kept, placed, carried = redis.pcall('exists', queue) == 1, 0, 0, false
local window = 0
if ARGV[7] == '1' then
  --! include redisson_heard
end
if queued then
  --! include kept_permits entry=ARGV[4] kept=kept window=window
end
local free, out = there - kept, 0
if free >= wants then
  if redis.call('set', KEYS[2], '1', 'px', ARGV[2], 'nx') then
    redis.call('decrby', KEYS[1], wants)
    free, out = free - wants, 1
    if queued and ARGV[4] ~= '' then
      placed = ARGV[5] == '1' and 1 or 0
      local was
      --! include leave_wake_queue entry=ARGV[4] placed=placed was=was
    end
  else
    carried = true
  end
elseif ARGV[3] == '1' then
  carried = redis.call('get', KEYS[2]) ~= false
end
if carried then
  return {tonumber(redis.call('get', KEYS[2]) or '0'), there, 0, 0}
end
local soon = out == 0 and ARGV[4] ~= '' and tonumber(ARGV[6]) <= free
if out == 0 and ARGV[4] ~= '' then
  --! include join_queue entry=ARGV[4] wish=ARGV[6] lease='' reserve=soon placed=placed
end
if queued and free > 0 then
  local more, served, granted = soon and free - ARGV[6] or free, false, 0
  --! include tell_takers free=more asker=ARGV[4] served=served granted=granted
end
return {out, free, placed, out == 0 and kept > 0 and (window > 0 and math.ceil(window) or reservation) or 0}
