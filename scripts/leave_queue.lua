--! script leave_queue
--! key 1 lock    hash
--! key 2 channel channel
--! key 3 queue   zset
--! arg 1 entry   string
--! arg 2 publish string
--! reply int     1 the entry was in the queue, or the lock was reserved for it; 0 neither
--
-- Takes an entry, whose client has no waiters any more, out of the queue. If the lock was reserved for it, or is
-- free, the next is served. If it was the first, the next is told that it is.
local front = redis.pcall('zrange', KEYS[3], 0, 0)[1] == ARGV[1]
local there = redis.pcall('zrem', KEYS[3], ARGV[1])
there = type(there) == 'number' and there or 0
redis.pcall('hdel', KEYS[3] .. ':round', 'polls:' .. ARGV[1])
local served = false
local reserved = redis.pcall('hdel', KEYS[1], 'mortise:reserved:' .. ARGV[1]) == 1
if reserved then
  there = 1
end
local left = redis.call('pttl', KEYS[1])
if left == -2 then
  --! include serve_queue lock=KEYS[1] queue=KEYS[3] channel=KEYS[2] mark='n' asker='' heard=false freed=reserved served=served
  if reserved and not served then
    redis.call(ARGV[2], KEYS[2], '+0') -- nothing is in the queue
  end
end
local second = front and not reserved and redis.call('zrange', KEYS[3], 0, 0)[1]
if second then
  --! include teller channel=KEYS[2]
  tell(second, 'n' .. math.min(math.max(left, 20), 1000) .. ':')
end
return there
