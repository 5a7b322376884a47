--! script read_renew
--! key * lock    hash
--! key * timeout string
--! arg 1 track   bool
--! arg * owner   string
--! arg * lease   ms
--! reply ints    for each: 1 held; 0 the owner does not hold the lock
--
-- Sets the lease of each reader to max(remaining, lease), if it holds the lock, and prolongs the lock accordingly. A
-- lease of 0 only checks. A key that is no hash counts as not held, and does not affect the others.
local held = {}
for i = 1, #KEYS / 2 do
  local lock, timeout, lease = KEYS[2 * i - 1], KEYS[2 * i], tonumber(ARGV[2 * i + 1])
  held[i] = 0
  if redis.pcall('hexists', lock, ARGV[2 * i]) == 1 then
    local left = redis.call('pttl', timeout)
    if left ~= -2 then
      held[i] = 1
      if left >= 0 and left < lease then
        redis.call('pexpire', timeout, lease)
      end
      --! include extend_lease lock=lock lease=lease track=ARGV[1]
    end
  end
end
return held
