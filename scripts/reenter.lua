--! script reenter
--! key 1 lock    hash   NAME
--! key 2 token   string redisson_lock_token:{NAME}
--! arg 1 owner   string
--! arg 2 holds   int
--! arg 3 lease   ms
--! arg 4 fenced  bool
--! arg 5 track   bool
--! reply ints    1, token (0 unless fenced): held; 0, 0: the owner does not hold the lock
--! bound 12 calls 1 KB
--
-- Sets the hold count of an owner, and the time to live of the lock to max(remaining, lease): lease is not shorter than
-- the longest lease that the owner has. The hold count is
-- absolute, so a request that arrives twice counts once.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return {0, 0}
end
local token = 0
if ARGV[4] == '1' then
  --! include draw_token counter=KEYS[2] token=token
end
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
local left = redis.call('pttl', KEYS[1])
if left < tonumber(ARGV[3]) then -- -1: no time to live, see renew
  redis.call('pexpire', KEYS[1], ARGV[3])
end
--! include read_back track=ARGV[5] lock=KEYS[1]
return {1, token}
