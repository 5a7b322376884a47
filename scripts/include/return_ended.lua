--! fragment return_ended grants
--
-- Returns expired permits to the count, ended_most at once, a few milliseconds of the server's time. ended is their
-- number. grants: the script may then grant permits.
local ended = math.min(redis.call('zcount', KEYS[2], '-inf', string.format('%.0f', now)), ended_most)
if ended > 0 then
  if grants then
    redis.call('zadd', KEYS[2], 'xx', 0, '') -- changes nothing, and fails on a full server, before the first change
  end
  ended = redis.call('zremrangebyrank', KEYS[2], 0, ended - 1)
  there = redis.call('incrby', KEYS[1], ended)
end
