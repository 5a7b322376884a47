--! script enrol
--! key 1 lock    hash    NAME
--! key 2 queue   zset    mortise:1:next:{NAME}2
--! key 3 token   string  redisson_lock_token:{NAME}
--! key 4 channel channel redisson_lock__channel:{NAME}
--! arg 1 owner   string
--! arg 2 lease   ms
--! arg 3 fenced  bool
--! arg 4 track   bool
--! arg 5 entry   string
--! arg 6 keep    ms
--! arg 7 heard   bool
--! arg 8 polls   ms
--! arg 9 grants  bool
--! arg 10 instead string
--! reply ints    1, token (0 unless fenced), m, 0: granted, m is 1 where a foreign client waits; 0, n, m, t: refused, n ms left, -1 without expiry, m is 1 where the entry is the first, more where it is new, and for so many ms is not told that it has become the first, t is the server's time in microseconds; 2, n, 0, t: refused, and the entry is not in the queue
--! bound 4000 calls 25 MB
--
-- As acquire, for a waiter whose client has an entry (see include/teller). A refusal puts the entry into the queue, if
-- it is not there; its score is the time of arrival in microseconds. If the record is reserved for the entry, the
-- request claims it: the lease begins. heard: while the entry was the first in the queue, the client heard a release
-- that served no entry, so a foreign client is assumed to have had the lock. polls: the interval at which a client
-- asks that cannot be told, otherwise 0. If the server refuses writes (it is full), the entry is not put into the
-- queue. A first entry that has waited for 100 ms, and whose client does not listen, is removed: after a release by a
-- foreign client only the client of the first entry asks at once, and a dead one would not.
--
-- grants: the entry has the owner, and a release grants the lock to it (see include/grant_entry). The lease of an owner
-- that was granted the lock is then max(remaining, lease). instead, if not empty, is the entry of an owner that the
-- client has asked for before, and asks for no more: the new entry takes its place, or its lock.
local queue, channel, asks, round = KEYS[2], KEYS[4], KEYS[2] .. ':asks', KEYS[2] .. ':round'
--! include teller
local grants, instead, taken, inherited = ARGV[9] == '1', ARGV[10], false, nil
local before = string.match(instead, '^%l[^:]*:[-f+]:(.+)$')
if before then
  local all, fields = nil, {before}
  --! include entries_of letters=string.sub(instead,1,1) entry=instead all=all
  for _, entry in ipairs(all) do
    fields[#fields + 1] = 'mortise:reserved:' .. entry
  end
  taken = redis.call('hdel', KEYS[1], unpack(fields)) == 1 and redis.call('exists', KEYS[1]) == 0
  for _, entry in ipairs(all) do
    local score = redis.pcall('zscore', queue, entry)
    if type(score) == 'string' then
      inherited = tonumber(score)
      drop(entry)
      redis.pcall('zadd', queue, 'nx', score, ARGV[5])
      redis.pcall('hdel', round, 'polls:' .. entry)
    end
  end
end
local heard = ARGV[7] == '1'
if heard then
  redis.pcall('del', queue .. ':window')
  --! include redisson_heard
end
local claim = 'mortise:reserved:' .. ARGV[5]
local more = grants and string.find(ARGV[5], '^%l[^:]*:%+:')
local looked = {claim, ARGV[1], 'mode'}
local has = redis.pcall('hmget', KEYS[1], unpack(looked))
for i = 1, has.err and #looked or 0 do -- with the permissions of the version before, for example
  has[i] = redis.call('hexists', KEYS[1], looked[i]) == 1
end
local reserved = has[1] and redis.call('hlen', KEYS[1]) == 1 -- and has no owner
local left = reserved and 0 or redis.call('pttl', KEYS[1])
local free = left == -2
local mine = not reserved and not free and has[2]
if free and not taken and redis.call('exists', queue, queue .. ':window') > 0 then
  local served = false
  --! include serve_queue lock=KEYS[1] mark=ARGV[5] asker=ARGV[5] heard=heard freed=false quiet=false heads=nil served=served
  free = not served
  left = served and redis.call('pttl', KEYS[1])
end
if not mine and not free and not reserved then
  if has[3] then
    --! include not_read_write
  end
  clock()
  local placed, score = redis.pcall('zadd', queue, 'nx', us, ARGV[5]), inherited or us
  if left == -2 then -- in a turn of Redisson's clients
    left = tonumber(redis.pcall('pttl', queue .. ':window')) or 0
    left = left < 1 and window_shortest or math.min(left, window_longest)
  end
  if type(placed) == 'table' then
    return {2, math.max(left, -1), 0, us or 0}
  end
  if placed == 1 then
    --! include to_end entry=ARGV[5] score=score
  end
  redis.call('pexpire', queue, math.min(math.max(left, 0), longest_time) + ARGV[6]) -- see permits_acquire
  if ARGV[8] ~= '0' then
    redis.pcall('hset', round, 'polls:' .. ARGV[5], ARGV[8])
    redis.pcall('pexpire', round, round_kept)
  end
  if more then
    redis.pcall('hset', asks, ARGV[5], ARGV[2] .. ':' .. ARGV[3])
    redis.pcall('pexpire', asks, math.min(math.max(left, 0), longest_time) + ARGV[6])
  end
  local first, dropped = redis.call('zrange', queue, 0, 0, 'withscores'), false
  --! include tell_first first=first message=nil asker=ARGV[5] nth=redis.pcall('zrange',queue,behind,behind,'withscores') dropped=dropped
  if dropped and first[1] and first[1] ~= ARGV[5] then -- its client does not know that it is the first
    tell(first[1], 'n' .. math.min(math.max(left, asks_soonest), reservation) .. ':')
  end
  if first[1] ~= ARGV[5] then
    local untold = 0
    if grants and not more and (placed == 1 or inherited) then
      untold = math.min(math.ceil((score + entry_untold - us) / us_per_ms), queue_kept)
    end
    return {0, left, untold > 1 and untold or 0, us}
  end
  -- The client that serve let go on because no other client waited: its turn ends.
  local extra = redis.pcall('get', queue .. ':extra')
  if type(extra) == 'string' then
    redis.pcall('del', queue .. ':extra')
    tell(extra, 'e')
  end
  return {0, left, 1, us}
end
-- Before the lock is written: if the token cannot be drawn, nothing is locked.
local token = 0
if ARGV[3] == '1' then
  --! include draw_token counter=KEYS[3] token=token
end
if mine and grants then
  redis.call('pexpire', KEYS[1], math.max(left, ARGV[2]))
elseif mine then -- a write for WAIT, as in acquire
  --! include write_again
else
  if reserved then
    redis.call('hdel', KEYS[1], claim)
  end
  redis.call('hset', KEYS[1], ARGV[1], '1')
  redis.call('pexpire', KEYS[1], ARGV[2])
end
if ARGV[8] ~= '0' then
  redis.pcall('hdel', round, 'polls:' .. ARGV[5])
end
if grants then
  redis.pcall('zrem', queue, ARGV[5])
end
if more then
  redis.pcall('hdel', asks, ARGV[5])
end
--! include read_back track=ARGV[4] lock=KEYS[1]
local foreign, turns = 0, redis.pcall('exists', round) ~= 0
if turns then
  redis.pcall('hdel', round, 'lapsed')
end
if turns or not reserved then -- otherwise serve_queue has just counted none
  --! include foreign_clients mark=ARGV[5] foreign=foreign
end
return {1, token, foreign > 0 and 1 or 0, 0}
