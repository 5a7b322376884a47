--! script take
--! key 1 lock    hash    NAME
--! key 2 token   string  token:{NAME}
--! key 3 channel channel told:{NAME}
--! arg 1 owner   string
--! arg 2 publish publish|spublish
--! reply int     1 taken; 0 not
--! needs hexists
--
-- Whatever a call may be is seen: a command from an argument, from an expression, from a local; a key that is built.
local queue = 'mine:{' .. KEYS[1] .. '}2'
if string.find(KEYS[1], '{', 1, true) then
  queue = 'mine:' .. KEYS[1] .. ':2'
end
if redis.pcall('hexists', KEYS[1], ARGV[1]) == 1 then
  return 1
end
local say = ARGV[2] == 'publish' and 'numsub' or 'shardnumsub'
local count = redis.pcall('pubsub', say, KEYS[3])
redis.pcall('zadd', queue .. ':round', 1, ARGV[1])
redis.pcall('LRANGE', 'fair:' .. string.sub(KEYS[3], 6), 0, 1)
redis.call(ARGV[2], KEYS[3] .. ':to', '0')
redis.call('incr', KEYS[2])
redis.pcall('get', KEYS[2])
return redis.call('hset', KEYS[1], ARGV[1], #count)
