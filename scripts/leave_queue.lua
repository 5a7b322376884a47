--! script leave_queue
--! key 1 lock    hash    NAME
--! key 2 channel channel redisson_lock__channel:{NAME}
--! key 3 queue   zset    mortise:1:next:{NAME}2
--! arg 1 entry   string
--! arg 2 publish publish|spublish
--! arg 3 owner   string
--! reply int     1 the entry was in the queue, or the lock was reserved for it, or its owner had the lock; 0 nothing of these
--! bound 4000 calls 25 MB
--
-- Takes the entry of a client without waiters out of the queue, and removes a reservation for it. If the record is
-- then absent, the queue is served. If the entry was the first, the client of the new first entry is told so, and asks
-- when the lock's time to live is over: after 20 ms at least, and a second at most. owner, if not empty, is the owner
-- in the entry, which is released if it was granted the lock. The first letter of the entry may be another than when it
-- was put into the queue.
local front = redis.pcall('zrange', KEYS[3], 0, 0)[1]
front = type(front) == 'string' and string.sub(front, 2) == string.sub(ARGV[1], 2)
local there, fields = 0, {ARGV[3]} -- no field is empty
for _, letter in ipairs({'s', 'p', 'n'}) do
  local entry = letter .. string.sub(ARGV[1], 2)
  if ARGV[3] ~= '' or entry == ARGV[1] then
    local gone = redis.pcall('zrem', KEYS[3], entry)
    there = gone == 1 and 1 or there
    if gone == 1 and ARGV[3] ~= '' then
      redis.pcall('hdel', KEYS[3] .. ':asks', entry)
    end
    redis.pcall('hdel', KEYS[3] .. ':round', 'polls:' .. entry)
    fields[#fields + 1] = 'mortise:reserved:' .. entry
  end
end
local served = false
local reserved = redis.pcall('hdel', KEYS[1], unpack(fields)) == 1
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
  local round, message = KEYS[3] .. ':round', 'n' .. math.min(math.max(left, asks_soonest), reservation) .. ':'
  --! include tell_first queue=KEYS[3] round=round first=second message=message asker=''
end
return there
