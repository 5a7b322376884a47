--! fragment tell_takers free asker served
--
-- Tells the first clients in the queue to ask, in the order of their arrival, except the asker: each that wants no
-- more permits than are left, until none is left. The first client that wants more than are left asks when the told
-- ones have had their time.
--! include waiting_entries
local left, second = free, nil
for i = 1, left > 0 and #line or 0 do
  local wants, told = math.max(1, tonumber(redis.pcall('hget', queue .. ':wants', line[i])) or 1), false
  if wants <= left and line[i] ~= asker then
    --! include tell_entry entry=line[i] told=told
  end
  if told then
    left, served = left - wants, true
  elseif wants > left then
    second = second or line[i]
  end
end
if served and second then
  tell(second, 'n' .. reservation .. ':')
end
