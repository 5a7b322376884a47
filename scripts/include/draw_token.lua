--! fragment draw_token counter token
--
-- Draws a fencing token: larger than every token that the lock gave out before. A missing counter starts
-- at the server's time in ms, so that a flushed store does not start again below tokens that are out.
if redis.call('exists', counter) == 1 then
  token = redis.call('incr', counter)
else
  --! include server_time
  token = now
  redis.call('set', counter, string.format('%.0f', token))
end
