--! fragment clock now
--
-- Sets now to the server's time, in ms since the epoch.
local time = redis.call('time')
now = time[1] * 1000 + math.floor(time[2] / 1000)
