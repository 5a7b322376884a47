--! fragment tell_places misses reached
--
-- Tells waiters for a fair lock of a window, from the first place on, until a message reaches a subscriber; 192 places
-- at most. That waiter's process may be stopped, or dead if PUBLISH does not count all subscribers. So one more waiter
-- is told for each missed window in a row, and one more if subscribers are not counted, each of another client than
-- the last. reached becomes true if a waiter was told, or if that is not known.
local counts = string.sub(first, 1, 1) ~= 'n'
reached = not counts
local more, last = misses + (counts and 0 or 1)
for i = 0, places_tried - 1 do
  local place = redis.pcall('lindex', places, i)
  if type(place) ~= 'string' or more < 0 then
    break
  end
  local client = string.match(place, '^.*:') or place
  local to = channel .. ':' .. place
  local told = client ~= last and redis.pcall(say, to, '0')
  if told and counts then
    --! include reached publish=say to=to heard=told
  end
  if told and (not counts or type(told) == 'number' and told > 0) then
    last, more, reached = client, more - 1, true
  end
end
