--! script write_acquire
--! key 1 lock     hash
--! key 2 writer   string
--! arg 1 owner    string
--! arg 2 lease    ms
--! arg 3 claimant string
--! arg 4 claim    ms
--! arg 5 track    bool
--! reply ints     0, 0: granted; n>0, c: refused, n ms left; -1, c: refused, no expiry; c is 1 where there is a claim now
--
-- Grants a read-write lock for writing while nobody holds it. The same request a second
-- time, while the owner holds it, is granted again and counts once. One that readers stand
-- in the way of leaves a claim, if it wants one: until the claim ends, no fresh reader of
-- mortise's gets in. A grant takes the claimant's claim away.
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode then
  if redis.call('exists', KEYS[1]) == 1 then
    return redis.error_reply('WRONGKIND the key holds a lock that is no read-write lock')
  end
  if redis.call('get', KEYS[2]) == ARGV[3] then
    redis.call('del', KEYS[2])
  end
  redis.call('hset', KEYS[1], 'mode', 'write', ARGV[1], 1)
  redis.call('pexpire', KEYS[1], ARGV[2])
  if ARGV[5] == '1' then
    redis.call('exists', KEYS[1])
  end
  return {0, 0}
end
if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('hset', KEYS[1], 'mode', mode) -- a write for WAIT, as in acquire
  if ARGV[5] == '1' then
    redis.call('exists', KEYS[1])
  end
  return {0, 0}
end
local claimed = 0
if mode == 'read' and tonumber(ARGV[4]) > 0 then
  redis.call('set', KEYS[2], ARGV[3], 'px', ARGV[4])
  claimed = 1
end
local left = redis.call('pttl', KEYS[1])
if left < 0 then
  return {-1, claimed}
end
return {math.max(left, 1), claimed}
