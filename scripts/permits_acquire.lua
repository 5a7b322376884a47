--! script permits_acquire
--! key 1 permits  string
--! key 2 timeouts zset
--! key 3 channel  channel
--! arg 1 id       string
--! arg 2 lease    ms
--! arg 3 publish  string
--! arg 4 entry    string
--! arg 5 stays    bool
--! reply ints     0, n, p: granted, n are left; t>0, n, p: refused, the first ends in t ms; -1, n, p: refused, none ends. p tells of the entry, as in semaphore_take
--
-- Takes a permit out under an id of 16 bytes, after permits whose leases have ended are back, if one is
-- free that is not kept for another client. The same request again, while the id is out, is granted again
-- and counts once. The zset lives as long as the count does. entry and stays: as in semaphore_take.
--! include count_value
--! include server_time
local there = tonumber(value or '0')
--! include return_ended
--! include wake_queue name=KEYS[1] prefix='redisson_sc:'
local queued, kept, placed, served = redis.pcall('exists', queue) == 1, 0, 0, false
if queued then
  --! include kept_permits entry=ARGV[4] kept=kept
end
local free, reply = there - kept, 0
if not redis.call('zscore', KEYS[2], ARGV[1]) then
  if free > 0 then
    free = free - 1
    there = redis.call('decr', KEYS[1])
    redis.call('zadd', KEYS[2], string.format('%.0f', now + ARGV[2]), ARGV[1])
    local ttl = redis.call('pttl', KEYS[1])
    if ttl > 0 then
      redis.call('pexpire', KEYS[2], ttl)
    end
    if queued and ARGV[4] ~= '' then
      placed = ARGV[5] == '1' and 1 or 0
      local was
      --! include leave_wake_queue entry=ARGV[4] placed=placed was=was
    end
  else
    local first = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
    reply = -1
    if first[2] and tonumber(first[2]) < 922337203685477 then
      reply = math.max(tonumber(first[2]) - now, 1)
    end
    if kept > 0 then
      reply = reply < 0 and 1000 or math.min(reply, 1000)
    end
    if ARGV[4] ~= '' then
      --! include join_queue entry=ARGV[4] wish='1' reserve=false placed=placed
    end
  end
end
if queued and free > 0 then
  --! include tell_takers free=free asker=ARGV[4] served=served
end
if #ended > 0 and there > 0 then
  redis.call(ARGV[3], KEYS[3], (served and '0' or '') .. string.format('%.0f', math.min(there, 2147483647)))
end
return {reply, free, placed}
