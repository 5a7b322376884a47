--! fragment clock now
--
-- The server's clock in ms, with fractions.
local time = redis.call('time')
now = time[1] * 1000 + time[2] / 1000
