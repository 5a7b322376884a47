--! fragment tell_sides reading served
--
-- Serves the first entries in the queue of a read-write lock that can be: the owner in an entry is granted its side (see
-- grant_side), and the client of any other is told to ask. Both are told below. No writer holds the lock;
-- reading says that readers do. If the first client that is reached reads, all readers are told; otherwise that
-- writer only. If a writer's claim keeps readers out, the first writer is told. The first client that is not told
-- asks when the told ones have had their time; but if readers were told, it is a writer, and asks soon, to leave a
-- claim. The last of 64 entries counts as not told, too: when its client has the lock, the next are told. Readers
-- that were told before, and have time left, count as readers that hold the lock: a reader that is near may have
-- come and gone before one that is far away.
--! include waiting_entries
--! include told_entries
local claim = 'mortise:1:writer:{' .. KEYS[1] .. '}'
if string.find(KEYS[1], '{', 1, true) then
  claim = 'mortise:1:writer:' .. KEYS[1] .. ':'
end
local absent = redis.pcall('exists', KEYS[1]) == 0 -- the name may be another kind's by now
local reads = redis.pcall('hget', KEYS[1], 'mode') == 'read'
local pending, second = nil, nil
for i = 1, #told do
  local writes = told[i] == 'redisson' or redis.pcall('hget', asks, told[i]) == 'w'
  pending = (writes or pending == 'w') and 'w' or 'r'
end
local claimed = redis.pcall('exists', claim) == 1
local side = (reading or pending) and 'r' or claimed and 'w'
for i = 1, pending == 'w' and 0 or #line do
  local wants, told = redis.pcall('hget', asks, line[i]) == 'w' and 'w' or 'r', false
  local full = served and (wants == 'w' or i == entries_told)
  if (side or wants) == wants and not (side == 'r' and claimed) and not full then
    --! include grant_side entry=line[i] wants=wants told=told
    if not told then
      --! include tell_entry entry=line[i] told=told
    end
  elseif not second then
    second = line[i]
  end
  if told then
    side, served = wants, true
  end
end
if second and (served or pending) then
  tell(second, side == 'r' and not claimed and 'n' .. asks_soonest .. ':' or 'n' .. reservation .. ':')
end
served = served or pending ~= nil
