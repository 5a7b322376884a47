--! script permits_renew
--! key * timeouts zset {NAME}:timeout
--! arg * ids      string
--! arg * count    int
--! arg * lease    ms
--! arg * exact    bool
--! reply ints     for each key: 1 out; 0 an id is not out, or its lease had ended; n>1 out, for n ms, which is longer than lease
--! needs zscore
--! bound 12 calls 1 KB
--
-- Sets the lease of each permit to max(remaining, lease), or with exact to lease, if all permits of its item are in
-- use. A lease of 0 only checks. A key that is no zset has no permits in use, and does not affect the others. ids: as
-- in permits_acquire.
--! include server_time
local reply = {}
for i = 1, #KEYS do
  local ids, count, lease = ARGV[4 * i - 3], tonumber(ARGV[4 * i - 2]), tonumber(ARGV[4 * i - 1])
  local size, ends, other = #ids / count, now + lease, {}
  reply[i] = 1
  for k = 1, count do
    local id = string.sub(ids, (k - 1) * size + 1, k * size)
    local score = redis.pcall('zscore', KEYS[i], id)
    if type(score) ~= 'string' or tonumber(score) <= now then
      reply[i] = 0
      break
    elseif ends > tonumber(score) or lease > 0 and ends < tonumber(score) and ARGV[4 * i] == '1' then
      table.insert(other, id)
    elseif lease > 0 and ends < tonumber(score) then
      reply[i] = math.max(reply[i], math.min(tonumber(score) - now, exact_most))
    end
  end
  for k = 1, reply[i] > 0 and #other or 0 do
    if type(redis.pcall('zadd', KEYS[i], string.format('%.0f', ends), other[k])) == 'table' then -- a full server
      redis.call('zrem', KEYS[i], '') -- see release
      redis.call('zadd', KEYS[i], string.format('%.0f', ends), other[k])
    end
  end
end
return reply
