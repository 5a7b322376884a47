--! script renew
--! key * lock    hash
--! arg 1 track   bool
--! arg * owner   string
--! arg * lease   ms
--! reply ints    for each key: 1 held; 0 the owner does not hold the lock
--
-- Sets the time to live of each lock to max(remaining, lease), if its owner holds it. A lease of 0 only checks. A
-- key that is no hash counts as not held, and does not affect the others.
local held = {}
for i = 1, #KEYS do
  local lease = tonumber(ARGV[2 * i + 1])
  if redis.pcall('hexists', KEYS[i], ARGV[2 * i]) == 1 then
    --! include extend_lease lock=KEYS[i] lease=lease track=ARGV[1]
    held[i] = 1
  else
    held[i] = 0
  end
end
return held
