--! script permits_count
--! key 1 permits  string  NAME
--! key 2 timeouts zset    {NAME}:timeout
--! key 3 channel  channel redisson_sc:{NAME}
--! arg 1 publish  publish|spublish
--! reply int      how many are free
--! bound 1000 calls 10 MB
--
-- Returns expired permits to the count, and reads how many permits are free.
--! include permits_value
local there = tonumber(value or '0')
--! include server_time
--! include return_ended grants=false
if ended > 0 and there > 0 then
  --! include announce_permits publish=ARGV[1]
end
return there
