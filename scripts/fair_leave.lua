--! script fair_leave
--! key 1 lock     hash
--! key 2 queue    list
--! key 3 timeouts zset
--! key 4 channel  channel
--! arg 1 owner    string
--! arg 2 wait     ms
--! arg 3 absence  ms
--! arg 4 counts   bool
--! arg 5 publish  string
--! reply int      0 neither; 1 the owner had a place; 2 it held the lock; 3 both
--
-- Takes an owner out of the queue, and releases the lock if the owner holds it. The places
-- behind it need not wait for it any more: their scores go down by its wait, yet not
-- below what a first place would get. If the lock is free and the owner was
-- first, the next is told, as by fair_release. A key that is no lock is not held.
local out = 0
if redis.pcall('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('hdel', KEYS[1], ARGV[1]) -- not del: see release
  out = 2
end
--! include server_time
local first = false
if redis.call('zrem', KEYS[3], ARGV[1]) == 1 then
  out = out + 1
  local queue = redis.call('lrange', KEYS[2], 0, -1)
  first = queue[1] == ARGV[1]
  local behind = false
  local floor = now + math.max(redis.call('pttl', KEYS[1]), 0) + tonumber(ARGV[2])
  for i = 1, #queue do
    if queue[i] == ARGV[1] then
      behind = true
    elseif behind then
      local score = tonumber(redis.call('zscore', KEYS[3], queue[i]) or now)
      redis.call('zadd', KEYS[3], math.max(score - tonumber(ARGV[2]), math.min(score, floor)), queue[i])
    end
  end
  redis.call('lrem', KEYS[2], 0, ARGV[1])
end
if out ~= 2 and out ~= 3 and not (first and redis.call('exists', KEYS[1]) == 0) then
  return out
end
--! include tell_next result=out
