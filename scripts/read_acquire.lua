--! script read_acquire
--! key 1 lock    hash
--! key 2 timeout string
--! key 3 writer  string
--! arg 1 owner   string
--! arg 2 lease   ms
--! arg 3 track   bool
--! reply int     0 granted; n>0 refused, n ms left; -1 refused, no expiry
--
-- Grants a read-write lock for reading, unless a writer holds it, or a writer of mortise's
-- waits for it. The same request a second time, while the owner holds it, is granted again
-- and counts once. Each owner has one hold; its timeout key is the first of its field.
--! include read_write_mode
if mode and redis.call('hexists', KEYS[1], ARGV[1]) == 1 and redis.call('exists', KEYS[2]) == 1 then
  redis.call('hset', KEYS[1], ARGV[1], 1) -- a write for WAIT, as in acquire
  --! include read_back track=ARGV[3] lock=KEYS[1]
  return 0
end
local left = -2
if mode == 'write' then
  left = redis.call('pttl', KEYS[1])
elseif redis.call('exists', KEYS[3]) == 1 then
  left = redis.call('pttl', KEYS[3])
end
if left == -1 then
  return -1
end
if left >= 0 then
  return math.max(left, 1)
end
redis.call('hset', KEYS[1], 'mode', 'read', ARGV[1], 1)
redis.call('set', KEYS[2], 1, 'px', ARGV[2])
left = redis.call('pttl', KEYS[1])
if not mode or left >= 0 and left < tonumber(ARGV[2]) then
  redis.call('pexpire', KEYS[1], ARGV[2])
end
--! include read_back track=ARGV[3] lock=KEYS[1]
return 0
