--! fragment tell_next result
--
-- After a release of a fair lock: tells the first waiter in the queue, on a channel of its own. If the message
-- reaches no subscriber, the waiter may be dead, or does not listen yet: its place is cut (see fair_acquire), and the
-- next waiter is told, and so on. If no waiter in the queue is reached, the waiters for the plain lock are told. A
-- waiter that is reached keeps its place for absence at least. result is the script's reply.
--
-- On a cluster without sharded pub/sub PUBLISH counts the subscribers of its own node only. There the count decides
-- nothing (counts is 0): the first waiter is told, and the first waiter of another client. If the first waiter is
-- dead, the request of the second finds the lock free, and cuts the places before its own.
--
-- If clients wait for the plain lock of the same name, both sides take turns (see take_turns): the queue of the plain
-- lock is served, or fair waiters are told of a window.
--! include queue_of lock=KEYS[1]
if redis.pcall('exists', queue) == 1 and redis.call('exists', KEYS[1]) == 0 then
  local served = false
  local channel, asks = KEYS[4], queue .. ':asks'
  --! include teller
  redis.pcall('del', queue .. ':window')
  --! include redisson_heard
  --! include serve_queue lock=KEYS[1] mark='n' asker='' heard=true freed=true quiet=false heads=nil served=served
  if served then
    return result
  end
end
local limit, alone = now + tonumber(ARGV[3]), false
local head = redis.pcall('lindex', KEYS[2], 0)
local score = redis.pcall('zscore', KEYS[3], type(head) == 'string' and head or '')
local told, silent = ARGV[4] == '0', {}
if type(head) ~= 'string' or type(score) == 'table' then -- no queue, or other data: the release succeeds
  told, alone = true, true
elseif told then
  local client = string.match(head, '^.*:')
  for i, field in ipairs(redis.call('lrange', KEYS[2], 0, places_told - 1)) do
    if i == 1 or string.match(field, '^.*:') ~= client then
      redis.call(ARGV[5], KEYS[4] .. ':' .. field, '0')
      if i > 1 then
        break
      end
      score = math.min(tonumber(score or score_most), score_most)
      if score < limit then
        redis.call('zadd', KEYS[3], limit - (1 - score % 1) % 1, field)
      end
    end
  end
end
local i, field, bytes = 0, head, 0
for _ = 1, told and 0 or places_read do -- live waiters behind them ask by themselves
  bytes = bytes + #field
  local java = string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$') -- an owner of Redisson
  score = math.min(tonumber(score or score_most), score_most)
  told = redis.call(ARGV[5], KEYS[4] .. ':' .. field, '0') > 0
  if told and score < limit then
    redis.call('zadd', KEYS[3], limit - (score % 1 >= mark_ours and mark_ours or 0), field)
  elseif not told and score > limit and (i == 0 or not java) then
    redis.call('zadd', KEYS[3], limit - (score % 1 >= mark_ours and mark_ours_cut or mark_cut), field)
    local client = not java and string.match(field, '^.*:')
    if client then
      silent[client] = true
    end
  end
  if told or bytes > places_bytes then -- so many bytes are damaged data
    break
  elseif i == 0 and score <= now then
    redis.call('lpop', KEYS[2])
    redis.call('zrem', KEYS[3], field)
  else
    i = i + 1
  end
  field = redis.call('lindex', KEYS[2], i)
  if not field then
    alone = true
    break
  end
  score = redis.call('zscore', KEYS[3], field)
end
--! include silent_clients publish=ARGV[5] channel=KEYS[4]
if alone then
  local served = false
  --! include tell_waiters lock=KEYS[1] to=KEYS[4] publish=ARGV[5] served=served
end
return result
