--! fragment wake_time
--
-- The server's clock: at in ms, came in microseconds. Both are nil if the Redis user may not run TIME: then nothing
-- is put into a queue, and no entry is told.
if not came then
  local time = redis.pcall('time')
  at = time[1] and time[1] * ms_per_second + math.floor(time[2] / us_per_ms)
  came = time[1] and string.format('%.0f', time[1] * us_per_second + time[2])
end
