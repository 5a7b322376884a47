--! fragment foreign_clients mark channel foreign fair
--
-- foreign_subscribers, for a plain lock. The waiters for a fair lock, the first of which is in fair then, count as one.
--! include foreign_subscribers mark=mark channel=channel foreign=foreign
fair = redis.pcall('lindex', 'redisson_lock_queue:' .. string.sub(channel, 24), 0)
fair = type(fair) == 'string' and fair
foreign = foreign + (fair and 1 or 0)
