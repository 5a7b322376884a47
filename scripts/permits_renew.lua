--! script permits_renew
--! key * timeouts zset
--! arg * ids      string
--! arg * count    int
--! arg * lease    ms
--! reply ints     for each key: 1 out; 0 an id is not out, or its lease had ended
--
-- Sets the lease of each permit to max(remaining, lease), if all permits of its item are in use. A lease of 0 only
-- checks. A key that is no zset has no permits in use, and does not affect the others. ids: as in permits_acquire.
--! include server_time
local reply = {}
for i = 1, #KEYS do
  local ids, count, ends = ARGV[3 * i - 2], tonumber(ARGV[3 * i - 1]), now + ARGV[3 * i]
  local size, shorter = #ids / count, {}
  reply[i] = 1
  for k = 1, count do
    local id = string.sub(ids, (k - 1) * size + 1, k * size)
    local score = redis.pcall('zscore', KEYS[i], id)
    if type(score) ~= 'string' or tonumber(score) <= now then
      reply[i] = 0
      break
    elseif ends > tonumber(score) then
      table.insert(shorter, id)
    end
  end
  for k = 1, reply[i] == 1 and #shorter or 0 do
    redis.call('zadd', KEYS[i], string.format('%.0f', ends), shorter[k])
  end
end
return reply
