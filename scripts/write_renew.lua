--! script write_renew
--! key * lock    hash NAME
--! arg 1 track   bool
--! arg * owner   string
--! arg * lease   ms
--! arg * exact   bool
--! reply ints    for each key: 1 held; 0 the owner does not hold the lock; n>1 held, for n ms, which is longer than lease
--! needs hexists
--! bound 10500 calls 2 MB
--
-- As renew, for writers: the lock does not end before the lease of a reader that entered under the writer.
local held, budget = {}, holds_read
for i = 1, #KEYS do
  local lease, exact = tonumber(ARGV[3 * i]), ARGV[3 * i + 1]
  if redis.pcall('hexists', KEYS[i], ARGV[3 * i - 1]) == 1 then
    held[i] = 1
    --! include extend_lease lock=KEYS[i] lease=lease exact=exact track=ARGV[1] reads=false long=held[i]
  else
    held[i] = 0
  end
end
return held
