--! fragment clock now
--
-- The server's clock, in ms.
local time = redis.call('time')
now = time[1] * 1000 + math.floor(time[2] / 1000)
