--! fragment windows_pause round foreign
--
-- Sets foreign to 0 in a pause of the windows (see missed_window): foreign clients listen, but do not take the lock.
if foreign > 0 then
  --! include server_time
  local pause = tonumber(redis.pcall('hget', round, 'pause') or 0) or 0
  foreign = pause > now and pause < now + pause_longest and 0 or foreign
end
