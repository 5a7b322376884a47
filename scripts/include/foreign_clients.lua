--! fragment foreign_clients mark channel foreign fair
--
-- foreign_subscribers, for a plain lock. The waiters for a fair lock, whose queue is in places, count as one; fair tells
-- that there are some.
--! include foreign_subscribers mark=mark channel=channel foreign=foreign
local places = 'redisson_lock_queue:' .. string.sub(channel, 24)
fair = type(redis.pcall('lindex', places, 0)) == 'string'
foreign = foreign + (fair and 1 or 0)
