--! fragment server_time
--
-- Declares now: the server's time, in ms since the epoch.
local time = redis.call('time')
local now = time[1] * ms_per_second + math.floor(time[2] / us_per_ms)
