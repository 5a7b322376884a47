--! script renew
--! key * lock    hash NAME
--! arg 1 track   bool
--! arg * owner   string
--! arg * lease   ms
--! arg * exact   bool
--! arg * held    ms
--! reply ints    for each key: 1 held; 0 the owner does not hold the lock; n>1 held, for n ms, which is longer than lease
--! needs hexists
--! bound 14 calls 1 KB
--
-- Sets the time to live of each lock to max(remaining, lease), if its owner holds it, and with exact to lease. A lock
-- without a time to live (after PERSIST, or RESTORE without one) gets one. A lock with another owner, whose lease is
-- not known here, is never shortened. A lease of 0 only checks. A key that is no hash counts as not held, and does not
-- affect the others. held is for how long the owner has had the lock: where it is not 0, describe can tell since when,
-- until the lease ends. A user without permission for TIME or SET renews without that.
local held, time = {}, nil
for i = 1, #KEYS do
  local owner, lease, exact, had = ARGV[4 * i - 2], tonumber(ARGV[4 * i - 1]), ARGV[4 * i], tonumber(ARGV[4 * i + 1])
  if redis.pcall('hexists', KEYS[i], owner) == 1 then
    held[i] = 1
    local left = redis.call('pttl', KEYS[i])
    local wrong = lease > 0 and (left == -1 or left > lease and exact == '1')
    if left >= 0 and left < lease or wrong and redis.call('hlen', KEYS[i]) == 1 then
      redis.call('pexpire', KEYS[i], lease)
      --! include read_back track=ARGV[1] lock=KEYS[i]
    elseif not wrong and lease > 0 and left > lease then
      held[i] = left
    end
    if had > 0 and lease > 0 then
      time = time or redis.pcall('time')
      if not time.err then
        --! include note_of lock=KEYS[i]
        local at = time[1] * ms_per_second + math.floor(time[2] / us_per_ms) - had
        redis.pcall('set', note, string.format('%.0f %s', at, owner), 'px', lease)
      end
    end
  else
    held[i] = 0
  end
end
return held
