--! script acquire_all
--! key * lock    hash   NAME
--! key * token   string redisson_lock_token:{NAME}
--! arg 1 track   bool
--! arg * owner   string
--! arg * lease   ms
--! arg * fenced  bool
--! reply ints    for each lock: 0 free, or granted; n>0 granted, the token; -1 refused, no expiry; -2 not of this kind; n<-2 refused, -n-2 ms left
--! needs hexists
--! bound 4000 calls 25 MB
--
-- Like acquire, or acquire_fenced, for several locks, all or none: if one lock is refused or of another kind, the
-- others are not granted and answer 0. The same requests a second time, while their owners hold the locks, are
-- granted again and count once. The names differ.
local reply, free, granted = {}, {}, true
for i = 1, #KEYS / 2 do
  local lock, owner = KEYS[2 * i - 1], ARGV[3 * i - 1]
  reply[i] = 0
  --! include look lock=lock free=free[i]
  if not free[i] then
    local held = redis.pcall('hexists', lock, owner)
    if type(held) == 'table' then
      if not string.find(held.err, 'WRONGTYPE', 1, true) then
        return held
      end
      granted, reply[i] = false, -2
    elseif held == 0 then
      granted = false
      if redis.call('hexists', lock, 'mode') == 1 then
        reply[i] = -2
      else
        local left = redis.call('pttl', lock)
        reply[i] = -1
        if left ~= -1 then -- -2: no record, a window is open
          reply[i] = -2 - (left < 0 and window_shortest or math.max(left, 1))
        end
      end
    end
  end
end
if not granted then
  return reply
end
-- Before the locks are written: if a token cannot be drawn, nothing is locked.
for i = 1, #KEYS / 2 do
  if ARGV[3 * i + 1] == '1' then
    local token = KEYS[2 * i]
    --! include draw_token counter=token token=reply[i]
  end
end
for i = 1, #KEYS / 2 do
  local lock = KEYS[2 * i - 1]
  if free[i] then
    redis.call('hset', lock, ARGV[3 * i - 1], '1')
    redis.call('pexpire', lock, ARGV[3 * i])
  end
  --! include read_back track=ARGV[1] lock=lock
end
return reply
