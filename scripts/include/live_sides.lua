--! fragment live_sides fields owners
--
-- Appends the owners of a read-write lock with their hold counts to owners, without expired readers. The limit
-- holds_read: see read_release; a reader beyond it counts as live. prefix is that of the readers' keys; a user that may
-- not read them sees no reader.
local budget = holds_read
for i = 1, #fields, 2 do
  local holds = tonumber(fields[i + 1]) or 0
  budget = budget - math.max(0, holds)
  local live = string.sub(fields[i], -#':write') == ':write' or budget < 0 and holds > 0
  if #fields[i] > owner_longest then -- damage: see read_release
    live, holds = false, 0
  end
  for k = 1, live and 0 or holds do
    live = live or redis.pcall('exists', prefix .. ':' .. fields[i] .. ':rwlock_timeout:' .. k) == 1
  end
  if live then
    owners[#owners + 1] = fields[i]
    owners[#owners + 1] = fields[i + 1]
  end
end
