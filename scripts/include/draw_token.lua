--! fragment draw_token counter token
--
-- Draws a fencing token, larger than all earlier tokens of the lock. A missing counter starts at the server's time in
-- ms: after a flush, the tokens do not start again below the earlier ones. From 2^53 on, a Lua number stands for two
-- or more integers, so a token could come twice: none is drawn.
if redis.call('exists', counter) == 1 then
  token = redis.call('incr', counter)
  if token >= token_refused then
    return redis.error_reply('WRONGKIND the counter of tokens has reached 2^53')
  end
else
  --! include server_time
  token = now
  redis.call('set', counter, string.format('%.0f', token))
end
