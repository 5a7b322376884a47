--! script proclaim
--! key 1 lock    hash    NAME
--! key 2 said    hash    mortise:1:proclaim:{NAME}
--! key 3 channel channel redisson_lock__channel:{NAME}:proclaim
--! arg 1 owner   string
--! arg 2 token   int
--! arg 3 text    string
--! arg 4 number  int
--! arg 5 keep    ms
--! arg 6 publish publish|spublish
--! reply int     1 kept, or removed, or a later request of the owner was executed before; 0 the owner does not hold the lock
--! bound 12 calls 1 KB
--
-- Stores the text of the lock's owner, and tells the followers of a change. An empty text removes the stored text. The
-- number is stored also then: a request with a smaller number of the same owner changes nothing.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return 0
end
local left
--! include own_lease owner=ARGV[1] left=left
if left == 0 then
  return 0
end
local said = redis.call('hmget', KEYS[2], 'owner', 'text', 'token', 'number')
if said[1] == ARGV[1] and (tonumber(said[4]) or 0) > tonumber(ARGV[4]) then
  return 1
end
local same = said[1] == ARGV[1] and said[2] == ARGV[3] and said[3] == ARGV[2]
if ARGV[3] == '' then
  same = redis.call('hdel', KEYS[2], 'text', 'token') == 0
  redis.call('hset', KEYS[2], 'owner', ARGV[1], 'number', ARGV[4])
else
  redis.call('hset', KEYS[2], 'owner', ARGV[1], 'text', ARGV[3], 'token', ARGV[2], 'number', ARGV[4])
end
redis.call('pexpire', KEYS[2], ARGV[5])
if not same then
  redis.call(ARGV[6], KEYS[3], '1')
end
return 1
