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
--! reply ints     1, token, 0: granted; 0, left, look: refused, in ms; left is 0 where the lock is free, look or left -1 where there is no end
--
-- Grants the lock to an owner that holds nothing, if it is free and the owner is the
-- first in the queue, or there is no queue. The same request a second time, while the
-- owner holds it, is granted again and counts once. An owner that is refused gets
-- a place in the queue, unless wait is 0, or keeps the place that it has.
--
-- The score of a place is the time at which it is given up, by the server's clock, which is to be
-- Java's clock too. Redisson sets it when the place is taken, to the last place's plus
-- wait, and lowers it by the wait of each owner that goes before. Here it is raised when its owner
-- asks, which shows that the owner is alive, and a grant lowers no score below what a first place would get.
local held = redis.call('hexists', KEYS[1], ARGV[1]) == 1
local free = redis.call('exists', KEYS[1]) == 0
if not free and redis.call('hexists', KEYS[1], 'mode') == 1 then
  return redis.error_reply('WRONGKIND the key holds a read-write lock')
end
--! include server_time
local wait = tonumber(ARGV[3])

-- First places whose time is over are removed, but not the caller's. A place
-- without a time, which only damage leaves behind, gets a time.
local head = redis.call('lindex', KEYS[2], 0)
while head and head ~= ARGV[1] do
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
      redis.call('lpop', KEYS[2])
      redis.call('zrem', KEYS[3], ARGV[1])
      local floor = now + tonumber(ARGV[2]) + wait
      local others = redis.call('zrange', KEYS[3], 0, -1, 'withscores')
      for i = 1, #others, 2 do
        local score = tonumber(others[i + 1])
        redis.call('zadd', KEYS[3], math.max(score - wait, math.min(score, floor)), others[i])
      end
    end
  else -- a write for WAIT, as in acquire
    --! include write_again
  end
  --! include read_back track=ARGV[5] lock=KEYS[1]
  return {1, token, 0}
end

local left = 0
if not free then
  left = redis.call('pttl', KEYS[1])
  if left >= 0 then
    left = math.max(left, 1)
  end
end
if wait > 0 then
  local base = now + math.max(left, 0)
  local score = head and redis.call('zscore', KEYS[3], ARGV[1])
  if not score then
    local last = head and redis.call('zscore', KEYS[3], redis.call('lindex', KEYS[2], -1))
    if last then
      base = math.max(base, tonumber(last))
    end
    redis.call('zadd', KEYS[3], base + wait, ARGV[1])
    redis.call('rpush', KEYS[2], ARGV[1])
    head = head or ARGV[1]
    score = base + wait
  elseif tonumber(score) < base + wait then
    local place = 1
    if head ~= ARGV[1] then
      local queue = redis.call('lrange', KEYS[2], 0, -1)
      while place <= #queue and queue[place] ~= ARGV[1] do
        place = place + 1
      end
      if place > #queue then
        redis.call('rpush', KEYS[2], ARGV[1])
      end
    end
    score = base + wait * place
    redis.call('zadd', KEYS[3], score, ARGV[1])
  end
  -- A queue without waiters expires an hour after its last place.
  local keep = tonumber(score) - now + 3600000
  if redis.call('pttl', KEYS[3]) < keep then
    redis.call('pexpire', KEYS[2], keep)
    redis.call('pexpire', KEYS[3], keep)
  end
end
if head == ARGV[1] or left < 0 then
  return {0, left, left}
end
if not free then
  -- The first asks when the lease is over; a little later, in case it is dead too.
  return {0, left, left + math.ceil(ARGV[6] / 10)}
end

-- The lock is free, and others are before the caller: they are told, in case they were not, until the message
-- reaches a waiter. Each waiter that it does not reach has a moment to come; a waiter of Redisson's only when it
-- is the first: a new waiter of Redisson's does not listen yet, and never raises its score.
-- Where PUBLISH counts the subscribers of one node only (counts is 0), its count decides nothing: 64
-- places are told, and a waiter that lives asks, which raises its score.
local java = '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$'
local limit = now + tonumber(ARGV[6])
local silent = {}
local places = ARGV[7] == '1' and math.huge or 64
local i = 0
while i < places do
  local field = redis.call('lindex', KEYS[2], i)
  if not field or field == ARGV[1] then
    break
  end
  local score = redis.call('zscore', KEYS[3], field)
  if redis.call(ARGV[8], KEYS[5] .. ':' .. field, '0') > 0 and ARGV[7] == '1' then
    if i == 0 then
      -- It hears of it, and yet the lock is free: its process may be stopped.
      local patience = 5 * tonumber(ARGV[6])
      if not score or tonumber(score) > now + patience then
        redis.call('zadd', KEYS[3], now + patience, field)
      end
      return {0, 0, patience}
    end
    break
  end
  local waits = string.find(field, java)
  if not score or tonumber(score) > limit and (i == 0 or not waits) then
    redis.call('zadd', KEYS[3], limit, field)
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
  limit = math.min(limit, math.max(tonumber(score), now + 1))
end
return {0, 0, limit - now}
