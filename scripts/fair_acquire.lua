--! script fair_acquire
--! key 1 lock     hash
--! key 2 queue    list
--! key 3 timeouts zset
--! key 4 token    string
--! key 5 channel  channel
--! arg 1 owner    string
--! arg 2 lease    ms
--! arg 3 wait     ms
--! arg 4 fenced   bool
--! arg 5 track    bool
--! arg 6 absence  ms
--! arg 7 counts   bool
--! arg 8 publish  string
--! reply ints     1, token, 0, 0: granted; 0, left, look, new: refused, in ms; left is 0 where the lock is free, look or left -1 where there is no end; new is 1 where the owner took a place
--
-- Grants the lock to an owner that holds nothing, if it is free and the owner is the
-- first in the queue, or there is no queue. The same request a second time, while the
-- owner holds it, is granted again and counts once. An owner that is refused gets
-- a place in the queue, unless wait is 0, or keeps the place that it has.
--
-- The score of a place is the time at which it is given up, by the server's clock, which is to be Java's clock too.
-- It is raised when its owner asks, which shows that the owner is alive. While none of Redisson's waiters
-- stands in the queue, a grant changes no score: see include/keep_places.
local left = redis.call('pttl', KEYS[1])
local free, held, java = left == -2, false, false
if not free then
  -- A record of many fields is no fair lock's. Without permission to read all fields, Redisson's holder is not seen.
  local length = redis.pcall('hlen', KEYS[1])
  local fields = type(length) == 'number' and length <= 16 and redis.pcall('hgetall', KEYS[1])
  if not fields or fields.err then
    fields = {'mode', redis.call('hexists', KEYS[1], 'mode'), ARGV[1], redis.call('hexists', KEYS[1], ARGV[1])}
  end
  for i = 1, #fields, 2 do
    if fields[i] == 'mode' and fields[i + 1] ~= 0 then
      return redis.error_reply('WRONGKIND the key holds a read-write lock')
    end
    held = held or fields[i] == ARGV[1] and fields[i + 1] ~= 0
    java = java or string.find(fields[i], '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$') ~= nil
  end
end
--! include server_time
local wait = tonumber(ARGV[3])

-- First places whose time is over are removed, but not the caller's. A place
-- without a time, which only damage leaves behind, gets a time.
local head = redis.call('lindex', KEYS[2], 0)
for _ = 1, free and 4096 or 0 do
  if not head or head == ARGV[1] then
    break
  end
  local score = redis.call('zscore', KEYS[3], head)
  if not score then
    redis.call('zadd', KEYS[3], now + tonumber(ARGV[6]), head)
    break
  end
  if tonumber(score) > now then
    break
  end
  redis.call('lpop', KEYS[2])
  redis.call('zrem', KEYS[3], head)
  redis.call(ARGV[8], KEYS[5] .. ':' .. head, '0') -- if it lives, it comes again, at the end
  head = redis.call('lindex', KEYS[2], 0)
end

if held or free and (not head or head == ARGV[1]) then
  -- The token first: where it cannot be drawn, nothing is locked.
  local token = 0
  if ARGV[4] == '1' then
    --! include draw_token counter=KEYS[4] token=token
  end
  if free then
    redis.call('hset', KEYS[1], ARGV[1], 1)
    redis.call('pexpire', KEYS[1], ARGV[2])
    if head then
      --! include keep_places out=ARGV[1] free=false
      redis.call('lpop', KEYS[2])
      redis.call('zrem', KEYS[3], ARGV[1])
    end
  else -- a write for WAIT, as in acquire
    --! include write_again
  end
  --! include read_back track=ARGV[5] lock=KEYS[1]
  return {1, token, 0, 0}
end

left = free and 0 or left >= 0 and math.max(left, 1) or left
local new = 0
if wait > 0 then
  --! include keep_places out='' free=free
  -- Of Redisson's waiters those before it will subtract their waits, and those behind it add theirs.
  local place = mixed and chain + math.min(wait, 300000) or now + math.max(left, 0) + wait - 0.5
  if redis.call('zadd', KEYS[3], 'nx', place, ARGV[1]) == 1 then
    new = head == ARGV[1] and 0 or 1
  elseif mixed then
    new = stands and 0 or 1
    if new == 1 then
      redis.call('zadd', KEYS[3], place, ARGV[1])
    end
  elseif not head or tonumber(redis.call('zscore', KEYS[3], ARGV[1])) < place - wait / 8 then
    redis.call('zadd', KEYS[3], place, ARGV[1])
    stands = head == ARGV[1]
    for _, field in ipairs(stands and {} or redis.call('lrange', KEYS[2], 0, -1)) do
      stands = stands or field == ARGV[1]
    end
    new = stands and 0 or 1
  end
  if new == 1 then
    redis.call('rpush', KEYS[2], ARGV[1])
    head = head or ARGV[1]
  end
  -- A queue without waiters expires an hour after its last place.
  local keep = math.ceil(place) - now + 3600000
  if redis.call('pttl', KEYS[3]) < keep then
    redis.call('pexpire', KEYS[2], keep + 600000)
    redis.call('pexpire', KEYS[3], keep + 600000)
  end
  java = java or mixed
end
-- Beside Redisson's owners a waiter sees each second that it still has its place.
local often = java and tonumber(ARGV[6]) or 1e13
if not free then
  local look = left
  if head ~= ARGV[1] and left >= 0 then
    -- The first asks when the lease is over; a little later, in case it is dead too.
    look = left + math.ceil(ARGV[6] / 10)
  end
  return {0, left, look < 0 and java and often or math.min(look, often), new}
end
if head == ARGV[1] then
  return {0, 0, 0, new}
end

-- The lock is free, and others are before the caller: they are told, in case they were not, until the message
-- reaches a waiter. Each waiter that it does not reach has a moment to come; a waiter of Redisson's only when it
-- is the first: a new waiter of Redisson's does not listen yet, and never raises its score.
-- Where PUBLISH counts the subscribers of one node only (counts is 0), its count decides nothing: 64
-- places are told, and a waiter that lives asks, which raises its score.
local limit = now + tonumber(ARGV[6])
local silent = {}
local places = ARGV[7] == '1' and 4096 or 64
local i = 0
while i < places do
  local field = redis.call('lindex', KEYS[2], i)
  if not field or field == ARGV[1] then
    break
  end
  local score = math.min(tonumber(redis.call('zscore', KEYS[3], field) or 1e13), 1e13)
  if redis.call(ARGV[8], KEYS[5] .. ':' .. field, '0') > 0 and ARGV[7] == '1' then
    if i == 0 then
      -- It hears of it, and yet the lock is free: its process may be stopped.
      local patience = 5 * tonumber(ARGV[6])
      if score > now + patience then
        redis.call('zadd', KEYS[3], now + patience - (score % 1 >= 0.5 and 0.25 or 0.75), field)
      end
      return {0, 0, math.min(patience, often), new}
    end
    break
  end
  local waits = string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$')
  if score > limit and (i == 0 or not waits) then
    redis.call('zadd', KEYS[3], limit - (score % 1 >= 0.5 and 0.25 or 0.75), field)
    local client = ARGV[7] == '1' and not waits and string.match(field, '^.*:')
    if client then
      silent[client] = true
    end
  end
  i = i + 1
end
--! include silent_clients publish=ARGV[8] channel=KEYS[5]
local score = redis.call('zscore', KEYS[3], head)
if score then
  limit = math.min(limit, math.max(math.ceil(score), now + 1))
end
return {0, 0, limit - now, new}
