--! script permits_release
--! key 1 permits  string
--! key 2 timeouts zset
--! key 3 channel  channel
--! arg 1 id       string
--! arg 2 publish  string
--! reply int      1 released; 0 the id is not out, or its lease had ended
--
-- Puts a permit back and tells the waiters.
local score = redis.call('zscore', KEYS[2], ARGV[1])
if not score then
  return 0
end
--! include count_value
redis.call('zrem', KEYS[2], ARGV[1])
local there = redis.call('incr', KEYS[1])
if there > 0 then
  --! include announce_permits publish=ARGV[2]
end
--! include server_time
if tonumber(score) <= now then
  return 0
end
return 1
