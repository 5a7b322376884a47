--! script release_all
--! key * lock    hash    NAME
--! key * channel channel redisson_lock__channel:{NAME}
--! arg 1 publish publish|spublish
--! arg * owner   string
--! arg * keep    int
--! reply ints    for each lock: 1 done; 0 the owner does not hold the lock; -2 not of this kind
--! needs hexists
--! bound 4000 calls 25 MB
--
-- Like release, for several locks. The locks are independent: a lock that is not held, or is of another kind, does
-- not affect the others.
local held = {}
for i = 1, #KEYS / 2 do
  held[i] = redis.pcall('hexists', KEYS[2 * i - 1], ARGV[2 * i])
  if type(held[i]) == 'table' then
    if not string.find(held[i].err, 'WRONGTYPE', 1, true) then
      return held[i]
    end
    held[i] = -2
  end
end
for i = 1, #KEYS / 2 do
  local lock, owner, keep = KEYS[2 * i - 1], ARGV[2 * i], ARGV[2 * i + 1]
  if held[i] == 1 and keep ~= '0' then
    --! include set_holds lock=lock owner=owner holds=keep
  elseif held[i] == 1 then
    -- Not del: Redisson may have granted a read lock in the same hash.
    redis.call('hdel', lock, owner)
    local served = false
    --! include tell_waiters lock=lock to=KEYS[2*i] publish=ARGV[1] served=served
  end
end
return held
