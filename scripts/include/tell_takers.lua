--! fragment tell_takers free asker served granted
--
-- Serves the first entries in the queue of a semaphore, in the order of their arrival, except the asker, until no permit
-- is left. The owner in an entry is granted its permits, if it wants no more than are left (see grant_permits). The
-- client of any other entry is told to ask, if one of its waiters wants no more than are left. The first client that
-- wants more than are left asks when the told ones have had their time. granted is how many permits owners got.
--! include waiting_entries
local left, second = free, nil
for i = 1, left > 0 and #line or 0 do
  local told, size, wants = false, 0, nil
  if line[i] ~= asker and left > 0 then
    --! include grant_permits entry=line[i] free=left told=told size=size
  end
  if told then
    granted = granted + size
  else
    wants = math.max(1, tonumber(redis.pcall('hget', asks, line[i])) or 1)
    size = wants
    if wants <= left and line[i] ~= asker then
      --! include tell_entry entry=line[i] told=told
    end
  end
  if told then
    left, served = left - size, true
  elseif wants > left then
    second = second or line[i]
  end
end
if served and second then
  tell(second, 'n' .. reservation .. ':')
end
