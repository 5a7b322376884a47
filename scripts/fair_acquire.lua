--! script fair_acquire
--! key 1 lock     hash    NAME
--! key 2 queue    list    redisson_lock_queue:{NAME}
--! key 3 timeouts zset    redisson_lock_timeout:{NAME}
--! key 4 token    string  redisson_lock_token:{NAME}
--! key 5 channel  channel redisson_lock__channel:{NAME}
--! arg 1 owner    string
--! arg 2 lease    ms
--! arg 3 wait     ms
--! arg 4 fenced   bool
--! arg 5 track    bool
--! arg 6 absence  ms
--! arg 7 counts   bool
--! arg 8 publish  publish|spublish
--! reply ints     1, token, 0, 0: granted; 0, left, look, new: refused, in ms; left is 0 where the lock is free, look or left -1 where there is no end; new is 1 where the owner took a place
--! bound 25000 calls 25 MB
--
-- Grants the lock to an owner that holds nothing, if the lock is free, and the owner is the first in the queue or the
-- queue is empty. A repeated request, of an owner that holds the lock, is granted again and counts once. A refused
-- owner gets the last place in the queue, or keeps the place that it has; with wait 0 it asks for no place.
--
-- The score of a place is the time at which the place is given up, in ms since the epoch by the server's clock.
-- Redisson compares scores with the clock of its own process, so the two clocks should agree. A request of the owner
-- raises the score: it shows that the owner is alive. While all places are of mortise, a grant changes the score of
-- no other place: see include/keep_places.
local left = redis.call('pttl', KEYS[1])
local free, held, java = left == -2, false, false
if not free then
  -- Of a record of more than 16 fields, or without permission for HLEN and HGETALL, an owner of Redisson is not seen.
  local length = redis.pcall('hlen', KEYS[1])
  local fields = type(length) == 'number' and length <= few_fields and redis.pcall('hgetall', KEYS[1])
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

-- If the lock is free, expired places at the front of the queue are removed, up to the caller's place. A first place
-- without a score is damaged data: it gets a score.
local head = redis.call('lindex', KEYS[2], 0)
local bytes = 0 -- of the places that are passed: more than a megabyte is damaged data, and a later request goes on
for _ = 1, free and places_read or 0 do
  if not head or head == ARGV[1] or bytes > places_bytes then
    break
  end
  bytes = bytes + #head
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
  redis.call(ARGV[8], KEYS[5] .. ':' .. head, '0') -- a live owner asks again, and gets the last place
  head = redis.call('lindex', KEYS[2], 0)
end

if held or free and (not head or head == ARGV[1]) then
  -- Before the lock is written: if the token cannot be drawn, nothing is locked.
  local token = 0
  if ARGV[4] == '1' then
    --! include draw_token counter=KEYS[4] token=token
  end
  if free then
    redis.call('hset', KEYS[1], ARGV[1], '1')
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
  -- A place ends one wait after the holder's lease; with Redisson's waiters in the queue, one wait (five minutes at
  -- most) after the last place, as Redisson computes it. The fraction of the score: see include/keep_places.
  local rest = math.min(math.max(left, 0), longest_time) -- see permits_acquire
  local place = mixed and chain + math.min(wait, place_wait) or now + rest + wait - mark_ours
  local put = redis.pcall('zadd', KEYS[3], 'nx', place, ARGV[1])
  if type(put) == 'table' then
    if not redis.call('zscore', KEYS[3], ARGV[1]) then -- a full server: the owner gets no place, and asks again
      return {0, left, tonumber(ARGV[6]), 0}
    end
    redis.call('zrem', KEYS[3], '') -- see release: the owner keeps its place
    put = 0
  end
  if put == 1 then
    new = head == ARGV[1] and 0 or 1
  elseif mixed then
    new = stands and 0 or 1
    if new == 1 then
      redis.call('zadd', KEYS[3], place, ARGV[1])
    end
  elseif not head or tonumber(redis.call('zscore', KEYS[3], ARGV[1])) < place - wait / raise_parts then
    redis.call('zadd', KEYS[3], place, ARGV[1])
    stands = head == ARGV[1]
    if not stands then
      local places, whole
      --! include places_of most=places_searched places=places whole=whole
      stands = not whole -- it may stand behind them
      for _, field in ipairs(places) do
        stands = stands or field == ARGV[1]
      end
    end
    new = stands and 0 or 1
  end
  if new == 1 then
    redis.call('rpush', KEYS[2], ARGV[1])
    head = head or ARGV[1]
  end
  -- The queue expires an hour to 70 minutes after the end of its latest place; not each request sets that time. With a
  -- place of Redisson it has no time to live: see include/keep_places.
  local keep = math.ceil(place) - now + places_outlive
  if not mixed and redis.call('pttl', KEYS[3]) < keep then
    redis.call('pexpire', KEYS[2], keep + places_slack)
    redis.call('pexpire', KEYS[3], keep + places_slack)
  end
  java = java or mixed
end
-- If an owner of Redisson holds the lock or waits, a waiter checks its place each second (absence).
local often = java and tonumber(ARGV[6]) or score_most
if not free then
  local look = left
  if head ~= ARGV[1] and left >= 0 then
    -- The first waiter asks when the holder's lease ends. The others ask absence/10 later: the first may be dead, too.
    look = left + math.ceil(ARGV[6] / later_parts)
  end
  return {0, left, look < 0 and java and often or math.min(look, often), new}
end
if head == ARGV[1] then
  return {0, 0, 0, new}
end

-- The lock is free, and other places are before the caller's. Their owners are told again, from the first on, until a
-- message reaches a subscriber. A place whose message reaches none is cut: it ends absence from now, unless its owner
-- asks, which raises the score. A place of Redisson is cut only as the first: a new waiter of Redisson does not listen
-- yet, and never raises its score. If PUBLISH counts the subscribers of its own node only (counts is 0), its count
-- decides nothing: all owners before the caller are told, 64 at most, and their places are cut up to the first place of
-- Redisson. A grant to its owner would end a cut place behind it at once, and its owner may well be alive.
local limit = now + tonumber(ARGV[6])
local silent, behind = {}, false
local places = ARGV[7] == '1' and places_read or places_told
local i = 0
while i < places and bytes <= places_bytes do
  local field = redis.call('lindex', KEYS[2], i)
  if not field or field == ARGV[1] then
    break
  end
  bytes = bytes + #field
  local score = math.min(tonumber(redis.call('zscore', KEYS[3], field) or score_most), score_most)
  local to = KEYS[5] .. ':' .. field
  local heard = redis.call(ARGV[8], to, '0')
  --! include reached publish=ARGV[8] to=to heard=heard
  if heard > 0 and ARGV[7] == '1' then
    if i == 0 then
      -- The first owner listens, and yet the lock is free: its process may be stopped. It has 5 * absence to ask.
      local patience = patience_times * tonumber(ARGV[6])
      if score > now + patience then
        redis.call('zadd', KEYS[3], now + patience - (score % 1 >= mark_ours and mark_ours_cut or mark_cut), field)
      end
      return {0, 0, math.min(patience, often), new}
    end
    break
  end
  local waits = string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$')
  if score > limit and (i == 0 or not waits and not behind) then
    redis.call('zadd', KEYS[3], limit - (score % 1 >= mark_ours and mark_ours_cut or mark_cut), field)
    local client = ARGV[7] == '1' and not waits and string.match(field, '^.*:')
    if client then
      silent[client] = true
    end
  end
  behind = behind or waits and ARGV[7] == '0'
  i = i + 1
end
--! include silent_clients publish=ARGV[8] channel=KEYS[5]
local score = redis.call('zscore', KEYS[3], head)
if score then
  limit = math.min(limit, math.max(math.ceil(score), now + 1))
end
return {0, 0, limit - now, new}
