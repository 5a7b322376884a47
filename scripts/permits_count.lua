--! script permits_count
--! key 1 permits  string
--! key 2 timeouts zset
--! key 3 channel  channel
--! arg 1 publish  string
--! reply int      how many are free
--
-- Returns expired permits to the count, and reads how many permits are free.
--! include permits_value
local there = tonumber(value or '0')
--! include server_time
--! include return_ended
if ended > 0 and there > 0 then
  --! include announce_permits publish=ARGV[1]
end
return there
