--! fragment refuse_pair second
--
-- The reply of a refusal: the remaining time in ms, or -1 where there is no end. The record is absent in a window.
local left = redis.call('pttl', KEYS[1])
if left < 0 then
  return {left == -2 and 20 or -1, second}
end
return {math.max(left, 1), second}
