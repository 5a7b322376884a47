--! fragment wake_time
--
-- The server's clock: at in ms, came in microseconds. Both are nil if the Redis user may not run TIME: then nothing
-- is put into a queue, and no entry is told.
if not came then
  local time = redis.pcall('time')
  at = time[1] and time[1] * 1000 + math.floor(time[2] / 1000)
  came = time[1] and string.format('%.0f', time[1] * 1000000 + time[2])
end
