--! fragment redisson_heard
--
-- For a request whose client heard a release by Redisson: the release ends Redisson's turn. If it is the first since
-- the turn began, the turn was used, and the next one is a quarter shorter. Otherwise the release costs as much as a
-- turn: so many more releases (charge) before the next one. See redissons_turn.
redis.pcall('zrem', queue, 'redisson') -- see wake_turn
clock()
local round = queue .. ':round'
local fields = redis.pcall('hmget', round, 'window', 'charge', 'owed', 'length')
local window, length = tonumber(fields[1] or nil) or 0, tonumber(fields[4] or nil) or window_shortest
local charge, owed = math.min(tonumber(fields[2] or nil) or 1, turn_most), tonumber(fields[3] or nil) or -1
if window > 0 then
  length = math.max(window_shortest, math.floor(length * window_after_use))
else
  owed = math.min(math.max(owed, -1) + charge, owed_most * math.max(charge, 1))
end
if at then
  redis.pcall('hset', round, 'window', 0, 'misses', 0, 'owed', owed, 'length', length, 'seen', at + foreign_seen)
  redis.pcall('pexpire', round, round_kept)
end
