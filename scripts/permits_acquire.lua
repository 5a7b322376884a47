--! script permits_acquire
--! key 1 permits  string  NAME
--! key 2 timeouts zset    {NAME}:timeout
--! key 3 channel  channel redisson_sc:{NAME}
--! arg 1 ids      string
--! arg 2 wants    int
--! arg 3 lease    ms
--! arg 4 publish  publish|spublish
--! arg 5 limit    int
--! arg 6 declare  bool
--! arg 7 entry    string
--! arg 8 stays    bool
--! arg 9 least    int
--! arg 10 heard   bool
--! arg 11 instead string
--! reply ints     0, n, p, s: granted, n are left; t>0, n, p, s: refused, the first ends in t ms; -1, n, p, s: refused, none ends. p tells of the entry, as in semaphore_take; s is the server's time in microseconds, or 0 if there is no entry
--! bound 1000 calls 10 MB
--
-- Returns expired permits to the count. Then it takes as many permits as are wanted, if so many are free and not
-- kept for other clients. ids has their ids, joined, all of one length. The same request again, while one of its
-- permits is in use, is granted again and counts once. A limit above zero is the number of all permits, free and in
-- use: it is set if there is no count, and with declare also if there is another. The zset lives as long as the
-- count. entry, stays, least and heard: as in semaphore_take. If the entry has the owner of the ids (see owner_entry),
-- a release may have granted them: the lease of each is then max(remaining, lease). instead: see take_place.
--! include permits_value
--! include server_time
local there, wants, size = tonumber(value or '0'), tonumber(ARGV[2]), #ARGV[1] / ARGV[2]
--! include return_ended grants=true
local out = false
for i = 1, wants do
  out = redis.call('zscore', KEYS[2], string.sub(ARGV[1], (i - 1) * size + 1, i * size)) or out
end
local more = ended > 0
if ARGV[5] ~= '0' and not out and (ARGV[6] == '1' or not value) then
  local sum = ARGV[5] - redis.call('zcard', KEYS[2])
  if sum ~= there or not value then
    redis.call('set', KEYS[1], string.format('%.0f', sum), 'keepttl')
    more, there = more or sum > there, sum
  end
end
--! include wake_queue name=KEYS[1] prefix='redisson_sc:'
local queued, kept, placed, served, soon = redis.pcall('exists', queue) == 1, 0, 0, false, false
local window, granted = 0, 0
if queued then
  --! include take_place entry=ARGV[7] instead=ARGV[11]
end
if ARGV[10] == '1' then
  --! include redisson_heard
end
if queued then
  --! include kept_permits entry=ARGV[7] kept=kept window=window
end
local free, reply, ends = there - kept, 0, string.format('%.0f', now + ARGV[3])
if not out and free >= wants then
  free = free - wants
  there = redis.call('incrby', KEYS[1], -wants)
  for i = 1, wants do
    redis.call('zadd', KEYS[2], ends, string.sub(ARGV[1], (i - 1) * size + 1, i * size))
  end
  local ttl = redis.call('pttl', KEYS[1])
  if ttl > 0 then
    redis.call('pexpire', KEYS[2], math.min(ttl, longest_time)) -- a century: from 1e17 on, Lua writes an exponent
  end
  if queued and ARGV[7] ~= '' then
    placed = ARGV[8] == '1' and 1 or 0
    local was
    --! include leave_wake_queue entry=ARGV[7] placed=placed was=was
  end
elseif out and string.find(ARGV[7], '^%l[^:]*:%w+%+?:') then
  for i = 1, wants do
    local id = string.sub(ARGV[1], (i - 1) * size + 1, i * size)
    if tonumber(redis.call('zscore', KEYS[2], id) or math.huge) < tonumber(ends) then
      redis.call('zadd', KEYS[2], ends, id)
    end
  end
elseif not out then
  local first = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
  reply = -1
  if first[2] and tonumber(first[2]) < score_endless then
    reply = math.max(tonumber(first[2]) - now, 1)
  end
  if kept > 0 then
    local most = window > 0 and window or reservation
    reply = reply < 0 and most or math.min(reply, most)
  end
  if ARGV[7] ~= '' then
    soon = tonumber(ARGV[9]) <= free
    --! include join_queue entry=ARGV[7] wish=ARGV[9] lease=ARGV[3] reserve=soon placed=placed
  end
end
if queued and free > 0 then
  local rest = soon and free - ARGV[9] or free
  --! include tell_takers free=rest asker=ARGV[7] served=served granted=granted
end
if more and there > granted then
  local prefix
  --! include heeded served=served unheeded='0' prefix=prefix
  redis.call(ARGV[4], KEYS[3], prefix .. string.format('%.0f', math.min(there - granted, permits_most)))
end
return {reply, free, placed, us or 0}
