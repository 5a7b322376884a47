--! script permits_set
--! key 1 permits  string  NAME
--! key 2 timeouts zset    {NAME}:timeout
--! key 3 channel  channel redisson_sc:{NAME}
--! key 4 once     string  mortise:1:once:{NAME}:ID
--! arg 1 limit    int
--! arg 2 keep     ms
--! arg 3 publish  publish|spublish
--! reply int      how many are free then
--! bound 1000 calls 10 MB
--
-- Returns expired permits to the count, and sets the number of all permits, free and in use. Tells the waiters if
-- more permits are free than before. once remembers, for keep, that this request was executed.
--! include permits_value
--! include server_time
local there = tonumber(value or '0')
redis.call('zcard', KEYS[2]) -- fails on a key of another type, before the first write
if not redis.call('set', KEYS[4], '1', 'px', ARGV[2], 'nx') then
  return there
end
--! include return_ended grants=true
local sum = ARGV[1] - redis.call('zcard', KEYS[2])
if sum ~= there or not value then
  redis.call('set', KEYS[1], string.format('%.0f', sum), 'keepttl')
end
local more = ended > 0 or sum > there
there = sum
if more and there > 0 then
  --! include announce_permits publish=ARGV[3]
end
return there
