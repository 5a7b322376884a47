--! fragment refuse_pair second
--
-- Returns a refusal: the remaining time in ms, -1 without an end. In a window there is no record, and the time is
-- window_shortest.
local left = redis.call('pttl', KEYS[1])
if left < 0 then
  return {left == -2 and window_shortest or -1, second}
end
return {math.max(left, 1), second}
