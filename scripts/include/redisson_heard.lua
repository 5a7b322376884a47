--! fragment redisson_heard
--
-- For a request whose client heard a release by Redisson. The release ends Redisson's turn. If it is the first since
-- the turn began (open is 1), the turn was used, and the next one is a quarter shorter. Otherwise the release costs as
-- much as a turn: so many more releases (charge) before the next turn.
redis.pcall('zrem', queue, 'redisson')
--! include wake_time
local round = queue .. ':round'
local fields = redis.pcall('hmget', round, 'open', 'charge', 'owed', 'length')
local charge, owed = math.min(tonumber(fields[2] or nil) or 1, turn_most), tonumber(fields[3] or nil) or 0
local length = tonumber(fields[4] or nil) or window_shortest
if fields[1] == '1' then
  length = length * window_after_use
else
  owed = math.min(math.max(owed, 0) + charge, owed_most * math.max(charge, 1))
end
if at then
  redis.pcall('hset', round, 'open', 0, 'misses', 0, 'owed', owed, 'length', length, 'seen', at + foreign_seen)
  redis.pcall('pexpire', round, round_kept)
end
