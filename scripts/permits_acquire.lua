--! script permits_acquire
--! key 1 permits  string
--! key 2 timeouts zset
--! key 3 channel  channel
--! arg 1 id       string
--! arg 2 lease    ms
--! arg 3 publish  string
--! reply ints     0, n: granted, n are left; t>0, n: refused, the first ends in t ms; -1, n: refused, none ends
--
-- Takes a permit out under an id of 16 bytes, after permits whose leases have ended are back. The
-- same request again, while the id is out, is granted again and counts once. The
-- zset lives as long as the count does.
--! include count_value
--! include server_time
local there = tonumber(value or '0')
--! include return_ended
local reply = {0, there}
if not redis.call('zscore', KEYS[2], ARGV[1]) then
  if there > 0 then
    there = redis.call('decr', KEYS[1])
    redis.call('zadd', KEYS[2], string.format('%.0f', now + ARGV[2]), ARGV[1])
    local ttl = redis.call('pttl', KEYS[1])
    if ttl > 0 then
      redis.call('pexpire', KEYS[2], ttl)
    end
    reply = {0, there}
  else
    local first = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
    reply = {-1, there}
    if first[2] and tonumber(first[2]) < 922337203685477 then
      reply[1] = math.max(tonumber(first[2]) - now, 1)
    end
  end
end
if #ended > 0 and there > 0 then
  redis.call(ARGV[3], KEYS[3], string.format('%.0f', math.min(there, 2147483647)))
end
return reply
