--! fragment windows_pause round foreign
--
-- While there are no windows (see take_turns) foreign clients are none: they listen, and take nothing.
if foreign > 0 then
  --! include server_time
  local pause = tonumber(redis.pcall('hget', round, 'pause') or 0) or 0
  foreign = pause > now and pause < now + 4000 and 0 or foreign
end
