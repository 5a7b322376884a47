--! fragment tell_sides reading served
--
-- Tells the first clients in the queue of a read-write lock that no writer holds, those that can be served: if the first
-- that is reached reads, all that read; else that one. reading tells that readers hold it. Where a
-- writer's claim keeps readers out, the first that writes is told. The first that is not told asks when those that were
-- have had their time; or, where readers were told, the first that writes soon, to claim. The last of 64 is told so, too:
-- when it has the lock, the next are told. Readers that were told before, and have time left to come, count as readers
-- that hold it: a reader that is near may have come and gone before one that is far away.
--! include waiting_entries
--! include told_entries
local claim = 'mortise:1:writer:{' .. KEYS[1] .. '}'
if string.find(KEYS[1], '{', 1, true) then
  claim = 'mortise:1:writer:' .. KEYS[1] .. ':'
end
local pending, second = nil, nil
for i = 1, #told do
  local writes = told[i] == 'redisson' or redis.pcall('hget', queue .. ':wants', told[i]) == 'w'
  pending = (writes or pending == 'w') and 'w' or 'r'
end
local claimed = redis.pcall('exists', claim) == 1
local side = (reading or pending) and 'r' or claimed and 'w'
for i = 1, pending == 'w' and 0 or #line do
  local wants, told = redis.pcall('hget', queue .. ':wants', line[i]) == 'w' and 'w' or 'r', false
  local full = served and (wants == 'w' or i == 64)
  if (side or wants) == wants and not (side == 'r' and claimed) and not full then
    --! include tell_entry entry=line[i] told=told
  elseif not second then
    second = line[i]
  end
  if told then
    side, served = wants, true
  end
end
if second and (served or pending) then
  tell(second, side == 'r' and not claimed and 'n20:' or 'n1000:')
end
served = served or pending ~= nil
