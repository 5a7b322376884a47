--! fragment drop_silent queue round channel first asker dropped
--
-- Removes the entries before that of the asker, 64 at most, whose clients do not listen: they are dead, and would keep
-- the asker's client from being the first. first is then the first entry that is left, without those whose clients
-- poll. If subscribers cannot be counted, nothing is removed. dropped becomes true if an entry was removed.
local behind = 0
for _ = 1, entries_passed do
  if not first or first == asker or string.sub(first, 1, 1) == 'n' then
    break
  end
  local listeners = 0
  --! include listeners entry=first channel=channel listeners=listeners
  if listeners ~= 0 then
    break
  elseif redis.pcall('hget', round, 'polls:' .. first) == false then
    redis.pcall('zrem', queue, first)
    redis.pcall('hdel', queue .. ':asks', first)
    dropped = true
  else
    behind = behind + 1
  end
  first = redis.pcall('zrange', queue, behind, behind)[1]
end
