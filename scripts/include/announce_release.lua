--! fragment announce_release queue publish channel call
--
-- Tells one waiting client of a release: the first in the queue, which is taken out. The second asks if the
-- first stays silent. The message is one number that says nothing to Redisson: seven digits for each of
-- the two, four for the number of subscribers. Without a client in the queue, 2 wakes all.
local first = redis.pcall('zpopmin', queue)[1] -- an error has none
local second = first and redis.call('zrange', queue, 0, 0)[1]
local turn = first and first .. (second or '0000000') .. string.format('%04d', math.min(heard, 9999))
redis.call(publish, channel, turn or '2')
