--! fragment return_ended
--
-- Returns expired permits to the count, at most 1000 at once.
local ended = redis.call('zrangebyscore', KEYS[2], '-inf', string.format('%.0f', now), 'limit', 0, 1000)
if #ended > 0 then
  redis.call('zrem', KEYS[2], unpack(ended))
  there = redis.call('incrby', KEYS[1], #ended)
end
