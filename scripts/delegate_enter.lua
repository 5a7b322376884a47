--! script delegate_enter
--! key 1 lock    hash   NAME
--! key 2 nest    hash   mortise:1:nest:{NAME}
--! key 3 token   string redisson_lock_token:{NAME}
--! arg 1 owner   string
--! arg 2 under   string
--! arg 3 holds   int
--! arg 4 drawn   int
--! arg 5 lease   ms
--! arg 6 fenced  bool
--! arg 7 track   bool
--! reply ints    1, token (0 unless fenced): granted; 0, n: refused, n ms until the later owners are gone; 0, -1: no end; 2, n: refused, under has more holds, n ms left of its lease; 2, -1: no end; 3, 0: under does not hold the lock, or less than holds, or drawn was never drawn
--! bound 5000 calls 25 MB
--
-- Grants the lock to an owner under another owner, under, which holds the lock: if the hold count of under is holds,
-- and no owner entered after under. The same request a second time, while the owner holds the lock, is granted again
-- and counts once. drawn is the fencing token that the owner will use, zero for none: a token above the counter was
-- never drawn.
--
-- If the lock has several owners, nest has "place:deadline" for each: the place in the order of entry, and the end
-- of the owner's lease in ms by the server's clock. The lock's time to live is the latest deadline. An owner past
-- its deadline is removed here. An entry without its field in the lock is ignored: {n} and n share the key of nest,
-- and the entry may be the other lock's. It is removed an hour after its deadline. If there are several owners, a
-- field without an entry is an owner with an unknown deadline, and no owner can enter.
--! include not_read_write
--! include server_time
local entries
local size = redis.call('hlen', KEYS[2])
--! include fields_of key=KEYS[2] size=size most=owners_read fields=entries
if not entries then -- damage: no owner enters
  return {0, -1}
end
local known, last, latest, above = 0, 0, 0, 0
local place, alone
for i = 1, #entries, 2 do
  local at, ends = string.match(entries[i + 1], '^(%d+):(%d+)$')
  ends = tonumber(ends or 0)
  if redis.call('hexists', KEYS[1], entries[i]) == 0 then
    if ends + nest_entry_kept < now then
      redis.call('hdel', KEYS[2], entries[i])
    end
  elseif ends <= now then
    redis.call('hdel', KEYS[1], entries[i])
    redis.call('hdel', KEYS[2], entries[i])
  else
    known = known + 1
    last = math.max(last, tonumber(at))
    latest = math.max(latest, ends)
    if entries[i] == ARGV[2] then
      place = tonumber(at)
    end
  end
end
local again = redis.call('hexists', KEYS[1], ARGV[1]) == 1
if not again then
  local count = tonumber(redis.call('hget', KEYS[1], ARGV[2]) or 0) or 0
  if count < tonumber(ARGV[3]) or ARGV[4] ~= '0' and tonumber(redis.call('get', KEYS[3]) or 0) < tonumber(ARGV[4]) then
    return {delegate_not_held, 0}
  end
  local left = redis.call('pttl', KEYS[1])
  if left == 0 then
    left = 1
  end
  if not place then
    place, alone = 0, true
    known = known + 1
  end
  if redis.call('hlen', KEYS[1]) > known or alone and known > 1 then
    return {0, math.max(left, -1)}
  end
  if last > place then
    for i = 1, #entries, 2 do
      local at, ends = string.match(entries[i + 1], '^(%d+):(%d+)$')
      if at and tonumber(at) > place and redis.call('hexists', KEYS[1], entries[i]) == 1 then
        above = math.max(above, tonumber(ends))
      end
    end
    return {0, math.max(above - now, 1)}
  end
  if count > tonumber(ARGV[3]) then
    return {2, math.max(left, -1)}
  end
  if alone then
    latest = now + left
    if left < 0 then
      latest = exact_most -- the lock does not expire
    end
  end
end
-- Before the lock is written: if the token cannot be drawn, nothing is locked.
local token = 0
if ARGV[6] == '1' then
  --! include draw_token counter=KEYS[3] token=token
end
if not again then
  if alone then
    redis.call('hset', KEYS[2], ARGV[2], string.format('0:%.0f', latest))
  end
  local ends = now + tonumber(ARGV[5])
  redis.call('hset', KEYS[2], ARGV[1], string.format('%.0f:%.0f', last + 1, ends))
  redis.call('hset', KEYS[1], ARGV[1], '1')
  latest = math.max(latest, ends)
  if latest < exact_most then
    redis.call('pexpire', KEYS[1], latest - now)
    ends = latest
  end
  -- nest must not expire before the lock.
  redis.call('pexpire', KEYS[2], math.max(ends - now + nest_outlives, redis.call('pttl', KEYS[2])))
else
  redis.call('hset', KEYS[1], ARGV[1], redis.call('hget', KEYS[1], ARGV[1])) -- a write for WAIT, as in acquire
end
--! include read_back track=ARGV[7] lock=KEYS[1]
return {1, token}
