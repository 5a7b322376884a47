--! script write_acquire
--! key 1 lock     hash   NAME
--! key 2 writer   string mortise:1:writer:{NAME}
--! arg 1 owner    string
--! arg 2 lease    ms
--! arg 3 claimant string
--! arg 4 claim    ms
--! arg 5 track    bool
--! arg 6 entry    string
--! arg 7 heard    bool
--! arg 8 instead  string
--! reply ints     0, 0, 0, 0: granted; n>0, c, p, t: refused, n ms left; -1, c, p, t: refused, no expiry; c is 1 where there is a claim now; p tells of the entry, as in semaphore_take; t is the server's time in microseconds, or 0 if there is no entry
--! bound 400 calls 10 MB
--
-- Grants the write side of a read-write lock that is free, and kept for no other client. A refusal puts the client's
-- entry, if it has one, into the queue. heard: see enrol. The same request a second time, while the owner holds the
-- lock, is granted again and counts once; entry, instead: see read_acquire. A refusal because of readers leaves a
-- claim, if claim is above zero: until the claim ends, no new reader of mortise gets in. A grant removes the claimant's
-- claim.
--! include read_write_mode
--! include wake_queue name=KEYS[1] prefix='redisson_rwlock:'
local queued, kept = not mode and redis.pcall('exists', queue) == 1, false
--! include take_place entry=ARGV[6] instead=ARGV[8]
if ARGV[7] == '1' then
  --! include redisson_heard
end
if queued then
  --! include kept_side entry=ARGV[6] side='w' kept=kept
end
if not mode and not kept then
  if redis.call('get', KEYS[2]) == ARGV[3] then
    redis.call('del', KEYS[2])
  end
  redis.call('hset', KEYS[1], 'mode', 'write', ARGV[1], '1')
  redis.call('pexpire', KEYS[1], ARGV[2])
  if queued and ARGV[6] ~= '' then
    local placed, was = 0, nil
    --! include leave_wake_queue entry=ARGV[6] placed=placed was=was
  end
  --! include read_back track=ARGV[5] lock=KEYS[1]
  return {0, 0, 0, 0}
end
if mode and redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('hset', KEYS[1], 'mode', mode) -- a write for WAIT, as in acquire
  if string.find(ARGV[6], '^%l[^:]*:%w+%+?:') then
    --! include prolong key=KEYS[1] lease=ARGV[2]
  end
  --! include read_back track=ARGV[5] lock=KEYS[1]
  return {0, 0, 0, 0}
end
local claimed, placed = 0, 0
if mode == 'read' and tonumber(ARGV[4]) > 0 then
  redis.call('set', KEYS[2], ARGV[3], 'px', ARGV[4])
  claimed = 1
end
if ARGV[6] ~= '' then
  --! include join_queue entry=ARGV[6] wish='w' lease=ARGV[2] reserve=false placed=placed
end
local left = kept or redis.call('pttl', KEYS[1])
return {left < 0 and -1 or math.max(left, 1), claimed, placed, us or 0}
