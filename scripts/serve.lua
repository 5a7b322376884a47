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
-- does so only if the queue is empty, and either no foreign client waits or the turn of the entries goes on (see
-- include/take_turns). Otherwise it releases the lock as release does, and puts the client's entry at the end of the
-- queue: the client has more waiters. If the record has another owner, it releases the lock, too. Without yield entry
-- is only the first letter of one, and is not put into the queue. grants, instead: see enrol.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return {0, 0}
end
if ARGV[10] ~= '' then
  local all
  --! include entries_of letters=string.sub(ARGV[10],1,1) entry=ARGV[10] all=all
  redis.pcall('zrem', KEYS[3], unpack(all))
  redis.pcall('hdel', KEYS[3] .. ':asks', unpack(all))
end
local out, others = serve_granted, redis.call('hlen', KEYS[1]) > 1 -- Redisson may have granted a read lock in the same hash
if ARGV[6] == '1' and not others then
  others = redis.call('exists', KEYS[3]) == 1
  local foreign, fair, count = 1
  --! include foreign_clients mark=ARGV[7] channel=KEYS[2] quiet=false foreign=foreign fair=fair also={} count=count
  if not others and foreign > 0 then
    local round = KEYS[3] .. ':round'
    --! include windows_pause round=round foreign=foreign
    local kept = redis.pcall('hmget', round, 'releases', 'owed')
    local owed = math.min(tonumber(kept[2] or 0) or 0, owed_most)
    others = foreign > 0 and not ((tonumber(kept[1] or 0) or 0) + 1 < owed)
    if foreign > 0 and not others then
      out, others = serve_granted_foreign, type(redis.pcall('hincrby', round, 'releases', 1)) ~= 'number'
    end
  end
end
if others then
  local served, now = false, redis.call('time')
  out = 1
  redis.call('hdel', KEYS[1], ARGV[1])
  local came, untold = now[1] * us_per_second + now[2], 0
  local score = came
  if ARGV[6] == '1' and type(redis.pcall('zadd', KEYS[3], came, ARGV[7])) ~= 'table' then
    --! include to_end queue=KEYS[3] entry=ARGV[7] score=score
    redis.call('pexpire', KEYS[3], ARGV[8])
    if ARGV[9] == '1' and not string.find(ARGV[7], '^%l[^:]*:%+:') then
      untold = math.ceil((score + entry_untold - came) / us_per_ms)
    elseif ARGV[9] == '1' then
      redis.pcall('hset', KEYS[3] .. ':asks', ARGV[7], ARGV[3] .. ':' .. ARGV[4])
      redis.pcall('pexpire', KEYS[3] .. ':asks', ARGV[8])
    end
    out = 2
  end
  if redis.call('exists', KEYS[1]) == 0 then
    --! include serve_queue lock=KEYS[1] queue=KEYS[3] channel=KEYS[2] mark=ARGV[7] asker='' heard=false freed=true quiet=false heads=nil served=served
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
  redis.pcall('set', KEYS[3] .. ':extra', ARGV[7], 'px', extra_kept)
end
--! include read_back track=ARGV[5] lock=KEYS[1]
return {out, token}
