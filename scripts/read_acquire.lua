--! script read_acquire
--! key 1 lock    hash   NAME
--! key 2 timeout string {NAME}:READER:rwlock_timeout:1
--! key 3 writer  string mortise:1:writer:{NAME}
--! arg 1 owner   string
--! arg 2 lease   ms
--! arg 3 track   bool
--! arg 4 entry   string
--! arg 5 heard   bool
--! arg 6 instead string
--! reply ints    0, 0, 0: granted; n>0, p, t: refused, n ms left; -1, p, t: refused, no expiry; p tells of the entry, as in semaphore_take; t is the server's time in microseconds, or 0 if there is no entry
--! bound 1500 calls 10 MB
--
-- Grants the read side of a read-write lock, unless a writer holds the lock, a waiting writer of mortise claims it,
-- or it is kept for a writer. A refusal puts the client's entry, if it has one, into the queue. heard: see enrol.
-- The same request a second time, while the owner holds the lock, is granted again and counts once. If the entry has
-- the owner (see owner_entry), a release may have granted it: its lease is then max(remaining, lease). instead: see
-- take_place. Each owner has one hold, so its timeout key is the one with number 1.
--! include read_write_mode
if mode and redis.call('hexists', KEYS[1], ARGV[1]) == 1 and redis.call('exists', KEYS[2]) == 1 then
  redis.call('hset', KEYS[1], ARGV[1], '1') -- a write for WAIT, as in acquire
  if string.find(ARGV[4], '^%l[^:]*:%w+%+?:') then
    --! include prolong key=KEYS[2] lease=ARGV[2]
    --! include prolong key=KEYS[1] lease=ARGV[2]
  end
  --! include read_back track=ARGV[3] lock=KEYS[1]
  return {0, 0, 0}
end
--! include wake_queue name=KEYS[1] prefix='redisson_rwlock:'
local queued, kept = redis.pcall('exists', queue) == 1, false
local left = -2
if queued then
  --! include take_place entry=ARGV[4] instead=ARGV[6]
end
if mode == 'write' then
  left = redis.call('pttl', KEYS[1])
elseif redis.call('exists', KEYS[3]) == 1 then
  local place = queued and ARGV[4] ~= '' and tonumber(redis.pcall('zscore', queue, ARGV[4])) or 0
  if place >= 0 or redis.pcall('hget', asks, ARGV[4]) == 'w' then -- a reader that was told passes
    left = redis.call('pttl', KEYS[3])
  end
end
if ARGV[5] == '1' then
  --! include redisson_heard
end
if queued and left == -2 then
  --! include kept_side entry=ARGV[4] side='r' kept=kept
end
if kept or left >= -1 then
  local placed = 0
  if ARGV[4] ~= '' then
    --! include join_queue entry=ARGV[4] wish='1' lease=ARGV[2] reserve=false placed=placed
  end
  if queued and not mode and left >= -1 then -- free and claimed: a release by Redisson told no entry
    local served = false
    --! include tell_sides reading=false served=served
  end
  left = kept or left
  return {left == -1 and -1 or math.max(left, 1), placed, us or 0}
end
local serves = false
if queued then
  local placed, was = 0, nil
  serves = redis.pcall('hget', asks, ARGV[4]) == 'w'
  --! include leave_wake_queue entry=ARGV[4] placed=placed was=was
  serves = serves or not was or was >= 0 -- the entry was not told to ask as a reader: perhaps no other was
end
redis.call('hset', KEYS[1], 'mode', 'read', ARGV[1], '1')
redis.call('set', KEYS[2], '1', 'px', ARGV[2])
left = redis.call('pttl', KEYS[1])
if not mode or left >= 0 and left < tonumber(ARGV[2]) then
  redis.call('pexpire', KEYS[1], ARGV[2])
end
if serves then -- behind the writes above: other readers are granted this record
  local served
  --! include tell_sides reading=true served=served
end
--! include read_back track=ARGV[3] lock=KEYS[1]
return {0, 0, 0}
