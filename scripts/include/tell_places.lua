--! fragment tell_places channel misses
--
-- Tells the waiters for a fair lock of a window: from the first on, until the message reaches one, 256 at most. That one may
-- be stopped, and where PUBLISH does not count all subscribers it may be dead. So with each window that was missed the
-- first waiter of one more client is told, and without counts another one besides.
local counts = string.sub(first, 1, 1) ~= 'n'
local more, last = misses + (counts and 0 or 1)
for i = 0, fair and 255 or -1 do
  local place = redis.pcall('lindex', places, i)
  if type(place) ~= 'string' or more < 0 then
    break
  end
  local client = string.match(place, '^.*:') or place
  local told = client ~= last and redis.pcall(say, channel .. ':' .. place, '0')
  if told and (not counts or type(told) == 'number' and told > 0) then
    last, more = client, more - 1
  end
end
