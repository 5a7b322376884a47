--! script enrol
--! key 1 lock    hash
--! key 2 next    zset
--! key 3 token   string
--! arg 1 owner   string
--! arg 2 lease   ms
--! arg 3 fenced  bool
--! arg 4 track   bool
--! arg 5 tag     string
--! arg 6 keep    ms
--! reply ints    1, token (0 unless fenced): granted; 0, n: refused, n ms left; 0, -1: refused, no expiry; 2, the same: refused, and the tag is not in next
--
-- As acquire, for a waiter whose client hears of releases. A refusal puts the client's
-- tag, seven digits, behind the tags in next, if it is not there: releases are told to the first
-- (see release). A grant takes it out. A server that refuses writes (it is full) refuses the tag a place; that is all.
local free = redis.call('exists', KEYS[1]) == 0
if not free and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  --! include not_read_write
  local left = redis.call('pttl', KEYS[1])
  if left == 0 then
    left = 1
  end
  local now = redis.call('time')
  local placed = redis.pcall('zadd', KEYS[2], 'nx', now[1] * 1000000 + now[2], ARGV[5])
  if type(placed) == 'table' then
    return {2, math.max(left, -1)}
  end
  redis.call('pexpire', KEYS[2], math.max(left, 0) + ARGV[6])
  return {0, math.max(left, -1)}
end
-- The token first: where it cannot be drawn, nothing is locked.
local token = 0
if ARGV[3] == '1' then
  --! include draw_token counter=KEYS[3] token=token
end
if free then
  redis.call('hset', KEYS[1], ARGV[1], 1)
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('zrem', KEYS[2], ARGV[5])
else -- a write for WAIT, as in acquire
  --! include write_again
end
--! include read_back track=ARGV[4] lock=KEYS[1]
return {1, token}
