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
-- in the entry, which is released if it was granted the lock. Its entry may have another letter and mark than when it
-- was put into the queue.
local queue, channel, asks, round = KEYS[3], KEYS[2], KEYS[3] .. ':asks', KEYS[3] .. ':round'
--! include teller
local all, fields, polls, was_first = nil, {ARGV[3]}, {}, false -- no field is empty
local first = redis.pcall('zrange', queue, 0, 0)[1]
--! include entries_of letters='spn' entry=ARGV[1] all=all
for _, entry in ipairs(all) do
  was_first = was_first or entry == first
  fields[#fields + 1], polls[#polls + 1] = 'mortise:reserved:' .. entry, 'polls:' .. entry
end
local gone = redis.pcall('zrem', queue, unpack(all))
local there = type(gone) == 'number' and gone > 0 and 1 or 0
if there == 1 and ARGV[3] ~= '' then
  redis.pcall('hdel', asks, unpack(all))
end
redis.pcall('hdel', round, unpack(polls))
local served = false
gone = redis.pcall('hdel', KEYS[1], unpack(fields))
local reserved = type(gone) == 'number' and gone > 0
if reserved then
  there = 1
end
local left = redis.call('pttl', KEYS[1])
if left == -2 then
  --! include serve_queue lock=KEYS[1] mark='n' asker='' heard=false freed=reserved quiet=false heads=nil served=served
  if reserved and not served then
    redis.call(ARGV[2], KEYS[2], '+0') -- no entry was served: all waiters are told
  end
end
if was_first and not reserved then
  local second, dropped = redis.call('zrange', queue, 0, 0, 'withscores'), false
  local message = 'n' .. math.min(math.max(left, asks_soonest), reservation) .. ':'
  --! include tell_first first=second message=message asker='' nth=redis.pcall('zrange',queue,behind,behind,'withscores') dropped=dropped
end
return there
