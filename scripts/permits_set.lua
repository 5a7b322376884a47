--! script permits_set
--! key 1 permits  string
--! key 2 timeouts zset
--! key 3 channel  channel
--! key 4 once     string
--! arg 1 limit    int
--! arg 2 keep     ms
--! arg 3 publish  string
--! reply int      how many are free then
--
-- Sets how many permits there are, free ones and others, after permits whose leases have ended are back, and tells the
-- waiters if there are more than before. once remembers, for keep, that this request was carried out.
--! include permits_value
--! include server_time
local there = tonumber(value or '0')
redis.call('zcard', KEYS[2]) -- what is no zset fails here, before the first write
if not redis.call('set', KEYS[4], '1', 'px', ARGV[2], 'nx') then
  return there
end
--! include return_ended
local sum = ARGV[1] - redis.call('zcard', KEYS[2])
if sum ~= there or not value then
  redis.call('set', KEYS[1], string.format('%.0f', sum), 'keepttl')
end
local more = #ended > 0 or sum > there
there = sum
if more and there > 0 then
  --! include announce_permits publish=ARGV[3]
end
return there
