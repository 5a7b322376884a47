--! script permits_count
--! key 1 permits  string
--! key 2 timeouts zset
--! key 3 channel  channel
--! arg 1 publish  string
--! reply int      how many are free
--
-- Reads how many permits are free, once those that have ended are back.
local value = redis.call('get', KEYS[1])
if value and not string.find(value, '^%-?%d+$') then
  return redis.error_reply('WRONGKIND the key holds no count')
end
local there = tonumber(value or '0')
local time = redis.call('time')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local ended = redis.call('zrangebyscore', KEYS[2], 0, now, 'limit', 0, 1000)
if #ended > 0 then
  redis.call('zrem', KEYS[2], unpack(ended))
  there = redis.call('incrby', KEYS[1], #ended)
  if there > 0 then
    redis.call(ARGV[1], KEYS[3], string.format('%.0f', math.min(there, 2147483647)))
  end
end
return there
