--! fragment draw_token counter token
--
-- Draws a fencing token, larger than all earlier tokens of the lock. A missing counter starts at the server's time in
-- ms: after a flush, the tokens do not start again below the earlier ones.
if redis.call('exists', counter) == 1 then
  token = redis.call('incr', counter)
else
  --! include server_time
  token = now
  redis.call('set', counter, string.format('%.0f', token))
end
