--! script permits_renew
--! key * timeouts zset
--! arg * id       string
--! arg * lease    ms
--! reply ints     for each key: 1 out; 0 the id is not out, or its lease had ended
--
-- Sets the lease of each permit to max(remaining, lease), where it is out. A lease of 0
-- only asks. What is no zset has none out; it spoils no other.
--! include server_time
local out = {}
for i = 1, #KEYS do
  local score = redis.pcall('zscore', KEYS[i], ARGV[2 * i - 1])
  out[i] = 0
  if type(score) == 'string' and tonumber(score) > now then
    local ends = now + ARGV[2 * i]
    if ends > tonumber(score) then
      redis.call('zadd', KEYS[i], string.format('%.0f', ends), ARGV[2 * i - 1])
    end
    out[i] = 1
  end
end
return out
