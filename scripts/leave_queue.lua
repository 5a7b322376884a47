--! script leave_queue
--! key 1 lock    hash
--! key 2 channel channel
--! key 3 queue   zset
--! arg 1 entry   string
--! arg 2 publish string
--! reply int     1 the entry was in the queue, or the lock was reserved for it; 0 neither
--
-- Takes the entry of a client without waiters out of the queue, and removes a reservation for it. If the record is
-- then absent, the queue is served. If the entry was the first, the client of the new first entry is told so, and asks
-- when the lock's time to live is over: after 20 ms at least, and a second at most.
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
    redis.call(ARGV[2], KEYS[2], '+0') -- no entry was served: all waiters are told
  end
end
local second = front and not reserved and redis.call('zrange', KEYS[3], 0, 0)[1]
if second then
  --! include teller channel=KEYS[2]
  local round, message = KEYS[3] .. ':round', 'n' .. math.min(math.max(left, 20), 1000) .. ':'
  --! include tell_first queue=KEYS[3] round=round first=second message=message asker=''
end
return there
