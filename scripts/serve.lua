--! script serve
--! key 1 lock      hash    NAME
--! key 2 channel   channel redisson_lock__channel:{NAME}
--! key 3 queue     zset    mortise:1:next:{NAME}2
--! key 4 token     string  redisson_lock_token:{NAME}
--! arg 1 owner     string
--! arg 2 successor string
--! arg 3 lease     ms
--! arg 4 fenced    bool
--! arg 5 track     bool
--! arg 6 yield     bool
--! arg 7 entry     string
--! arg 8 keep      ms
--! arg 9 grants    bool
--! arg 10 instead  string
--! reply ints      0, 0: the owner does not hold the lock; 1, 0: released; 2, n: released, and the client's entry is in the queue, and for n ms is not told that it has become the first; 3, token (0 unless fenced): the successor holds it; 4, token: it does, and a foreign client waits
--! bound 4000 calls 25 MB
--
-- Releases the lock and grants it to a successor of the same client in one step, without a message. With yield it
-- does so only if the queue is empty, and either no foreign client waits or none has its turn now (see
-- include/redissons_turn). Otherwise it releases the lock as release does, and puts the client's entry at the end of the
-- queue: the client has more waiters. If the record has another owner, it releases the lock, too. Without yield entry
-- is only the first letter of one, and is not put into the queue. grants, instead: see enrol.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return {0, 0}
end
local queue, channel, asks, round = KEYS[3], KEYS[2], KEYS[3] .. ':asks', KEYS[3] .. ':round'
if ARGV[10] ~= '' then
  local all
  --! include entries_of letters=string.sub(ARGV[10],1,1) entry=ARGV[10] all=all
  redis.pcall('zrem', queue, unpack(all))
  redis.pcall('hdel', asks, unpack(all))
end
local out, others = serve_granted, redis.call('hlen', KEYS[1]) > 1 -- Redisson may have granted a read lock in the same hash
if ARGV[6] == '1' and not others then
  others = redis.call('exists', queue) == 1
  local foreign = 1
  --! include foreign_clients mark=ARGV[7] foreign=foreign
  if foreign > 0 and not others then
    local owed = math.min(tonumber(redis.pcall('hget', round, 'owed') or 0) or 0, owed_most) - 1
    others = not (owed >= 0) or type(redis.pcall('hset', round, 'owed', owed)) ~= 'number'
    out = serve_granted_foreign
  end
end
if others then
  --! include teller
  clock()
  local served, untold, score = false, 0, us
  out = 1
  redis.call('hdel', KEYS[1], ARGV[1])
  if ARGV[6] == '1' and type(redis.pcall('zadd', queue, us, ARGV[7])) ~= 'table' then
    --! include to_end entry=ARGV[7] score=score
    redis.call('pexpire', queue, ARGV[8])
    if ARGV[9] == '1' and not string.find(ARGV[7], '^%l[^:]*:%+:') then
      untold = math.ceil((score + entry_untold - us) / us_per_ms)
    elseif ARGV[9] == '1' then
      redis.pcall('hset', asks, ARGV[7], ARGV[3] .. ':' .. ARGV[4])
      redis.pcall('pexpire', asks, ARGV[8])
    end
    out = 2
  end
  if redis.call('exists', KEYS[1]) == 0 then
    --! include serve_queue lock=KEYS[1] mark=ARGV[7] asker='' heard=false freed=true quiet=false heads=nil served=served
  end
  if not served then
    redis.call(string.sub(ARGV[7], 1, 1) == 's' and 'spublish' or 'publish', KEYS[2],
      redis.call('exists', KEYS[1], KEYS[3]) == 0 and '+0' or '0')
  end
  return {out, untold}
end
-- Before the hand-over: if the token cannot be drawn, the owner keeps the lock. PEXPIRE goes first: a full server then
-- allows the other writes, see release.
redis.call('pexpire', KEYS[1], ARGV[3])
local token = 0
if ARGV[4] == '1' then
  --! include draw_token counter=KEYS[4] token=token
end
redis.call('hset', KEYS[1], ARGV[2], '1')
redis.call('hdel', KEYS[1], ARGV[1])
if ARGV[6] == '1' and out == serve_granted then -- for enrol: the next entry ends the client's turn
  redis.pcall('set', queue .. ':extra', ARGV[7], 'px', extra_kept)
end
--! include read_back track=ARGV[5] lock=KEYS[1]
return {out, token}
