--! script read_renew
--! key * lock    hash   NAME
--! key * timeout string {NAME}:READER:rwlock_timeout:1
--! arg 1 track   bool
--! arg * owner   string
--! arg * lease   ms
--! arg * exact   bool
--! reply ints    for each: 1 held; 0 the owner does not hold the lock; n>1 held, for n ms, which is longer than lease
--! needs hexists
--! bound 10500 calls 2 MB
--
-- Sets the lease of each reader to max(remaining, lease), if it holds the lock, and prolongs the lock accordingly; with
-- exact, to lease, and shortens the lock accordingly. A key without a time to live gets one in any case: see renew. A
-- lease of 0 only checks. A key that is no hash counts as not held, and does not affect the others.
local held, budget = {}, holds_read
for i = 1, #KEYS / 2 do
  local lock, timeout, lease = KEYS[2 * i - 1], KEYS[2 * i], tonumber(ARGV[3 * i])
  held[i] = 0
  if redis.pcall('hexists', lock, ARGV[3 * i - 1]) == 1 then
    local left = redis.call('pttl', timeout)
    if left ~= -2 then
      held[i] = 1
      if lease > 0 and (left < lease or left > lease and ARGV[3 * i + 1] == '1') then -- -1: no time to live
        redis.call('pexpire', timeout, lease)
      elseif lease > 0 and left > lease then
        held[i] = left
      end
      local long -- another reader's lease may be longer
      --! include extend_lease lock=lock lease=lease exact=ARGV[3*i+1] track=ARGV[1] reads=true long=long
    end
  end
end
return held
