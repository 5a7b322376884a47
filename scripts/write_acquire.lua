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
-- Grants a read-write lock for writing while it is free. The same request a second
-- time, while the owner holds it, is granted again and counts once. A request that readers
-- refuse leaves a claim, if it wants to: until the claim ends, no fresh reader of
-- mortise's gets in. A grant takes the claimant's claim away.
--! include read_write_mode
if not mode then
  if redis.call('get', KEYS[2]) == ARGV[3] then
    redis.call('del', KEYS[2])
  end
  redis.call('hset', KEYS[1], 'mode', 'write', ARGV[1], 1)
  redis.call('pexpire', KEYS[1], ARGV[2])
  --! include read_back track=ARGV[5] lock=KEYS[1]
  return {0, 0}
end
if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('hset', KEYS[1], 'mode', mode) -- a write for WAIT, as in acquire
  --! include read_back track=ARGV[5] lock=KEYS[1]
  return {0, 0}
end
local claimed = 0
if mode == 'read' and tonumber(ARGV[4]) > 0 then
  redis.call('set', KEYS[2], ARGV[3], 'px', ARGV[4])
  claimed = 1
end
--! include refuse_pair second=claimed
