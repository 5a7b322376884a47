--! fragment live_owners fields owners
--
-- Appends the owners of a lock with their hold counts to owners. If the lock has several, those past their deadlines are
-- left out: see delegate_enter.
local over = {}
if #fields > 2 then
  --! include server_time
  --! include nest_of lock=KEYS[1]
  local entries
  local size = redis.call('hlen', nest)
  --! include fields_of key=nest size=size most=owners_read fields=entries
  for i = 1, entries and #entries or 0, 2 do
    local ends = tonumber(string.match(entries[i + 1], '^%d+:(%d+)$'))
    over[entries[i]] = ends and ends <= now
  end
end
for i = 1, #fields, 2 do
  if not over[fields[i]] then
    owners[#owners + 1] = fields[i]
    owners[#owners + 1] = fields[i + 1]
  end
end
