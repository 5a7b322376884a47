--! script permits_release
--! key 1 permits  string
--! key 2 timeouts zset
--! key 3 channel  channel
--! arg 1 id       string
--! arg 2 publish  string
--! reply int      1 released; 0 the id is not out, or its lease had ended
--
-- Puts a permit back and tells those who wait.
local score = redis.call('zscore', KEYS[2], ARGV[1])
if not score then
  return 0
end
local value = redis.call('get', KEYS[1])
if value and not string.find(value, '^%-?%d+$') then
  return redis.error_reply('WRONGKIND the key holds no count')
end
redis.call('zrem', KEYS[2], ARGV[1])
local there = redis.call('incr', KEYS[1])
if there > 0 then
  redis.call(ARGV[2], KEYS[3], string.format('%.0f', math.min(there, 2147483647)))
end
local time = redis.call('time')
if tonumber(score) <= time[1] * 1000 + math.floor(time[2] / 1000) then
  return 0
end
return 1
