--! fragment return_ended
--
-- Returns expired permits to the count, at most 10000 at once, a few milliseconds of the server's time. ended is their
-- number. unpack takes some 8000 values at most.
local ended, last = 0, string.format('%.0f', now)
for _ = 1, 10 do
  local ids = redis.call('zrangebyscore', KEYS[2], '-inf', last, 'limit', 0, 1000)
  if #ids > 0 then
    redis.call('zrem', KEYS[2], unpack(ids))
    there, ended = redis.call('incrby', KEYS[1], #ids), ended + #ids
  end
  if #ids < 1000 then
    break
  end
end
