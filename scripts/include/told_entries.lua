--! fragment told_entries
--
-- The entries whose clients were told to ask, and have time left, 64 at most. mortise writes no score more than a
-- second ahead: such a score is ignored.
clock()
local told = {}
if at then
  local last, first = string.format('%.0f', -at - reservation), string.format('%.0f', -at)
  told = redis.pcall('zrangebyscore', queue, last, first, 'limit', 0, entries_told)
end
