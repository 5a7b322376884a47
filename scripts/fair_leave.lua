--! script fair_leave
--! key 1 lock     hash    NAME
--! key 2 queue    list    redisson_lock_queue:{NAME}
--! key 3 timeouts zset    redisson_lock_timeout:{NAME}
--! key 4 channel  channel redisson_lock__channel:{NAME}
--! arg 1 owner    string
--! arg 2 wait     ms
--! arg 3 absence  ms
--! arg 4 counts   bool
--! arg 5 publish  publish|spublish
--! reply int      0 neither; 1 the owner had a place; 2 it held the lock; 3 both
--! needs hexists
--! bound 25000 calls 25 MB
--
-- Takes an owner out of the queue, unless wait is 0 (the owner asked for no place), and releases the lock if the
-- owner holds it. If the owner held the lock, or was the first in the queue of a free lock, the next waiter is told,
-- as by fair_release. A key with other data counts as a lock that is not held, or as a queue without the owner.
local out = 0
if redis.pcall('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('hdel', KEYS[1], ARGV[1]) -- not del: see release. A server that refuses writes is asked again
  out = 2
end
--! include server_time
local head = ARGV[2] ~= '0' and redis.pcall('lindex', KEYS[2], 0)
if type(head) == 'string' and type(redis.pcall('zscore', KEYS[3], ARGV[1])) == 'string' then
  --! include keep_places out=ARGV[1] free=true
  redis.call('zrem', KEYS[3], ARGV[1])
  redis.call('lrem', KEYS[2], 0, ARGV[1])
  out = out + 1
end
if out < 2 and not (out == 1 and head == ARGV[1] and redis.call('exists', KEYS[1]) == 0) then
  return out
end
--! include tell_next result=out
